"""What models that write tokens have in common: the output layer and the steps of decoding.

Shapes: B batch, D d_model, V vocabulary, N hypotheses of each input (in decoding), C tokens of a
shortlist.
"""

from typing import Any

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.decoding import DecodingStart, Shortlist
from keras_transformer.errors import InputError
from keras_transformer.layers import Dense
from keras_transformer.layers.decoding_step import product
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
        output_biases: weight `(V,)` that is added to the logits; None: nothing is.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        self.output_layer = None  # not on the class: PyTorch would look there first
        self.output_biases: Any = None

    def new_output_layer(self, vocab_size: int) -> keras.layers.Layer:
        """Returns an output layer with weights of its own."""
        return Dense(vocab_size, use_bias=False, dtype=self.dtype_policy, name="output_layer")

    def project(self, hidden: Tensor) -> Tensor:
        """Returns the logits `(B, T, V)` of `hidden` `(B, T, D)`."""
        if self.output_layer is None:
            logits = self.decoder.embedding.project(hidden)
        else:
            logits = self.output_layer(hidden)
        biases = self.output_biases
        return logits if biases is None else logits + ops.cast(biases, logits.dtype)

    def output_table(self) -> Tensor:
        """Returns the tensor `(V, D)` whose product with `hidden` is the logits without biases."""
        if self.output_layer is None:
            return ops.cast(self.decoder.embedding.embeddings, self.compute_dtype)
        return ops.cast(ops.transpose(self.output_layer.kernel), self.compute_dtype)

    def output_factors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        table = self.output_table()
        hidden = ops.cast(hidden, self.compute_dtype)  # a decoder may compute in another dtype
        if self.output_biases is None:
            return hidden, table
        biases = ops.cast(self.output_biases, self.compute_dtype)[:, None]
        ones = ops.ones_like(hidden[..., :1])  # the biases are the weights of a constant
        return ops.concatenate([hidden, ones], -1), ops.concatenate([table, biases], -1)

    def output_columns(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns `(D, C)` and `(C,)`: the output layer for the tokens `ids` `(C,)`, its biases."""
        if self.output_layer is None:
            columns = ops.transpose(backend.take_rows(self.decoder.embedding.embeddings, ids))
        else:
            columns = ops.take(self.output_layer.kernel, ids, axis=1)
        biases = self.output_biases
        if biases is not None:
            biases = ops.cast(backend.take_rows(biases, ids), self.compute_dtype)
        return ops.cast(columns, self.compute_dtype), biases

    # === Step by step ===

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that decoding reads, a dict.

        "output": the output table as `(D, V)`, which makes products with few rows fast;
        "output_biases": `(V,)`, if the model has any; "decoder": the result of the decoder's
        `decoding_weights`. Computing them takes a millisecond, as long as two decoding steps with
        one sentence.
        """
        if not self.built:
            self.build()
        weights = {
            "output": ops.transpose(self.output_table()),
            "decoder": self.decoder.decoding_weights(),
        }
        if self.output_biases is not None:
            weights["output_biases"] = ops.cast(self.output_biases, self.compute_dtype)
        return weights

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
        if shortlist is None:
            output, biases = weights["output"], weights.get("output_biases")
        else:
            output, biases = self.output_columns(shortlist.ids)

        def step_fn(ids, step, state):
            ids = ops.reshape(self.ids_to_embed(ids), (-1, num_hypotheses))  # N may be unknown
            x, state = self.decoder.decode_step(ids, step, state, weights["decoder"])
            logits = product(x, output)
            if biases is not None:
                logits = logits + biases
            logits = ops.cast(logits, "float32")
            return ops.reshape(logits, (-1, num_hypotheses, ops.shape(logits)[-1])), state

        if shortlist is not None:
            step_fn, state = shortlist.restrict(step_fn, state)
        return DecodingStart(step_fn, state, prompts, limits, max_length)

    def ids_to_embed(self, ids: Tensor) -> Tensor:
        """Returns ids that the embedding has, for ids of which some may be padding."""
        return ids


def two_inputs(inputs, **shapes):
    """Returns the two tensors of a call's inputs, which are a dict.

    Args:
        shapes: from their names to the shapes that they should have, such as "(B, T)".
    Raises:
        ValueError: no dict of both, another rank, or unequal batches.
    """
    expected = ", ".join(f'"{name}": {shape}' for name, shape in shapes.items())
    given = inputs if isinstance(inputs, dict) else {}
    tensors = [given.get(name) for name in shapes]
    if any(tensor is None for tensor in tensors):
        names = sorted(name for name, tensor in given.items() if tensor is not None)
        received = names if isinstance(inputs, dict) else type(inputs).__name__
        raise InputError(f"Expected inputs {{{expected}}}. Received: {received}.")
    ranks = [len(tensor.shape) for tensor in tensors]
    is_wrong = ranks != [shape.count(",") + 1 for shape in shapes.values()]
    if is_wrong or len({tensor.shape[0] for tensor in tensors} - {None}) > 1:
        received = ", ".join(
            f"{name}.shape={tuple(tensor.shape)}"
            for name, tensor in zip(shapes, tensors, strict=True)
        )
        raise InputError(f"Expected {{{expected}}} of the same batch size B. Received: {received}.")
    return tensors
