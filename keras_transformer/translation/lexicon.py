"""A bilingual lexicon: which target tokens each source token is likely to be translated with.

It is learned from the training pairs, and gives the shortlists of a faster search: the output layer
is computed for a few hundred tokens instead of the whole vocabulary (Jean et al., 2015, section
3.3, https://arxiv.org/abs/1412.2007; L'Hostis et al., 2016, https://arxiv.org/abs/1610.00072;
Hieber et al., 2022, section 3.3, https://arxiv.org/abs/2207.05851).

Shapes: B batch (texts), S source length, V source vocabulary, K translations of each source token,
A tokens in every shortlist; L links and E entries of the lexicon, see `_links`.
"""

import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.config import MAX_TRANSLATIONS
from keras_transformer.decoding import Shortlist
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.regular import check_arrays, regular_file
from keras_transformer.runs.run import Run, checksum_of_tokenizers
from keras_transformer.types import Self, StrPath, Tensor

NUM_FREQUENT = 100
"""The most frequent target tokens, which are in every shortlist. Marian takes as many."""

NUM_ITERATIONS = 5
"""Iterations of expectation maximization; later ones change little."""

DIAGONAL_TENSION = 4.0
"""Weight of the distance from the diagonal in an alignment, at which fast_align begins."""

MAX_LINKS = 2**27
"""Links from which a lexicon is learned, some 200,000 sentence pairs: they take a gigabyte."""

NUM_COUNTERPARTS = 5
"""Translations of a token by which `Lexicon.coverage` knows it again."""

CHUNK_LINKS = 2**22
"""Links that are computed at once."""


