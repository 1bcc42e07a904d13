"""A shortlist: the tokens of which the output for an input may consist, instead of all tokens.

Shapes: B batch (inputs), M candidates, V vocabulary, C tokens in any shortlist of the batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding.candidates import BLOCK_SIZE, MIN_BLOCKS
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.decoding.processors import has_token
from keras_transformer.layers import DecodingState
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.types import Self, Tensor

NUM_SPECIAL = END_ID + 1


class Shortlist(NamedTuple):
    """The tokens that may be chosen for each input of a batch.

    A search with a shortlist works with places in `ids` instead of ids. The special ids 0 to 3 are
    in every shortlist, and in the places 0 to 3, so that they mean the same there. The output layer
    computes the logits of all tokens in `ids`; those that are not in an input's own shortlist are
    impossible for it, so that its answer does not depend on its neighbours.
    """

    ids: Any
    """`(C,)` int32, the tokens in ascending order, padded with 0 at the end."""

    bias: Any
    """`(B, C)` float32, what is added to the logits of an input: 0, or `IMPOSSIBLE`."""

    @classmethod
    def of(cls, candidates: Tensor, vocab_size: int) -> Self:
        """Returns the shortlists that consist of the special ids and of `candidates`.

        On JAX, whose shapes must not depend on values, C is V, and the search is not faster.

        Args:
            candidates: `(B, M)` int32, in any order, also repeatedly; 0 is no candidate.
            vocab_size: V.
        """
        ids = ops.arange(vocab_size, dtype="int32")
        is_in = has_token(candidates[:, None], True, vocab_size)[:, 0] | (ids < NUM_SPECIAL)
        no_bias = ops.zeros((), "float32")  # two Python numbers would have the dtype of floatx
        if keras.backend.backend() == "jax":
            return cls(ids, ops.where(is_in, no_bias, IMPOSSIBLE))
        (ids,) = ops.nonzero(ops.any(is_in, axis=0) | (ids < NUM_SPECIAL))  # also without inputs
        ids = ops.cast(ids, "int32")
        bias = ops.where(ops.take(is_in, ids, axis=1), no_bias, IMPOSSIBLE)
        # whole blocks, as many as `best_continuations` expects
        missing = ops.maximum(
            MIN_BLOCKS * BLOCK_SIZE - ops.shape(ids)[0], -ops.shape(ids)[0] % BLOCK_SIZE
        )
        padding = ops.full((missing,), PAD_ID, dtype="int32")
        padding_bias = ops.full((ops.shape(bias)[0], missing), IMPOSSIBLE, dtype="float32")
        ids = ops.concatenate([ids, padding])
        return cls(ids, ops.concatenate([bias, padding_bias], axis=1))

    def restrict(self, step_fn: Callable[..., Any], state: Any) -> tuple[Any, DecodingState]:
        """Returns the step function and the state of a search that chooses from the shortlists.

        Args:
            step_fn: function of the previous ids, the step and the state, whose logits `(B, N, C)`
                are those of `ids`.
            state: `DecodingState` before the first step.
        """

        def restricted_step_fn(places, step, state):
            memory, bias = state.memory
            inner = DecodingState(state.cache, memory)
            logits, inner = step_fn(self.tokens(places), step, inner)
            return logits + bias[:, None], state._replace(cache=inner.cache)

        # a search may drop inputs, so their rows of the bias belong to its memory
        return restricted_step_fn, DecodingState(state.cache, (state.memory, self.bias))

    def tokens(self, places: Tensor) -> Tensor:
        """Returns the ids at `places`, int32 of the same shape."""
        return backend.take_rows(self.ids, places)
