"""The terms that outputs must and must not contain, as arrays for a search.

Shapes: B batch (inputs), V vocabulary, C terms, F forms of a term, K tokens of a form, G forbidden
forms.
"""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.decoding.processors.terms import Terms
from keras_transformer.types import Tensor


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
