"""What models that predict tokens have in common: loss, output layer and steps of decoding.

Shapes: B batch, T length, D d_model, V vocabulary, N hypotheses of each input (in decoding), C
tokens of a shortlist.
"""

import contextlib
import contextvars
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.backend import TokenLosses
from keras_transformer.decoding import DecodingStart, Shortlist
from keras_transformer.errors import InputError
from keras_transformer.layers import Dense
from keras_transformer.layers.decoding_step import product
from keras_transformer.models.base import BaseModel
from keras_transformer.types import Tensor


class _Step(NamedTuple):
    """The current step of `fit` or `evaluate`: the labels and weights of its batch."""

    model: keras.Model
    labels: object
    weights: object
    training: bool


_STEP = contextvars.ContextVar("step", default=None)  # each replica's thread has its own


class TokenModel(BaseModel):
    """A model whose `call` returns logits, and which trains without an array of all logits.

    The output layer, the softmax and the loss are half the work of a small model, most of it
    passes over the logits. A model never has all logits in memory if it is compiled with a loss
    that works from the hidden states (`TokenCrossEntropy`) and with metrics that need only the
    results of that loss (`TokenAccuracy`, `Perplexity`). Any other loss or metric gets the logits.

    A subclass ends its `call` with `self.predict_tokens(hidden)`. It has the methods `project`,
    from `hidden` `(B, T, D)` to logits `(B, T, V)`, and `output_table`, which returns the tensor
    `(V, D)` whose product with `hidden` is the logits.

    Attributes:
        needs_no_logits: whether the model was compiled with such a loss and such metrics.
    """

    def output_factors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states `(B, T, D)` and a table `(V, D)` whose product is the logits.

        Where the logits are more than a product, D may be larger than that of `hidden`.
        """
        return hidden, self.output_table()

    def predict_tokens(self, hidden: Tensor, alignment: tuple[Tensor, Tensor] | None = None) -> Any:
        """Returns logits, or `TokenLosses` in a step of `fit` or `evaluate` that needs none.

        Args:
            alignment: see `TokenCrossEntropy.from_hidden`.
        """
        step = _STEP.get()
        if step is None or step.model is not self:
            if alignment is not None:
                raise InputError(
                    "Expected a step of fit where the inputs have an alignment, with the loss "
                    "TokenCrossEntropy and among the metrics only TokenAccuracy and Perplexity. "
                    "Received: another call, loss or metric. Leave the alignment out."
                )
            return self.project(hidden)
        return self.loss.from_hidden(
            *self.output_factors(hidden),
            step.labels,
            step.weights,
            step.training,
            jit_compile=self.jit_compile,
            **({} if alignment is None else {"alignment": alignment}),
        )

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs)
        self.needs_no_logits = (
            getattr(loss, "reduction", None) == "sum"
            and getattr(loss, "from_hidden", None) is not None
            and all(hasattr(metric, "update_from_losses") for metric in metrics or ())
            and not loss_weights
            and not weighted_metrics
        )

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Does what Keras does for models that do not override `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def train_step(self, *args: Any) -> Any:  # on JAX the first argument is the state
        *state, data = args
        data = self.repeated(data)
        with self._step_on(data, training=True):
            return super().train_step(*state, data)

    def test_step(self, *args: Any) -> Any:
        with self._step_on(args[-1], training=False):
            return super().test_step(*args)

    def repeated(self, data: Any) -> Any:
        """Returns a batch as often as the loss wants it predicted, with weights divided by that."""
        num_predictions = getattr(self.loss, "num_predictions", 1)
        if num_predictions == 1:
            return data
        if not self.needs_no_logits:
            raise InputError(
                "Expected a loss with reduction='sum', no loss_weights, no weighted_metrics, and "
                "among the metrics only TokenAccuracy and Perplexity, where the loss compares two "
                f"predictions. Received: r_drop={self.loss.r_drop}. Compile the model with these."
            )
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        weights = ops.ones_like(labels, dtype="float32") if weights is None else weights
        return keras.tree.map_structure(
            lambda values: ops.concatenate([values] * num_predictions, axis=0),
            (inputs, labels, ops.cast(weights, "float32") / num_predictions),
        )

    @contextlib.contextmanager
    def _step_on(self, data, training):
        if not self.needs_no_logits:
            yield
            return
        _, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        token = _STEP.set(_Step(self, labels, weights, training))
        try:
            yield
        finally:
            _STEP.reset(token)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Any:
        if isinstance(y_pred, TokenLosses):
            return sum(self.losses, start=y_pred.loss)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Any:
        if not isinstance(y_pred, TokenLosses):
            return super().compute_metrics(x, y, y_pred, sample_weight)
        for compiled in self.metrics:
            if hasattr(compiled, "metrics"):  # Keras's container of the metrics of `compile`
                if not compiled.built:
                    compiled.build(y, y)  # labels in place of logits: only the structure counts
                for metric in compiled.metrics:
                    metric.update_from_losses(y, y_pred)
        return self.get_metrics_result()


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
