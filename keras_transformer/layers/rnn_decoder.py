"""A recurrent decoder with or without attention, in one pass or step by step.

Shapes: B batch, T target length, S source length, D width of the embeddings, C width of the source,
U units, G gates of a layer, R = B * N rows, N hypotheses of each input (in decoding).
"""

from typing import Any

import keras
from keras import ops, tree

from keras_transformer import backend
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.attention.attention import SCORES, Attention
from keras_transformer.layers.base import Layer, NotQuantized, TracedShape, build_embedding
from keras_transformer.layers.decoding_step import DecodingState
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.masks import known_padding_mask
from keras_transformer.layers.recurrence import Recurrence
from keras_transformer.types import Shape, Tensor

ATTENTIONS = ("bahdanau", "luong", None)


@keras.saving.register_keras_serializable("keras_transformer")
class RnnDecoder(NotQuantized, TracedShape, Layer):
    """An embedding, GRU or LSTM layers, and attention before or after them.

    The state before the first step is tanh(W s), where s sums up the source. In step t, the layers
    read the embedding e_t and give the state h_t; the output is tanh(W [h_t; c_t]), where the
    context c_t depends on the attention:

    - "bahdanau" (2015, section A.2, https://arxiv.org/abs/1409.0473): the context is computed
      before the step, with the previous state of the first layer as the query, and this layer reads
      [e_t; c_t]. Further layers read the outputs below, as in Wu et al., 2016, section 3,
      https://arxiv.org/abs/1609.08144. In the paper, the output is a maxout of h, e and c.
    - "luong" (2015, section 3, https://arxiv.org/abs/1508.04025): the context is computed after the
      step, with the last layer's state as the query. With input feeding (section 3.3), the first
      layer reads [e_t; the output of step t - 1]. Without it, nothing of the attention is needed
      in the recurrence, and training is faster.
    - None (Cho et al., 2014, https://arxiv.org/abs/1406.1078): the context is s in all steps, and
      the first layer reads [e_t; s].

    With a grid of image features as the source, it is the decoder of "Show, attend and tell" (Xu et
    al., 2015, https://arxiv.org/abs/1502.03044) with soft attention.

    Args:
        embedding: layer from the inputs to vectors `(B, T, D)`; an encoder may share it.
        num_layers: number of recurrent layers.
        units: U.
        cell: "gru" or "lstm", see `RnnEncoder`.
        attention: "bahdanau", "luong" or None.
        score: the score function of the attention, a name of those of `Attention`.
        input_feeding: whether each step reads the previous output; for "luong".
        dropout: rate on the embeddings, between the layers, and on the output.

    Call arguments:
        inputs: the input of the embedding, such as ids `(B, T)`.
        encoder_output: `(B, S, C)`; a grid must have been reshaped to a row of S positions.
        encoder_state: s, `(B, C')`; None: the mean of `encoder_output`, as in Xu et al.
        source_padding_mask: bool `(B, S)`, True where a source position is real; None: the mask
            that Keras attached to `encoder_output`.
        return_attention_weights: whether to return the weights too.
        training: whether dropout is applied.

    Returns:
        `(B, T, D)`. With return_attention_weights, `(output, weights)`: a list of one tensor
        `(B, 1, T, S)`, or an empty one without attention.

    Raises:
        ValueError: num_layers or units below 1; an unknown cell, attention or score; input feeding
            without "luong"; no encoder_output, or one of another rank; or a dot product of
            different widths.

    Example:
    >>> decoder = RnnDecoder(TokenEmbedding(100, 16), units=8)
    >>> decoder(np.array([[2, 7]]), np.zeros((1, 3, 10))).shape
    (1, 2, 16)
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        num_layers: int = 1,
        units: int = 256,
        cell: str = "gru",
        attention: str | None = "bahdanau",
        score: str = "additive",
        input_feeding: bool = False,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.autocast = False  # it would round ids that come as floats to bfloat16
        check_positive_integers(num_layers=num_layers, units=units)
        if attention not in ATTENTIONS:
            raise InputError(f"attention must be one of {ATTENTIONS}. Received: {attention=}.")
        if not isinstance(score, str) or score not in SCORES:
            raise InputError(f"score must be one of {SCORES}. Received: {score=}.")
        if input_feeding and attention != "luong":
            raise InputError(
                "Input feeding needs attention after the step. Received: "
                f"input_feeding={input_feeding}, {attention=}. Choose attention='luong'."
            )
        self.embedding = embedding
        self.num_layers = num_layers
        self.units = units
        self.cell = cell
        self.attention = attention
        self.score = score
        self.input_feeding = input_feeding
        self.dropout = dropout
        policy = self.dtype_policy
        self.layers = [
            Recurrence(cell, units, dtype=policy, name=f"layer_{i}") for i in range(num_layers)
        ]
        self.attention_layer: Attention | None = None
        if attention is not None:
            self.attention_layer = Attention(score, dtype=policy, name="attention")
        self.dropouts = [Dropout(dropout, dtype=policy) for _ in range(num_layers + 1)]
        num_states = num_layers * self.layers[0].num_states
        self.initial_layer = Dense(
            num_states * units, activation="tanh", dtype=policy, name="initial"
        )
        self.readout: Any = None  # its width is that of the embeddings

    @property
    def gives_cross_weights(self) -> bool:
        """Whether the call can return the weights of the attention."""
        return self.attention is not None

    @property
    def cross_heads(self) -> tuple[int, int]:
        """The number of layers and of heads of the attention whose weights are returned."""
        return (1, 1) if self.gives_cross_weights else (0, 0)

    def build(
        self,
        inputs_shape: Shape,
        encoder_output_shape: Shape = None,
        encoder_state_shape: Shape | None = None,
    ) -> None:
        _check_source(encoder_output_shape)
        output_dim = build_embedding(self.embedding, inputs_shape)
        source_dim = encoder_output_shape[-1]
        state_dim = (encoder_state_shape or encoder_output_shape)[-1]
        context_dim = state_dim if self.attention is None else source_dim
        added_dim = context_dim  # of what the first layer reads beside the embedding
        if self.attention == "luong":
            added_dim = output_dim if self.input_feeding else 0
        self.initial_layer.build((None, state_dim))
        for i, layer in enumerate(self.layers):
            layer.build((None, None, self.units if i else output_dim + added_dim))
        if self.attention_layer is not None:
            self.attention_layer.build((None, None, self.units), (None, None, source_dim))
        self.readout = Dense(
            output_dim, "tanh", use_bias=False, dtype=self.dtype_policy, name="readout"
        )
        self.readout.build((None, self.units + context_dim))

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        encoder_state: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        return_attention_weights: bool = False,
        training: bool = False,
    ) -> Tensor:
        states, memory = self._start(encoder_output, encoder_state, source_padding_mask)
        weights = self.decoding_weights()
        x = self.dropouts[0](self.embedding(inputs), training=training)
        gates = self.layers[0].project(_swap(x), weights[0])  # (T, B, G)
        if self.input_feeding:
            output, attention_weights = self._feed_outputs(gates, states, memory, weights, training)
        else:
            if self.attention == "bahdanau":
                x, context, attention_weights = self._attend_first(
                    gates, states[0], memory, weights[0]
                )
            else:
                gates = gates + memory["gates"] if self.attention is None else gates
                x, _ = self.layers[0].run(gates, weights[0], initial_state=states[0])
            for layer, dropout, state in zip(
                self.layers[1:], self.dropouts[1:-1], states[1:], strict=True
            ):
                x, _ = layer(dropout(x, training=training), initial_state=state)
            if self.attention != "bahdanau":
                context, attention_weights = self._context(x, memory)
            output = self._read_out(x, context)
        output = self.dropouts[-1](output, training=training)
        if not return_attention_weights:
            return output
        return output, [] if attention_weights is None else [attention_weights[:, None]]

    # === Parts of the call ===

    def _start(self, encoder_output, encoder_state, source_padding_mask):
        """Returns the layers' states before the first step, and what all steps read, a dict."""
        _check_source(getattr(encoder_output, "shape", None))
        source_padding_mask = known_padding_mask(source_padding_mask, encoder_output)
        encoder_output = ops.cast(encoder_output, self.compute_dtype)
        if encoder_state is None:
            encoder_state = _mean(encoder_output, source_padding_mask)
        encoder_state = ops.cast(encoder_state, self.compute_dtype)
        num_each = self.layers[0].num_states
        parts = ops.split(self.initial_layer(encoder_state), self.num_layers * num_each, axis=-1)
        states = [parts[i : i + num_each] for i in range(0, len(parts), num_each)]
        if self.attention is not None:
            return states, self.attention_layer.start_memory(
                encoder_output, padding_mask=source_padding_mask
            )
        first = self.layers[0]
        gates = first.project_rest(encoder_state, first.step_weights())
        return states, {"state": encoder_state, "gates": gates}

    def _context(self, queries, memory):
        """Returns the contexts `(B, T or 1, C)` and the weights `(B, T, S)` or None.

        Args:
            queries: `(B, T, U)`.
        """
        if self.attention is None:
            return memory["state"][:, None], None
        return self.attention_layer.attend_to_memory(queries, memory)

    def _read_out(self, hidden, context):
        """Returns tanh(W [h; c]), from `(B, T, U)` and `(B, T or 1, C)` to `(B, T, D)`."""
        context = ops.broadcast_to(context, (*ops.shape(hidden)[:2], context.shape[-1]))
        return self.readout(ops.concatenate([hidden, context], axis=-1))

    def _step_layers(self, gates, states, weights, factors=()):
        """Makes one step of all layers; returns the last one's output and all states.

        Args:
            gates: `(R, G)`, of the first layer.
            states, weights: one entry for each layer.
            factors: `(R, U)` for each layer from the second on, to multiply its input with.
        """
        new_states = []
        for i, layer in enumerate(self.layers):
            if i > 0:
                x = new_states[-1][0]
                gates = layer.project(x * factors[i - 1] if factors else x, weights[i])
            new_states.append(layer.step(gates, states[i], weights[i]))
        return new_states[-1][0], new_states

    def _attend_first(self, gates, state, memory, weights):
        """Runs the first layer, which reads a context in each step.

        Args:
            gates: `(T, B, G)`, without the contexts' part.
        Returns:
            Its output `(B, T, U)`, the contexts and the attention weights.
        """
        layer = self.layers[0]

        def step(state, gates):
            context, attention_weights = self._context(state[0][:, None], memory)
            gates = gates + layer.project_rest(context[:, 0], weights)
            state = layer.step(gates, state, weights)
            return state, [state[0], context[:, 0], attention_weights[:, 0]]

        _, outputs = backend.scan(step, state, gates)
        return [_swap(output) for output in outputs]

    def _feed_outputs(self, gates, states, memory, weights, training):
        """Runs all layers, the first of which reads the previous output in each step.

        Args:
            gates: `(T, B, G)`, without the outputs' part.
        Returns:
            The outputs `(B, T, D)` and the attention weights `(B, T, S)`.
        """
        shape = *ops.shape(gates)[:2], self.units
        ones = ops.ones(shape, dtype=gates.dtype)
        factors = []  # drawn before the loop: a loop would draw the same ones in each step
        if training:
            factors = [dropout(ones, training=True) for dropout in self.dropouts[1:-1]]

        def step(carry, inputs):
            states, output = carry
            gates = inputs["gates"] + self.layers[0].project_rest(output, weights[0])
            hidden, states = self._step_layers(gates, states, weights, inputs["factors"])
            context, attention_weights = self._context(hidden[:, None], memory)
            output = self.readout(ops.concatenate([hidden, context[:, 0]], axis=-1))
            return [states, output], [output, attention_weights[:, 0]]

        start = [states, self._no_output(shape[1], gates.dtype)]
        _, outputs = backend.scan(step, start, {"gates": gates, "factors": factors})
        return [_swap(output) for output in outputs]

    def _no_output(self, num_rows, dtype):
        return ops.zeros((num_rows, self.readout.units), dtype=dtype)

    # === Step by step ===

    def decoding_weights(self) -> Any:
        """Returns the weights in the form that `decode_step` reads: a list of dicts."""
        return [layer.step_weights() for layer in self.layers]

    def start_decoding(
        self,
        num_rows: int,
        max_length: int,
        encoder_output: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        encoder_state: Tensor | None = None,
    ) -> DecodingState:
        """Does what `Decoder.start_decoding` does; `max_length` is ignored: no state grows."""
        states, memory = self._start(encoder_output, encoder_state, source_padding_mask)
        each = num_rows // _at_least_1(ops.shape(encoder_output)[0])
        states = tree.map_structure(lambda state: ops.repeat(state, each, axis=0), states)
        cache = {"states": states}
        if self.input_feeding:
            cache["output"] = self._no_output(num_rows, self.compute_dtype)
        return DecodingState(cache, memory)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: DecodingState, weights: Any
    ) -> tuple[Tensor, DecodingState]:
        """Does what `Decoder.decode_step` does; the step is ignored."""
        cache, memory, first = state.cache, state.memory, self.layers[0]

        def by_inputs(x):
            return ops.reshape(x, (-1, ids.shape[1], x.shape[-1]))  # (B, N, ...)

        def by_rows(x):
            return ops.reshape(x, (-1, x.shape[-1]))

        gates = first.project(self.embedding(ops.reshape(ids, (-1,))), weights[0])
        if self.attention == "bahdanau":
            context, _ = self._context(by_inputs(cache["states"][0][0]), memory)
            gates = gates + first.project_rest(by_rows(context), weights[0])
        elif self.input_feeding:
            gates = gates + first.project_rest(cache["output"], weights[0])
        elif self.attention is None:
            gates = by_rows(by_inputs(gates) + memory["gates"][:, None])
        hidden, states = self._step_layers(gates, cache["states"], weights)
        hidden = by_inputs(hidden)
        if self.attention != "bahdanau":
            context, _ = self._context(hidden, memory)
        output = by_rows(self._read_out(hidden, context))
        cache = {"states": states, **({"output": output} if self.input_feeding else {})}
        return output, DecodingState(cache, memory)


def _swap(x):
    """Returns the tensor with its first two axes, batch and time, in the other order."""
    return ops.swapaxes(x, 0, 1)


def _at_least_1(size):
    return max(size, 1) if isinstance(size, int) else ops.maximum(size, 1)


def _mean(x, padding_mask):
    """Returns the mean `(B, C)` over the real positions of `(B, S, C)`; 0 if there are none."""
    if padding_mask is None:
        return ops.mean(x, axis=1)
    is_real = ops.cast(padding_mask, x.dtype)[..., None]
    return ops.sum(x * is_real, axis=1) / ops.maximum(ops.sum(is_real, axis=1), 1.0)


def _check_source(shape):
    if shape is None or len(shape) != 3:
        received = "None" if shape is None else tuple(shape)
        raise InputError(
            "Expected encoder_output of shape (B, S, C). "
            f"Received: encoder_output.shape={received}. "
            "Reshape a grid of features (B, H, W, C) to (B, H * W, C)."
        )
