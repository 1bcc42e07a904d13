"""A shortlist: the tokens of which the output for an input may consist, instead of all tokens.

Shapes: B batch (inputs), M candidates, C tokens of the longest shortlist, N hypotheses of each
input, D d_model.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.decoding.candidates import BLOCK_SIZE, take_entries
from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.types import Self, Tensor

NUM_SPECIAL = END_ID + 1
LARGEST_ID = 2**31 - 1  # stands behind all ids when they are sorted


class Shortlist(NamedTuple):
    """The tokens that may be chosen for each input.

    A search with a shortlist works with places in it, where it otherwise works with ids. The
    special ids 0 to 3 are in every shortlist, in the places 0 to 3, so that they mean the same. An
    input's shortlist depends on nothing but the input, and neither does its answer.
    """

    ids: Any
    """`(B, C)` int32, in ascending order, padded with 0 at the end."""

    bias: Any
    """`(B, C)` float32, what is added to the logits: 0 for tokens, `IMPOSSIBLE` for padding."""

    @classmethod
    def of(cls, candidates: Tensor) -> Self:
        """Returns the shortlists of the special ids and of `candidates`.

        Args:
            candidates: `(B, M)` int32, in any order, also repeatedly; 0 is no candidate.
        """
        special_ids = ops.arange(NUM_SPECIAL, dtype="int32")
        num_inputs = ops.shape(candidates)[0]
        special_ids = ops.broadcast_to(special_ids, (num_inputs, NUM_SPECIAL))
        ids = ops.sort(ops.concatenate([special_ids, candidates], axis=1), axis=1)
        is_new = ops.pad(
            ops.not_equal(ids[:, 1:], ids[:, :-1]), ((0, 0), (1, 0)), constant_values=True
        )
        ids = ops.sort(ops.where(is_new, ids, LARGEST_ID), axis=1)
        if keras.backend.backend() != "jax":  # where shapes do not depend on values
            longest = ops.max(ops.sum(ops.cast(is_new, "int32"), axis=1), initial=0)
            # whole blocks, and two of them, as `best_continuations` expects
            num_blocks = ops.maximum(-(-longest // BLOCK_SIZE), 2)
            padding = ((0, 0), (0, 2 * BLOCK_SIZE))
            ids = ops.pad(ids, padding, constant_values=LARGEST_ID)[:, : num_blocks * BLOCK_SIZE]
        is_padding = ops.equal(ids, LARGEST_ID)
        return cls(
            ids=ops.where(is_padding, PAD_ID, ids),
            bias=ops.where(is_padding, IMPOSSIBLE, ops.zeros_like(ids, dtype="float32")),
        )

    def tokens(self, places: Tensor) -> Tensor:
        """Returns the ids at `places` `(B, ...)`, int32 of the same shape."""
        shape = ops.shape(places)
        return ops.reshape(take_entries(self.ids, ops.reshape(places, (shape[0], -1))), shape)
