"""The translator: a model and its tokenizers, from strings to strings.

Shapes: B batch (texts), N hypotheses of each text, S source length, T target length, H heads.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.backend.parallel_calls import parallel_calls
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import BatchSearch, SearchTree, score, search_tree
from keras_transformer.decoding.batch_search import check_scores, length_batches, padded_rows
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.prefixes import PrefixVocabulary
from keras_transformer.decoding.processors import Processor
from keras_transformer.decoding.sampling import check_sampling
from keras_transformer.decoding.search import search_arguments
from keras_transformer.decoding.terms import TermRows, TermVocabulary
from keras_transformer.errors import InputError, check_positive_integers, check_seed
from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.translation_model import TranslationModel
from keras_transformer.special_ids import END_ID, PAD_ID, shift_right
from keras_transformer.translation.base_translator import (
    BaseTranslator,
    Translation,
    list_of_texts,
    lists_of_pairs,
)
from keras_transformer.translation.begun_texts import BegunTexts
from keras_transformer.translation.explanation import (
    Explanation,
    alignment_of,
    explain_tokens,
    force,
    token_log_probs,
)
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.terminology import Terminology
from keras_transformer.types import Texts

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer


MAX_LOGITS = 2**26
"""Logits that are computed at once for scores: 256 MiB of float32."""


class AttentionMap(NamedTuple):
    """The attention weights of one translation, and the tokens that label rows and columns."""

    source_pieces: list[str]
    """S strings: the tokens that the encoder reads, including the end token."""
    target_pieces: list[str]
    """T strings: the token predicted at each decoder position, including the end token."""
    target_inputs: list[str]
    """T strings: the token read at each decoder position, the start token first."""
    weights: dict[str, np.ndarray]
    """NumPy float32: `"encoder"` `(layers, H, S, S)`, `"decoder"` `(layers, H, T, T)` and `"cross"`
    `(layers, H, T, S)`; those that the model does not have are left out: of linear attention, of
    self-attention in a recurrent model."""
    truncated: bool = False
    """Whether the text was cut, or the translation was cut or stopped at its limit."""


class Translator(BaseTranslator):
    """Translates text with a model, a `Transformer` or `RnnSeq2Seq`, and its tokenizers.

    On TensorFlow, without a GPU, each core of the machine translates a batch of its own. If weights
    change, in training for example, the next call uses the new ones. A text that is blank, or of
    which the tokenizer knows nothing, such as `-` without such a token, never reaches the model:
    its translation is a copy, with score 0.

    Args:
        model: `TranslationModel`, such as `Transformer`, or an `Ensemble` of several.
        tokenizer: tokenizer of the source, and of the target if `target_tokenizer` is None.
        target_tokenizer: tokenizer of the target, or None.
        decoding: `DecodingConfig`; None: the default one. Its lengths are at most those of the
            model's learned positions.
        batch_size: maximum number of texts that are decoded together.
        lexicon: `Lexicon`, for the shortlists that `decoding.shortlist` asks for; None without one.
        processors: functions that steer the search, see `decoding.processors`, beside those that
            `decoding` asks for. With a shortlist, they see places in it instead of ids.
        alignment_head: `(layer, head)` of the attention to the source, each from 0, that aligns
            words; None: the mean of the heads that align best without training for it, see
            `layers.decoder.alignment_layer`.
    Raises:
        ValueError: a tokenizer has more tokens than the model has embeddings, a batch_size below 1,
            a shortlist without a lexicon, or a head that is not there; in a call, scores that are
            not finite.

    Example:
        Translator(model, tokenizer)(["A dog runs."])
    """

    can_be_steered = True

    def __init__(
        self,
        model: TranslationModel | Ensemble,
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        decoding: DecodingConfig | None = None,
        batch_size: int = 64,
        lexicon: Lexicon | None = None,
        processors: Sequence[Processor] = (),
        alignment_head: tuple[int, int] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.decoding = _within_positions(decoding or DecodingConfig(), model)
        self.n_best = self.decoding.beam_size
        self.lexicon = lexicon
        self.processors = tuple(processors)
        self.alignment_head = _checked_head(alignment_head, model)
        shortlist = self._checked_shortlist()
        self._batch_search = BatchSearch(
            model, self.decoding, batch_size, shortlist, self.processors
        )
        self._check_vocabulary("source", self.tokenizer, model.source_vocab_size)
        self._check_vocabulary("target", self.target_tokenizer, model.output_vocab_size)
        if not model.built:
            model.build()

    def checksum(self) -> str:
        mean = getattr(self.model, "mean", None)  # of an ensemble
        options = self.decoding, self.lexicon is not None, mean, self.alignment_head
        found = hashlib.sha256(repr(options).encode())
        for tokenizer in (self.tokenizer, self.target_tokenizer):
            found.update(tokenizer.serialized)
        for variable in self.model.weights:
            found.update(np.ascontiguousarray(ops.convert_to_numpy(variable)).tobytes())
        if self.lexicon is not None:
            found.update(np.ascontiguousarray(self.lexicon.table).tobytes())
        return found.hexdigest()

    @property
    def batch_size(self) -> int:
        """Maximum number of texts that are decoded together."""
        return self._batch_search.batch_size

    def __reduce__(self):
        """For `pickle` and `copy`: the arguments; the copy compiles its searches again."""
        tokenizers = self.tokenizer, self.target_tokenizer
        search = self.decoding, self.batch_size, self.lexicon, self.processors
        return type(self), (self.model, *tokenizers, *search, self.alignment_head)

    def _limit_of_n_best(self):
        return f"beam_size={self.n_best}. Search with a wider beam."

    def _threads(self):
        return parallel_calls(backend.num_search_threads())

    def _submit(self, n_best, terms, submit, texts, prefixes):
        texts = list_of_texts(texts)
        begun = None if prefixes is None else self._begun(prefixes)
        rows, copies = self._encode_sources(texts)
        # several hypotheses may have the same text
        num_hypotheses = self.decoding.beam_size if n_best > 1 else 1
        of_prefixes = [] if begun is None else [begun.searched]
        ways = []
        if terms is not None:
            steered = self._term_rows(terms, texts, prefixes or [""] * len(texts))
            both = [*of_prefixes, TermRows(self.term_vocabulary, steered)]
            ways.append((list(map(any, steered)), both))
        if begun is not None:
            ways.append((prefixes, of_prefixes))
        batches = []
        for some, steering in _by_steering(rows, ways):
            batches += self._batch_search.submit_search(submit, some, num_hypotheses, steering)

        def answers():
            answers = []
            for translations in self._translations(texts, copies, batches, begun):
                distinct = {}  # the first of each text is its best
                for translation in translations:
                    distinct.setdefault(translation.text, translation)
                answers.append([*distinct.values()][:n_best])
            return answers

        return answers

    def _begun(self, prefixes):
        """Returns the `BegunTexts` of the prefixes of some texts, None if all are empty."""
        if not any(prefixes):
            return None
        longest = self.model.longest_text(self.decoding.max_length)
        return BegunTexts(self.target_tokenizer, self.prefix_vocabulary, prefixes, longest)

    def _term_rows(self, terms, texts, prefixes):
        terminology = Terminology.of(terms)
        ids = terminology.ids_of_forms(self.target_tokenizer)
        pairs = zip(texts, prefixes, strict=True)
        return [terminology.row(ids, text, prefix) for text, prefix in pairs]

    @functools.cached_property
    def term_vocabulary(self) -> TermVocabulary:
        """What a search for terms knows of the tokens of the target."""
        size = self.model.output_vocab_size
        return TermVocabulary(self.target_tokenizer.surfaces, size, END_ID)

    @functools.cached_property
    def prefix_vocabulary(self) -> PrefixVocabulary:
        """What a search with prefixes knows of the tokens of the target."""
        return PrefixVocabulary(self.target_tokenizer.surfaces, self.model.output_vocab_size)

    def sample(
        self,
        texts: Texts,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """Returns a random translation of each text.

        Args:
            texts: list of str.
            temperature, top_k, top_p: see `decoding.sample`.
            seed: int from 0; it decides the translation of a text together with its place in the
                list, whatever the other texts are.
        """
        (answers,) = self.sample_chunks([texts], 1, temperature, top_k, top_p, seed)
        return [drawn.text for (drawn,) in answers]

    def sample_chunks(
        self,
        chunks: Iterable[Texts],
        num_samples: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        prefixes: str | Iterable[str] | None = None,
        read_ahead: bool = True,
        first: int = 0,
        on_batch: Callable[[float], None] | None = None,
    ) -> Iterator[list[list[Translation]]]:
        """Yields random translations of each text of each chunk, as `translate_chunks` does.

        Args:
            chunks, prefixes, read_ahead, on_batch: see `translate_chunks`; a sample is a share of
                its text.
            num_samples: translations of each text; some may have the same text.
            temperature, top_k, top_p: see `decoding.sample`.
            seed: int from 0; it decides the translations of a text together with its place in all
                chunks.
            first: the place of the first text, where others came before these chunks.
        """
        check_positive_integers(num_samples=num_samples)
        check_seed(seed)
        check_sampling(temperature, top_k, top_p)
        options = temperature, top_k, top_p
        draws = ((seed, place) for place in itertools.count(first * num_samples))
        begin = functools.partial(self._submit_samples, num_samples, options, draws)
        told = on_batch and (lambda number: on_batch(number / num_samples))
        yield from self._in_chunks(begin, chunks, prefixes, read_ahead, told)

    def _submit_samples(self, num_samples, options, draws, submit, texts, prefixes):
        texts = [text for text in list_of_texts(texts) for _ in range(num_samples)]
        begun = None
        if prefixes is not None:
            prefixes = [prefix for prefix in prefixes for _ in range(num_samples)]
            begun = self._begun(prefixes)
        rows, copies = self._encode_sources(texts)
        draws = list(itertools.islice(draws, len(rows)))
        batches = []
        ways = [] if begun is None else [(prefixes, [begun.searched])]
        for some, steering in _by_steering(rows, ways):
            batches += self._batch_search.submit_samples(submit, some, draws, *options, steering)

        def answers():
            drawn = self._translations(texts, copies, batches, begun)
            flat = itertools.chain.from_iterable(drawn)
            return [list(itertools.islice(flat, num_samples)) for _ in copies[::num_samples]]

        return answers

    def score(self, sources: Texts, targets: Texts) -> np.ndarray:
        """Returns the score that a search would give to the translations `targets`.

        Args:
            sources, targets: lists of str of the same length. Targets are cut at `max_length`
                tokens.
        Returns:
            NumPy float32 `(len(sources),)`; 0 for a source that is copied.
        """
        sources, targets = lists_of_pairs(sources, targets)

        def give_score(source_ids, labels):
            inputs = {"source_ids": source_ids, "target_ids": shift_right(labels, ops)}
            logits = self.model(inputs, training=False)
            normalization = self.decoding.length_penalty, self.decoding.length_normalization
            return [score(logits, labels, *normalization)]

        scores = np.zeros(len(sources), "float32")
        for batch, _, (found,) in self._forced("score", give_score, sources, targets):
            scores[batch] = found
            check_scores(scores[batch], [sources[i] for i in batch])
        return scores

    def _explain(self, sources, targets):
        def look(source_ids, labels):
            logits, weights = force(self.model, source_ids, labels)
            log_probs = token_log_probs(logits, labels)
            looks = [alignment_of(weights, self.alignment_head)] if weights else []
            return [log_probs, *looks]

        surfaces = self.tokenizer.surfaces, self.target_tokenizer.surfaces
        explained = [Explanation([], []) for _ in sources]
        for batch, rows, (log_probs, *weights) in self._forced("explain", look, sources, targets):
            for place, (i, sides) in enumerate(zip(batch, rows, strict=True)):
                looks = weights[0][place] if weights else None
                source, target = zip(surfaces, sides, strict=True)
                explained[i] = explain_tokens(source, target, log_probs[place], looks)
        return explained

    def _forced(self, key, compute, sources, targets):
        """Yields what the model computes of pairs of texts: indices, their ids, and NumPy arrays.

        Args:
            key: for the compiled function.
            compute: function of source ids and labels that returns a list of tensors `(B, ...)`.
        """
        compiled = self._batch_search.compiled(key, compute)
        source_rows, _ = self._encode_sources(sources)
        target_rows, _ = self._encode_targets(targets)
        longest = self.model.longest_input
        for batch in self._score_batches(source_rows, target_rows):
            rows = [(source_rows[i], target_rows[i]) for i in batch]
            sides = (padded_rows(side, longest=longest) for side in zip(*rows, strict=True))
            found = compiled(*sides)
            yield batch, rows, [ops.convert_to_numpy(x)[: len(batch)] for x in found]

    def _score_batches(self, source_rows, target_rows):
        """Yields lists of indices, of so few rows that their logits fit into memory."""
        for batch in length_batches([len(row) for row in source_rows], self.batch_size):
            longest = max(len(target_rows[i]) for i in batch)
            size = max(1, MAX_LOGITS // (longest * self.model.output_vocab_size))
            yield from (batch[i : i + size] for i in range(0, len(batch), size))

    def attention(self, text: str, target: str | None = None) -> AttentionMap:
        """Returns the attention weights of all layers and heads, as an `AttentionMap`.

        Args:
            text: str.
            target: str, the translation to look at; None: the best one that the search finds.
        Raises:
            ValueError: a text that is copied.
        """
        source_row, truncated = self._encode_one(text)
        if target is None:
            ((_, found),) = self._batch_search.search([source_row])
            check_scores(found.scores[:, 0], [text])
            labels = found.ids[0, 0]
            labels = labels[labels != PAD_ID]
            is_whole = found.finished[0, 0]
        else:
            (labels,), (is_cut,) = self._encode_targets([target])
            is_whole = not is_cut
        target_ids = shift_right(labels[None], np)[0]
        _, weights = self.model(
            {"source_ids": source_row[None], "target_ids": target_ids[None]},
            return_attention_weights=True,
            training=False,
        )
        return AttentionMap(
            self.tokenizer.to_pieces(source_row),
            self.target_tokenizer.to_pieces(labels),
            self.target_tokenizer.to_pieces(target_ids),
            {  # each tensor is (1, H, T, S)
                name: np.concatenate([ops.convert_to_numpy(ops.cast(w, "float32")) for w in layers])
                for name, layers in weights.items()
            },
            bool(truncated or not is_whole),
        )

    def search_tree(self, text: str) -> SearchTree:
        """Returns every hypothesis that the beam search for a text has looked at: a `SearchTree`.

        Its tokens are strings. The branch of the answer is the best translation of `translate`.

        Args:
            text: str.
        Raises:
            ValueError: a text that is copied.
        """
        source_row, _ = self._encode_one(text)
        config = self.decoding
        arguments = source_row[None], config.max_length, config.beam_size
        shortlist = self._batch_search.shortlist_of(source_row[None])
        start = self.model.start_decoding(*arguments, shortlist=shortlist)
        options = search_arguments(self.model, config, self.processors)
        options["keep_beam_full"] = config.keep_beam_full
        tree = search_tree(*start, config.beam_size, **options)
        tokens = np.array([node.token for node in tree.nodes], "int32")
        if shortlist is not None:
            tokens = ops.convert_to_numpy(shortlist.tokens(tokens[None]))[0]
        names = self.target_tokenizer.to_pieces(tokens)
        names[0] = ""  # of the root, which has the start token
        nodes = [node._replace(token=name) for node, name in zip(tree.nodes, names, strict=True)]
        return SearchTree(nodes, tree.best)

    def _translations(self, texts, copies, batches, begun):
        """Returns for each text the list of its `Translation`s, the best first.

        Args:
            texts: list of str.
            copies: list of `Translation`, those of texts for which there is no search.
            batches: list of `(indices, function that waits for their SearchResult)`.
            begun: `BegunTexts` of the prefixes; None: without any.
        """
        answers = [[copy] for copy in copies]
        for indices, result in batches:
            ids, scores, _, finished = result()
            check_scores(scores[:, 0], [texts[i] for i in indices])
            if begun is not None:
                ids = begun.with_tokens(ids, indices)
            texts_of_all = self.target_tokenizer.decode_on_host(ids.reshape(-1, ids.shape[-1]))
            decoded = np.array(texts_of_all, object).reshape(scores.shape)  # (B, N)
            for i, *row in zip(indices, decoded, scores, finished, strict=True):
                translations = []
                for text, value, has_ended in zip(*row, strict=True):
                    if value > IMPOSSIBLE / 2:
                        text = text if begun is None else begun.as_given(text, i)
                        is_cut = bool(copies[i].truncated or not has_ended)
                        translations.append(Translation(text, float(value), is_cut))
                answers[i] = translations
        return answers

    def _encode_sources(self, texts):
        """Returns the ids of each text, each ended, and the `Translation` that is a copy of it.

        A text that is copied has no ids.
        """
        longest = self.decoding.max_source_length
        rows, truncated = self.tokenizer.encode_truncated_on_host(texts, longest)
        is_copied, copies = self.tokenizer.copies_on_host(texts, rows)
        found = zip(copies, truncated, strict=True)
        copies = [Translation(copy, 0.0, is_cut) for copy, is_cut in found]
        rows = [[] if copied else row for row, copied in zip(rows, is_copied, strict=True)]
        return [np.array(row, "int32") for row in rows], copies

    def _encode_targets(self, targets):
        """Returns the ids of given translations, each ended, and whether they were cut."""
        longest = self.model.longest_text(self.decoding.max_length)
        rows, truncated = self.target_tokenizer.encode_truncated_on_host(targets, longest)
        return [np.array(row, "int32") for row in rows], truncated

    def _have_unknown(self, texts):
        unknown = frozenset(self.tokenizer.unknown_ids)
        return [not unknown.isdisjoint(row) for row in self.tokenizer.encode_on_host(texts)]

    def _encode_one(self, text):
        """Returns the ids of one text that is not copied, and whether they were cut."""
        (row,), (copy,) = self._encode_sources(list_of_texts([text]))
        if len(row) == 0:
            raise InputError(
                f"Expected a text to look at. Received: text={text!r}. Give one with a word in it "
                "that the tokenizer knows."
            )
        return row, copy.truncated

    def _checked_shortlist(self):
        """Returns the function that gives the shortlists of a batch, None without shortlists."""
        if not self.decoding.shortlist:
            return None
        sizes = self.tokenizer.vocab_size, self.target_tokenizer.vocab_size
        lexicon = self.lexicon
        if lexicon is None or (len(lexicon.table), lexicon.target_vocab_size) != sizes:
            raise InputError(
                "Expected a lexicon of the tokenizers for the shortlists. Received: "
                f"shortlist={self.decoding.shortlist}, lexicon={self.lexicon!r:.40}. Learn one "
                "with Lexicon.learn, or set shortlist to 0."
            )
        return self.lexicon.top(self.decoding.shortlist).shortlist

    @staticmethod
    def _check_vocabulary(side, tokenizer, num_embeddings):
        if tokenizer.vocab_size > num_embeddings:
            raise InputError(
                f"The {side} tokenizer has more tokens than the model has {side} embeddings. "
                f"Received: tokenizer.vocab_size={tokenizer.vocab_size}, "
                f"{side} vocabulary of the model={num_embeddings}. Take the tokenizer that the "
                "model was trained with."
            )


def _checked_head(head, model):
    """Returns a head `(layer, head)` as a tuple, or None; raises `InputError` for another one."""
    if head is None:
        return None
    num_layers, num_heads = model.cross_heads
    layer, number = head
    if not (0 <= layer < num_layers and 0 <= number < num_heads):
        raise InputError(
            f"Expected a head of the attention to the source: of {num_layers} layers and "
            f"{num_heads} heads, each counted from 0. Received: layer {layer}, head {number}. "
            "Choose another, or leave it out."
        )
    return layer, number


def _by_steering(rows, ways):
    """Yields the rows that a way steers and its steering, for each, and then those without any.

    So the translation of a text without a prefix or terms is the same beside texts that have some.

    Args:
        ways: pairs of what each row has, true in the rows that are steered, and of a list of
            `SteeredRows`. A row goes the first way that steers it.
    """
    for given, steering in ways:
        yield [row if has else row[:0] for row, has in zip(rows, given, strict=True)], steering
        rows = [row[:0] if has else row for row, has in zip(rows, given, strict=True)]
    yield rows, []


def _within_positions(decoding, model):
    """Returns `decoding` with lengths for which the model has positions, if it learns them."""
    if model.longest_input is None:
        return decoding
    return dataclasses.replace(
        decoding,
        max_length=min(decoding.max_length, model.longest_input),
        max_source_length=model.longest_text(decoding.max_source_length),
    )