class Lexicon(NamedTuple):
    """The likely translations of each token, from which the shortlist of a text is made.

    Example:
        sides = corpus.source, corpus.target
        rows = [list(map(np.array, tokenizer.encode_on_host(texts))) for texts in sides]
        lexicon = Lexicon.learn(*rows, tokenizer.vocab_size)
        print(lexicon.top(50).shortlist(np.array([[5, 6, 3]], "int32")).ids)
    """

    table: Any
    """`(V, 1 + K)` int32, a row for each source token: the token itself where both languages share
    a vocabulary, then its translations, the most probable first; 0 where there are no more."""

    frequent: Any
    """`(A,)` int32, the most frequent target tokens."""

    target_vocab_size: int
    """Number of target tokens."""

    @classmethod
    def learn(
        cls,
        source_rows: Sequence[Any],
        target_rows: Sequence[Any],
        vocab_size: int,
        target_vocab_size: int | None = None,
    ) -> Self:
        """Returns the lexicon of a parallel text.

        The translations are those of IBM Model 1 (Brown et al., 1993, section 4.1,
        https://aclanthology.org/J93-2003): each target token is drawn from one of the source tokens
        of its pair, all with the same probability. Expectation maximization finds the probabilities
        t(target | source) that explain the text best. Of a long text, only every n-th pair is read.

        Args:
            source_rows, target_rows: lists of int arrays, the tokens of each sentence and of its
                translation, without start and end token.
            vocab_size: V.
            target_vocab_size: None: source and target share one vocabulary.
        """
        table = np.zeros((vocab_size, 1 + MAX_TRANSLATIONS), "int32")
        if target_vocab_size is None:
            target_vocab_size = vocab_size
            table[:, 0] = np.arange(vocab_size)
        sources, targets, probabilities = _model_1(source_rows, target_rows)
        order = np.lexsort((-probabilities, sources))
        sources, targets = sources[order], targets[order]
        ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
        kept = ranks < MAX_TRANSLATIONS
        table[sources[kept], 1 + ranks[kept]] = targets[kept]

        counts = np.bincount(np.concatenate(target_rows))
        frequent = np.argsort(-counts, kind="stable")[:NUM_FREQUENT]
        frequent = frequent[counts[frequent] > 0].astype("int32")
        return cls(table, frequent, target_vocab_size)

    def top(self, num_translations: int) -> Self:
        """Returns the lexicon with at most `num_translations` of each token."""
        return self._replace(table=self.table[:, : 1 + num_translations])

    def coverage(self, source_rows: Iterable[Any], target_rows: Iterable[Any]) -> np.ndarray:
        """Returns how well texts and translations fit: 1 where each token has its counterpart.

        It is the mean of two shares: of the source tokens with one of their `NUM_COUNTERPARTS` most
        probable translations in the target, and of the target tokens that are such a translation.

        Args:
            source_rows, target_rows: int arrays, as for `learn`.
        Returns:
            NumPy `(number of rows,)`, between 0 and 1.
        """
        table = np.asarray(self.table)[:, : 1 + NUM_COUNTERPARTS]
        found = []
        for source, target in zip(source_rows, target_rows, strict=True):
            translations = table[source]
            of_source = np.isin(translations, target).any(axis=1).sum() / max(1, len(source))
            of_target = np.isin(target, translations).sum() / max(1, len(target))
            found.append((of_source + of_target) / 2)
        return np.array(found)

    def shortlist(self, source_ids: Tensor) -> Shortlist:
        """Returns the shortlist of each text: what its tokens may be translated with.

        Args:
            source_ids: `(B, S)` int32, padded with 0.
        """
        num_texts, length = ops.shape(source_ids)
        table = ops.convert_to_tensor(self.table)
        translations = backend.take_rows(table, source_ids)  # (B, S, 1 + K)
        translations = ops.reshape(translations, (num_texts, length * table.shape[1]))
        frequent = ops.convert_to_tensor(self.frequent)
        frequent = ops.broadcast_to(frequent, (num_texts, frequent.shape[0]))
        candidates = ops.concatenate([frequent, translations], axis=1)
        return Shortlist.of(candidates, self.target_vocab_size)

    def save(self, path: StrPath, tokenizers: str = "") -> None:
        """Writes the lexicon to a file `.npz`, whole or not at all.

        Args:
            tokenizers: the checksum of the tokenizers whose ids it has.
        """
        with replacing(path) as partial:
            np.savez_compressed(partial, **self._asdict(), tokenizers=tokenizers)

    @classmethod
    def load(cls, path: StrPath, tokenizers: str = "") -> Self:
        """Returns the lexicon in a file that `save` has written with the same arguments.

        Raises:
            ValueError: there is none, it is damaged, or it belongs to other tokenizers.
        """
        try:
            path = regular_file(pathlib.Path(path).parent, pathlib.Path(path).name)
            check_arrays(path)
            with np.load(path) as arrays:
                parts = {name: arrays[name] for name in cls._fields}
                stored = str(arrays["tokenizers"])
            table, frequent, target_vocab_size = parts.values()
            if [x.ndim for x in parts.values()] != [2, 1, 0] or any(
                x.dtype.kind not in "iu" for x in parts.values()
            ):
                raise ValueError("arrays of another type")
            if any(np.any((x < 0) | (x >= target_vocab_size)) for x in (table, frequent)):
                raise ValueError("tokens outside of the vocabulary")
        except FileNotFoundError:
            raise InputError(
                f"Expected a lexicon, from which shortlists are made. Received: {path}, which does "
                "not exist. Make it with `keras-transformer lexicon RUN`, or set shortlist to 0."
            ) from None
        except Exception as error:  # a damaged file raises errors of zipfile, zlib and NumPy
            raise InputError(
                f"Expected a lexicon. Received: {path}, which is damaged ({error}). Make it again "
                "with `keras-transformer lexicon RUN`."
            ) from None
        if stored != tokenizers:
            raise InputError(
                f"Expected the lexicon of the run's tokenizers. Received: {path}, made with "
                "others. Make it again with `keras-transformer lexicon RUN`."
            )
        return cls(table, frequent, int(target_vocab_size))


def align(source_rows: Sequence[Any], target_rows: Sequence[Any]) -> list[np.ndarray]:
    """Returns which tokens of each pair translate one another, int arrays `(L, 2)` of their places.

    A link joins a source and a target token that are each other's best by t(target | source)
    t(source | target) exp(-4 |s/S - t/T|): by IBM Model 1 in both directions, as in
    `Lexicon.learn`, and by the preference for the diagonal of fast_align (Dyer et al., 2013,
    section 2, https://aclanthology.org/N13-1073). Other tokens have no link.

    Args:
        source_rows, target_rows: as in `Lexicon.learn`. Links are found in all pairs.
    """
    sources, targets, probabilities = _model_1(source_rows, target_rows)
    num_targets = 1 + int(np.concatenate(target_rows).max())
    keys = sources * num_targets + targets
    targets, sources, backwards = _model_1(target_rows, source_rows)
    scores = probabilities * backwards[np.argsort(sources * num_targets + targets)]
    found = []
    for chunk_sources, chunk_targets in _chunks(source_rows, target_rows, every=1):
        links, _ = _links(chunk_sources, chunk_targets, num_targets)
        entry = np.minimum(np.searchsorted(keys, links), len(keys) - 1)
        flat = np.where(keys[entry] == links, scores[entry], 0.0)
        begin = 0
        for source, target in zip(chunk_sources, chunk_targets, strict=True):
            end = begin + len(source) * len(target)
            found.append(_mutual_best(flat[begin:end].reshape(len(target), len(source))))
            begin = end
    return found


