"""Outputs that must contain some terms, and must not contain others.

Shapes: B batch (inputs), N hypotheses of each input, L positions, V vocabulary, C terms, F forms of
a term, K tokens of a form, G forbidden forms, M candidates.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.types import Tensor


class Terms:
    """Lets no output end before it contains a form of each of its terms, nor a forbidden form.

    A form is a sequence of tokens, and stands in an output where no letter or digit follows it: the
    tokens of "Hund" are not in "Hunde". Beam search would hardly find the terms by itself, so
    `allocate` divides its hypotheses among those that have many and few of the terms' tokens. This
    is dynamic beam allocation (Post and Vilar, 2018, section 4, https://arxiv.org/abs/1804.06609)
    in the form of Hu et al. (2019, section 3.1, https://aclanthology.org/N19-1090/), whose sort by
    groups needs no loop. Two things are not in these papers: a term may have several forms, of
    which one is enough; and in each step the best output that may end takes a place, so that there
    is an answer with all terms as soon as any hypothesis has them.

    What is met is read off the tokens in each step, so that nothing needs to follow the beam.

    Args:
        end_id: the id of the end token.
        ends_word: `(V,)` bool, whether a word is over when this token follows it.
        forms, sizes, forbidden, forbidden_sizes: see `TermRows.arrays`.
    """

    def __init__(
        self,
        end_id: int,
        ends_word: Tensor,
        forms: Tensor,
        sizes: Tensor,
        forbidden: Tensor,
        forbidden_sizes: Tensor,
    ) -> None:
        self.end_id = end_id
        self.ends_word = ends_word
        self.memory = forms, sizes, forbidden, forbidden_sizes

    def __call__(
        self,
        log_probs: Tensor,
        ids: Tensor,
        lengths: Tensor,
        forms: Tensor,
        sizes: Tensor,
        forbidden: Tensor,
        forbidden_sizes: Tensor,
    ) -> Tensor:
        inside, at_end = self._found(ids, lengths, forms, sizes)
        is_missing = ops.any(ops.any(sizes > 0, axis=-1)[:, None] & ~(inside | at_end), axis=-1)
        is_end = ops.equal(ops.arange(ops.shape(log_probs)[-1]), self.end_id)
        _, at_end = self._found(ids, lengths, forbidden[:, None], forbidden_sizes[:, None])
        is_complete = at_end[..., 0]  # a forbidden form; the word must go on
        is_forbidden = is_missing[..., None] & is_end
        is_forbidden = is_forbidden | (is_complete[..., None] & self.ends_word)
        return ops.where(is_forbidden, IMPOSSIBLE, log_probs)

    def allocate(
        self,
        continuations: tuple[Tensor, Tensor, Tensor],
        log_probs: Tensor,
        ids: Tensor,
        lengths: Tensor,
        forms: Tensor,
        sizes: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns other continuations, of which some have many and some have few tokens of terms.

        Candidates are the continuations, and for each hypothesis its best one, its end, and those
        by the next token of each form. They are grouped by how many tokens of their terms they
        have; those that end are the last group. The best of each group are taken first, from the
        last group to the first, then the second best of each group, and so on.

        Args:
            continuations: log-probabilities, parents and tokens, each `(B, N)`, see
                `best_continuations`.
            log_probs: `(B, N, V)`, of each continuation, with that of its hypothesis.
            ids, lengths, forms, sizes: see the call.
        """
        num_hypotheses, vocab_size = log_probs.shape[1], ops.shape(log_probs)[-1]
        num_each = ops.shape(sizes)[1] * ops.shape(sizes)[2]  # C F
        inside, at_end = self._found(ids, lengths, forms, sizes)  # (B, N, C)
        progress = _progress(ids, lengths, forms, sizes)  # (B, N, C, F)
        next_tokens = ops.take_along_axis(forms[:, None], progress[..., None], axis=-1)[..., 0]
        is_open = (sizes > 0)[:, None] & ~(inside | at_end)[..., None]

        tokens = ops.reshape(ops.where(is_open, next_tokens, 0), (-1, num_hypotheses, num_each))
        values = ops.take_along_axis(log_probs, tokens, axis=-1)
        values = ops.where(ops.reshape(is_open, ops.shape(tokens)), values, IMPOSSIBLE)
        best = ops.cast(ops.argmax(log_probs, axis=-1), "int32")[..., None]  # (B, N, 1)
        best = ops.concatenate([best, ops.full_like(best, self.end_id)], axis=-1)
        tokens = ops.concatenate([best, tokens], axis=-1)
        values = ops.concatenate([ops.take_along_axis(log_probs, best, axis=-1), values], axis=-1)
        own = ops.arange(num_hypotheses, dtype="int32")[:, None]
        parents = ops.broadcast_to(own, ops.shape(tokens))
        num_more = num_hypotheses * (num_each + 2)
        more = (ops.reshape(x, (-1, num_more)) for x in (values, parents, tokens))
        pairs = zip(continuations, more, strict=True)
        values, parents, tokens = (ops.concatenate(pair, axis=1) for pair in pairs)  # (B, M)

        places = ops.arange(ops.shape(tokens)[1], dtype="int32")
        is_earlier = places[:, None] > places  # (M, M)
        names = parents * vocab_size + tokens
        is_same = ops.equal(names[:, :, None], names[:, None])
        values = ops.where(ops.any(is_same & is_earlier, axis=-1), IMPOSSIBLE, values)

        inside, at_end, progress = (
            backend.batch_gather(x, parents) for x in (inside, at_end, progress)
        )
        is_met = inside | (at_end & ops.take(self.ends_word, tokens, axis=0)[..., None])
        group, last_group = _num_tokens(is_met, progress, tokens, forms, sizes)
        group = ops.where(ops.equal(tokens, self.end_id), last_group, group)
        is_better = (values[:, None] > values[:, :, None]) | (
            ops.equal(values[:, None], values[:, :, None]) & is_earlier
        )
        is_rival = is_better & ops.equal(group[:, None], group[:, :, None])
        rank = ops.sum(ops.cast(is_rival, "int32"), axis=-1)
        order = rank * (last_group + 1) - group
        order = ops.where(values > IMPOSSIBLE / 2, order, 2**30)
        _, chosen = ops.top_k(-order, num_hypotheses)
        chosen = ops.cast(chosen, "int32")
        values, parents, tokens = (
            backend.batch_gather(x, chosen) for x in (values, parents, tokens)
        )
        return values, parents, tokens

    def _found(self, ids, lengths, forms, sizes):
        """Returns `(B, N, C)` bool: whether a form of each term stands before a token, or last."""
        num_positions, size = ops.shape(ids)[-1], ops.shape(forms)[-1]
        starts = ops.arange(num_positions, dtype="int32")  # (L,)
        places = starts[:, None] + ops.arange(size, dtype="int32")  # (L, K)
        read = ops.minimum(places, num_positions - 1)
        windows = ops.take(ids, read, axis=-1)[:, :, None, None]  # (B, N, 1, 1, L, K)
        is_beyond = ops.arange(size, dtype="int32") >= sizes[..., None]  # (B, C, F, K)
        is_same = ops.equal(windows, forms[:, None, :, :, None]) | is_beyond[:, None, :, :, None]
        ends = starts + sizes[:, None, ..., None]  # (B, 1, C, F, L)
        ended = lengths[..., None, None, None]
        is_there = ops.all(is_same, axis=-1) & (sizes > 0)[:, None, ..., None] & (ends <= ended)
        follows = ops.take(ids, ops.minimum(starts + 1, num_positions - 1), axis=-1)
        next_ends_word = ops.take(self.ends_word, follows, axis=0)  # (B, N, L): after each position
        last = ops.broadcast_to(ends - 1, ops.shape(is_there))
        last = ops.clip(last, 0, num_positions - 1)
        is_over = ops.take_along_axis(next_ends_word[:, :, None, None], last, axis=-1)
        inside = ops.any(ops.any(is_there & is_over & (ends < ended), axis=-1), axis=-1)
        at_end = ops.any(ops.any(is_there & ops.equal(ends, ended), axis=-1), axis=-1)
        return inside, at_end


def _progress(ids, lengths, forms, sizes):
    """Returns `(B, N, C, F)` int32: with how many of its first tokens of a form an output ends."""
    size = ops.shape(forms)[-1]
    counts = ops.arange(size, dtype="int32")  # (K,): of tokens of the form
    places = lengths[..., None, None] - counts[:, None] + counts  # (B, 1, K, K)
    read = ops.clip(places, 0, ops.shape(ids)[-1] - 1)
    read = ops.broadcast_to(read, (*ops.shape(ids)[:2], size, size))
    flat = ops.reshape(read, (*ops.shape(ids)[:2], size * size))
    last = ops.reshape(ops.take_along_axis(ids, flat, axis=-1), ops.shape(read))
    is_same = ops.equal(last[:, :, None, None], forms[:, None, :, :, None])  # (B, N, C, F, K, K)
    is_same = is_same | (counts >= counts[:, None])  # beyond the tokens that are compared
    is_whole = ops.all(is_same, axis=-1) & (counts < sizes[..., None])[:, None]
    is_whole = is_whole & (counts <= lengths[..., None, None, None])
    return ops.max(ops.where(is_whole, counts, 0), axis=-1)


def _num_tokens(is_met, progress, tokens, forms, sizes):
    """Returns how many tokens of its terms each candidate has, `(B, M)`, and a number above all.

    Args:
        is_met: `(B, M, C)`, whether its hypothesis has a term, also with its last token.
        progress: `(B, M, C, F)`, of its hypothesis.
        tokens: `(B, M)`.
    """
    tokens = tokens[..., None, None]
    next_tokens = ops.take_along_axis(forms[:, None], progress[..., None], axis=-1)[..., 0]
    begins = ops.cast(ops.equal(tokens, forms[:, None, :, :, 0]), "int32")
    grown = ops.where(ops.equal(tokens, next_tokens), progress + 1, begins)
    whole = ops.max(sizes, axis=-1)  # (B, C): as many for each form
    grown = ops.where(ops.equal(grown, sizes[:, None]), whole[:, None, :, None], grown)
    grown = ops.where((sizes > 0)[:, None], grown, 0)
    each = ops.where(is_met, whole[:, None], ops.max(grown, axis=-1))
    return ops.sum(each, axis=-1), ops.sum(whole, axis=-1)[:, None] + 1


class TermVocabulary:
    """What a search for terms knows of the vocabulary.

    Args:
        surfaces: list of bytes, see `Tokenizer.surfaces`.
        vocab_size: V, at least their number.
        end_id: the id of the end token.
    """

    NUM_ARRAYS = 4
    BEAM_SIZE = 8

    def __init__(self, surfaces: Sequence[bytes], vocab_size: int, end_id: int) -> None:
        self.end_id = end_id
        first = [surface.decode("utf-8", "replace")[:1] for surface in surfaces]
        self._ends_word = np.ones(vocab_size, "bool")
        # a token of broken UTF-8, one byte of a character, may be of a letter
        self._ends_word[: len(first)] = [not (c.isalnum() or c in "_\ufffd" and c) for c in first]

    def options(self, *arrays: Tensor) -> tuple[dict[str, Tensor], Terms]:
        """Returns nothing to begin with, and the processor of a batch; takes `TermRows.arrays`."""
        return {}, Terms(self.end_id, ops.convert_to_tensor(self._ends_word), *arrays)


class TermRows:
    """The terms of a list of inputs.

    Args:
        vocabulary: `TermVocabulary`.
        rows: for each input a pair: of its terms, of which each is a list of forms, and one of them
            must be in the output; and of forms that must not be in it. Forms are lists of ids.
    """

    def __init__(
        self,
        vocabulary: TermVocabulary,
        rows: Sequence[tuple[list[list[list[int]]], list[list[int]]]],
    ) -> None:
        self.vocabulary = vocabulary
        self._rows = rows

    def arrays(self, indices: Sequence[int], num_rows: int) -> tuple[np.ndarray, ...]:
        """Returns the terms of a batch as NumPy arrays.

        Args:
            indices: numbers of its inputs.
            num_rows: B, at least their number; the others have no terms.
        Returns:
            `(forms, sizes, forbidden, forbidden_sizes)`, int32: `(B, C, F, K)`, `(B, C, F)`,
            `(B, G, K)` and `(B, G)`; the size of a form is 0 where there is none. C, F, K and G are
            powers of two, as JAX compiles for each shape.
        """
        rows = [self._rows[i] for i in indices]
        groups = [forms for terms, others in rows for forms in (*terms, others)]
        num_tokens = _rounded(len(form) for forms in groups for form in forms)
        num_terms = _rounded(len(terms) for terms, _ in rows)
        num_forms = _rounded(len(forms) for terms, _ in rows for forms in terms)
        forms = np.zeros((num_rows, num_terms, num_forms, num_tokens), "int32")
        num_forbidden = _rounded(len(others) for _, others in rows)
        forbidden = np.zeros((num_rows, num_forbidden, num_tokens), "int32")
        sizes, forbidden_sizes = (np.zeros(x.shape[:-1], "int32") for x in (forms, forbidden))
        for b, (terms, others) in enumerate(rows):
            for c, term in enumerate(terms):
                _fill(forms[b, c], sizes[b, c], term)
            _fill(forbidden[b], forbidden_sizes[b], others)
        return forms, sizes, forbidden, forbidden_sizes


def _fill(ids, sizes, forms):
    for f, form in enumerate(forms):
        ids[f, : len(form)], sizes[f] = form, len(form)


def _rounded(sizes):
    """Returns the largest of some sizes, rounded up to a power of two; 1 if there is none."""
    return 2 ** (max(1, *sizes, 1) - 1).bit_length()
