"""What models that write tokens have in common: the output layer and the steps of decoding.

Shapes: B batch, D d_model, V vocabulary, N hypotheses of each input (in decoding), C tokens of a
shortlist.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding import DecodingStart, Shortlist
from keras_transformer.models.token_model import TokenModel
from keras_transformer.types import Tensor


class DecoderModel(TokenModel):
    """A decoder and an output layer, whose weights may be those of the decoder's embedding.

    A subclass has the attributes below and the methods `call` and `start_decoding`. Its decoder
    makes its steps as `Decoder` and `RnnDecoder` do.

    Attributes:
        decoder: layer with an `embedding`, a `TokenEmbedding`.
        output_layer: the output layer, from `new_output_layer`; None: the output is tied to the
            embedding.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_layer = None  # not on the class: PyTorch would look there first

    def new_output_layer(self, vocab_size: int) -> keras.layers.Layer:
        """Returns an output layer with weights of its own."""
        return keras.layers.Dense(
            vocab_size, use_bias=False, dtype=self.dtype_policy, name="output_layer"
        )

    def project(self, hidden: Tensor) -> Tensor:
        if self.output_layer is None:
            return self.decoder.embedding.project(hidden)
        return self.output_layer(hidden)

    def output_table(self) -> Tensor:
        if self.output_layer is None:
            return ops.cast(self.decoder.embedding.embeddings, self.compute_dtype)
        return ops.cast(ops.transpose(self.output_layer.kernel), self.compute_dtype)

    def output_columns(self, ids: Tensor) -> Tensor:
        """Returns `(D, C)`, the columns of the output layer for the tokens `ids` `(C,)`."""
        if self.output_layer is None:
            columns = ops.transpose(backend.take_rows(self.decoder.embedding.embeddings, ids))
        else:
            columns = ops.take(self.output_layer.kernel, ids, axis=1)
        return ops.cast(columns, self.compute_dtype)

    # === Step by step ===

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that decoding reads, a dict.

        "output": the output table as `(D, V)`, which makes products with few rows fast; "decoder":
        the result of the decoder's `decoding_weights`. Computing them takes a millisecond, as long
        as two decoding steps with one sentence.
        """
        if not self.built:
            self.build()
        return {
            "output": ops.transpose(self.output_table()),
            "decoder": self.decoder.decoding_weights(),
        }

    def decoding_start(
        self,
        state: Any,
        prompts: Tensor,
        limits: Tensor,
        max_length: int,
        num_hypotheses: int,
        weights: Any,
        shortlist: Shortlist | None = None,
    ) -> DecodingStart:
        """Returns the `DecodingStart` of a search whose steps are those of the decoder.

        Args:
            state: the decoder's, before the first step.
            prompts, limits, max_length: see `DecodingStart`.
            num_hypotheses: N.
            weights: from `decoding_weights`.
            shortlist: see `decode`; the step function then reads places in it instead of ids.
        """
        output = weights["output"] if shortlist is None else self.output_columns(shortlist.ids)

        def step_fn(ids, step, state):
            ids = ops.reshape(self.ids_to_embed(ids), (-1, num_hypotheses))  # N may be unknown
            x, state = self.decoder.decode_step(ids, step, state, weights["decoder"])
            logits = ops.cast(ops.matmul(x, output), "float32")
            return ops.reshape(logits, (-1, num_hypotheses, ops.shape(logits)[-1])), state

        if shortlist is not None:
            step_fn, state = shortlist.restrict(step_fn, state)
        return DecodingStart(step_fn, state, prompts, limits, max_length)

    def ids_to_embed(self, ids: Tensor) -> Tensor:
        """Returns ids that the embedding has, for ids of which some may be padding."""
        return ids