def _mutual_best(scores):
    """Returns the links `(L, 2)` of one pair, from the scores `(T, S)`."""
    target, source = (np.arange(size) / size for size in scores.shape)
    scores = scores * np.exp(-DIAGONAL_TENSION * np.abs(target[:, None] - source))
    best, places = scores.argmax(axis=1), np.arange(len(scores))
    is_mutual = (scores.argmax(axis=0)[best] == places) & (scores[places, best] > 0)
    return np.stack([best[is_mutual], places[is_mutual]], axis=1)


def load_lexicon(path: StrPath) -> Lexicon:
    """Returns the lexicon of a run; raises `InputError` if there is none for its tokenizers."""
    run = Run(path)
    tokenizers = run.load_tokenizers(run.load_config())
    lexicon = Lexicon.load(run.lexicon_path, checksum_of_tokenizers(tokenizers))
    sizes = len(lexicon.table), lexicon.target_vocab_size
    expected = tuple(tokenizer.vocab_size for tokenizer in tokenizers)
    if sizes != expected:
        raise InputError(
            f"Expected a lexicon of {expected} tokens, as the tokenizers have. Received: "
            f"{run.lexicon_path}, of {sizes}. Make it again with `keras-transformer lexicon RUN`."
        )
    return lexicon


def _model_1(source_rows, target_rows):
    """Returns the entries of the lexicon and their probabilities: three arrays `(E,)`.

    Returns:
        Source tokens in ascending order, target tokens, t(target | source).
    """
    chunks = _chunks(source_rows, target_rows)
    num_targets = 1 + int(np.concatenate(target_rows).max())
    keys = np.unique(
        np.concatenate([np.unique(_links(*chunk, num_targets)[0]) for chunk in chunks])
    )
    entries = [  # of each link, chunk by chunk
        np.searchsorted(keys, _links(*chunk, num_targets)[0]).astype("int32") for chunk in chunks
    ]
    sources, targets = np.divmod(keys, num_targets)
    probabilities = np.ones(len(keys))
    for _ in range(NUM_ITERATIONS):
        counts = np.zeros(len(keys))
        for chunk, entry in zip(chunks, entries, strict=True):
            _, places = _links(*chunk, num_targets)
            shares = probabilities[entry]
            shares /= np.bincount(places, shares)[places]
            counts += np.bincount(entry, shares, len(keys))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return sources, targets, probabilities


def _chunks(source_rows, target_rows, every=None):
    """Returns a list of pairs of lists of rows, with about `CHUNK_LINKS` links in each.

    Args:
        every: n, of which only every n-th pair is taken; None: so that there are `MAX_LINKS`.
    """
    num_links = [len(s) * len(t) for s, t in zip(source_rows, target_rows, strict=True)]
    every = every or max(1, -(-sum(num_links) // MAX_LINKS))
    ends = np.cumsum(num_links[::every])
    number = max(1, -(-int(ends[-1]) // CHUNK_LINKS))
    bounds = np.searchsorted(ends, np.arange(1, number) * CHUNK_LINKS)
    starts = [0, *bounds, len(ends)]
    return [
        (source_rows[::every][start:end], target_rows[::every][start:end])
        for start, end in itertools.pairwise(starts)
        if start < end
    ]


def _links(source_rows, target_rows, num_targets):
    """Returns every combination of a source token and a target token within a pair, its links.

    Returns:
        `(keys, places)`, each `(L,)`: source token * num_targets + target token; and the number of
        the target token among all target tokens of the rows.
    """
    source_lengths = np.array([len(row) for row in source_rows])
    target_lengths = np.array([len(row) for row in target_rows])
    sources = np.concatenate(source_rows).astype("int64")
    targets = np.concatenate(target_rows).astype("int64")
    pairs = np.repeat(np.arange(len(target_lengths)), target_lengths)  # of each target token
    num_links = source_lengths[pairs]  # of each target token
    places = np.repeat(np.arange(len(targets)), num_links)
    starts = np.cumsum(source_lengths) - source_lengths
    first_links = np.cumsum(num_links) - num_links
    within = np.arange(len(places)) - first_links[places]  # the place of the source in its sentence
    sources = sources[starts[pairs][places] + within]
    return sources * num_targets + targets[places], places
