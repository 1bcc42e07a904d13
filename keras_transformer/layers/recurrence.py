"""A GRU or an LSTM over a padded sequence, or step by step.

Shapes: B batch, T length, R rows, D width of the input, U units, G = 3 U for a GRU and 4 U for an
LSTM.
"""

import keras
from keras import ops

from keras_transformer import backend
from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import FreezesParts


def gru_step(gates, state, weights):
    """Returns the next state of a GRU (Cho et al., 2014, https://arxiv.org/abs/1406.1078).

    As in cuDNN and PyTorch, the reset gate r is applied after the product with the recurrent
    weights, h' = z h + (1 - z) tanh(x_h + r (h U_h + b_h)); in the paper it is applied before.

    Args:
        gates: `(R, G)`, the input's part of update gate z, reset gate r and candidate.
        state: `[h]`, `(R, U)`.
        weights: {"recurrent": `(U, G)`, "recurrent_bias": `(G,)`}.
    """
    (hidden,) = state
    num_units = hidden.shape[-1]
    recurrent = ops.matmul(hidden, weights["recurrent"]) + weights["recurrent_bias"]
    both = ops.sigmoid(gates[:, : 2 * num_units] + recurrent[:, : 2 * num_units])
    update, reset = both[:, :num_units], both[:, num_units:]
    candidate = gates[:, 2 * num_units :] + reset * recurrent[:, 2 * num_units :]
    candidate = ops.tanh(candidate)
    return [candidate + update * (hidden - candidate)]


def lstm_step(gates, state, weights):
    """Returns the next state of an LSTM (Hochreiter and Schmidhuber, 1997; Gers et al., 2000).

    c' = f c + i tanh(g) and h' = o tanh(c').

    Args:
        gates: `(R, G)`, the input's part of input gate i, forget gate f, candidate g and output
            gate o.
        state: `[h, c]`, each `(R, U)`.
        weights: {"recurrent": `(U, G)`}.
    """
    hidden, memory = state
    gates = gates + ops.matmul(hidden, weights["recurrent"])
    num_units = hidden.shape[-1]
    both = ops.sigmoid(gates[:, : 2 * num_units])
    candidate = ops.tanh(gates[:, 2 * num_units : 3 * num_units])
    memory = both[:, num_units:] * memory + both[:, :num_units] * candidate
    return [ops.sigmoid(gates[:, 3 * num_units :]) * ops.tanh(memory), memory]


CELLS = {"gru": (keras.layers.GRUCell, gru_step, 1), "lstm": (keras.layers.LSTMCell, lstm_step, 2)}
"""From the name of a cell to the Keras layer that holds its weights, its step, and the number of
tensors in its state, of which the first is the output."""


class Recurrence(FreezesParts, keras.layers.Layer):
    """One layer of a recurrent network in one direction.

    It computes the products of the inputs with their weights for all positions at once, before the
    loop over the positions. At padding the state stays as it is, so that a reversed layer starts
    with the last real token.

    Args:
        cell: "gru" or "lstm".
        units: U.
        reverse: whether the sequence is read from its end.

    Call arguments:
        x: `(B, T, D)`.
        padding_mask: bool `(B, T)`, True where a position is real; None: all are.
        initial_state: list of tensors `(B, U)`, one for a GRU and two for an LSTM; None: zeros.

    Returns:
        `(output, state)`: `(B, T, U)`, and the state after the last real position.
    """

    def __init__(self, cell, units, reverse=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        if cell not in CELLS:
            raise InputError(f"cell must be one of {', '.join(CELLS)}. Received: {cell=}.")
        check_positive_integers(units=units)
        cell_class, self._step, self.num_states = CELLS[cell]
        self.cell = cell_class(units, dtype=self.dtype_policy, name="cell")
        self.units = units
        self.reverse = reverse

    def build(self, input_shape):
        self.cell.build(input_shape)

    def call(self, x, padding_mask=None, initial_state=None):
        weights = self.step_weights()
        gates = self.project(ops.transpose(x, (1, 0, 2)), weights)  # (T, B, G)
        return self.run(gates, weights, padding_mask, initial_state)

    def run(self, gates, weights, padding_mask=None, initial_state=None):
        """Does what the call does, from the result of `project` for all positions, `(T, B, G)`."""
        inputs = {"gates": gates}
        if padding_mask is not None:
            inputs["is_real"] = ops.transpose(ops.cast(padding_mask, "bool"))[..., None]
        if self.reverse:
            inputs = {name: ops.flip(tensor, axis=0) for name, tensor in inputs.items()}
        if initial_state is None:
            zeros = ops.zeros((ops.shape(gates)[1], self.units), dtype=gates.dtype)
            initial_state = [zeros] * self.num_states

        def step(state, inputs):
            new_state = self.step(inputs["gates"], state, weights)
            if padding_mask is not None:
                new_state = [
                    ops.where(inputs["is_real"], new, old)
                    for new, old in zip(new_state, state, strict=True)
                ]
            return new_state, new_state[0]

        state, output = backend.scan(step, initial_state, inputs)
        output = ops.flip(output, axis=0) if self.reverse else output
        return ops.transpose(output, (1, 0, 2)), state

    # === Step by step ===

    def step_weights(self):
        """Returns the weights in the form that `project` and `step` read, a dict of tensors."""
        cell = self.cell
        weights = {"input": cell.kernel, "recurrent": cell.recurrent_kernel, "bias": cell.bias}
        weights = {name: ops.cast(weight, self.compute_dtype) for name, weight in weights.items()}
        if len(cell.bias.shape) == 2:
            weights["recurrent_bias"], weights["bias"] = weights["bias"][1], weights["bias"][0]
        return weights

    def project(self, x, weights):
        """Returns the part of the gates that comes from the inputs, `(..., D)` to `(..., G)`.

        The inputs may be the first components alone, if `project_rest` of the others is added.
        """
        return ops.matmul(x, weights["input"][: x.shape[-1]]) + weights["bias"]

    def project_rest(self, x, weights):
        """Returns what the last components of the inputs add to the gates."""
        return ops.matmul(x, weights["input"][-x.shape[-1] :])

    def step(self, gates, state, weights):
        """Returns the next state, a list of `(R, U)`, whose first tensor is the output.

        Args:
            gates: `(R, G)`, from `project`.
            state: the previous state.
            weights: from `step_weights`.
        """
        return self._step(gates, state, weights)
