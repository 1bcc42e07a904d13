"""The same weights in PyTorch's GRU and LSTM give the same logits and the same gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import RnnSeq2Seq

torch = pytest.importorskip("torch", reason="PyTorch, the independent implementation")
from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

SIZES = dict(num_layers=2, d_model=12, units=8, dropout=0.0)
VARIANTS = {
    "plain GRU": dict(attention=None),
    "plain LSTM, one direction": dict(attention=None, cell="lstm", bidirectional=False),
    "Bahdanau": dict(),
    "Bahdanau, LSTM": dict(cell="lstm", score="multiplicative", target_vocab_size=19),
    "Luong": dict(attention="luong", score="multiplicative", num_decoder_layers=1),
    "Luong, input feeding": dict(attention="luong", input_feeding=True, tie_output=False),
    "Luong, input feeding, LSTM": dict(
        attention="luong", input_feeding=True, cell="lstm", score="dot_product",
        bidirectional=False,
    ),
}  # fmt: skip


def by_torch(weight, cell):
    """Keras's gates z, r, n as PyTorch's r, z, n; those of an LSTM have the same order in both."""
    if cell == "lstm":
        return weight
    z, r, n = np.split(weight, 3, axis=-1)
    return np.concatenate([r, z, n], axis=-1)


def parameter(array):
    return nn.Parameter(torch.tensor(np.array(array)))


class TorchSeq2Seq(nn.Module):
    """The model with PyTorch's recurrent layers, packed sequences and cells."""

    def __init__(self, model):
        super().__init__()
        self.settings = model
        weights = {w.path.split("/", 1)[1]: ops.convert_to_numpy(w) for w in model.weights}
        self.names = {}  # from the path in Keras to the parameters, and how they are put there

        def keep(path):
            value = parameter(weights[path])
            self.register_parameter(path.replace("/", "_"), value)
            self.names[path] = lambda: value.grad.numpy()
            return value

        cell = nn.GRU if model.cell == "gru" else nn.LSTM
        layers = model.num_layers
        self.source = keep("encoder/source_embedding/embeddings")
        self.target = self.source
        if model.target_embedding is not model.source_embedding:
            self.target = keep("decoder/target_embedding/embeddings")
        self.encoder = cell(
            model.d_model, model.units, layers, batch_first=True, bidirectional=model.bidirectional
        )
        for i in range(layers):
            self.copy_cell(weights, f"encoder/forward_{i}/cell", self.encoder, f"_l{i}")
            if model.bidirectional:
                self.copy_cell(
                    weights, f"encoder/backward_{i}/cell", self.encoder, f"_l{i}_reverse"
                )
        single = nn.GRUCell if model.cell == "gru" else nn.LSTMCell
        self.cells = nn.ModuleList()
        for i in range(model.num_decoder_layers or layers):
            width = len(weights[f"decoder/layer_{i}/cell/kernel"])
            self.cells.append(single(width, model.units))
            self.copy_cell(weights, f"decoder/layer_{i}/cell", self.cells[-1], "")
        self.initial, self.initial_bias = (
            keep("decoder/initial/kernel"),
            keep("decoder/initial/bias"),
        )
        self.readout = keep("decoder/readout/kernel")
        self.attention = {
            path.rsplit("/", 1)[1]: keep(path) for path in weights if "decoder/attention" in path
        }
        self.output = self.target.T if model.tie_output else keep("output_layer/kernel")

    def copy_cell(self, weights, path, module, suffix):
        cell = self.settings.cell
        parts = {
            f"weight_ih{suffix}": weights[f"{path}/kernel"],
            f"weight_hh{suffix}": weights[f"{path}/recurrent_kernel"],
        }
        bias = weights[f"{path}/bias"]
        bias = bias if bias.ndim == 2 else np.stack([bias, 0 * bias])
        parts[f"bias_ih{suffix}"], parts[f"bias_hh{suffix}"] = bias
        for name, value in parts.items():
            value = by_torch(value, cell).T
            getattr(module, name).data = torch.tensor(np.ascontiguousarray(value))

        def gradient(name):
            found = getattr(module, f"{name}{suffix}").grad.numpy().T
            return by_torch(found, cell)

        self.names[f"{path}/kernel"] = lambda: gradient("weight_ih")
        self.names[f"{path}/recurrent_kernel"] = lambda: gradient("weight_hh")
        if weights[f"{path}/bias"].ndim == 1:
            self.names[f"{path}/bias"] = lambda: gradient("bias_ih")
        else:
            self.names[f"{path}/bias"] = lambda: np.stack(
                [gradient("bias_ih"), gradient("bias_hh")]
            )

    def forward(self, source_ids, target_ids):
        settings, scale = self.settings, self.settings.d_model**0.5
        lengths = (source_ids != 0).sum(dim=1)
        packed = pack_padded_sequence(
            self.source[source_ids] * scale, lengths, batch_first=True, enforce_sorted=False
        )
        memory, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True)
        last = last if settings.cell == "gru" else last[0]
        summary = torch.cat(list(last[-2:] if settings.bidirectional else last[-1:]), dim=-1)
        is_real = torch.arange(memory.shape[1])[None] < lengths[:, None]

        states = torch.tanh(summary @ self.initial + self.initial_bias)
        states = list(states.split(settings.units, dim=-1))
        each = 1 if settings.cell == "gru" else 2
        states = [states[i : i + each] for i in range(0, len(states), each)]
        output = torch.zeros(len(source_ids), settings.d_model)
        outputs, all_weights = [], []
        for embedded in (self.target[target_ids] * scale).unbind(dim=1):
            weights = None
            if settings.attention is None:
                context, x = summary, torch.cat([embedded, summary], dim=-1)
            elif settings.attention == "bahdanau":
                context, weights = self.attend(states[0][0], memory, is_real)
                x = torch.cat([embedded, context], dim=-1)
            else:
                x = torch.cat([embedded, output], dim=-1) if settings.input_feeding else embedded
            for i, cell in enumerate(self.cells):
                states[i] = [cell(x, states[i][0])] if each == 1 else cell(x, tuple(states[i]))
                x = states[i][0]
            if settings.attention == "luong":
                context, weights = self.attend(x, memory, is_real)
            output = torch.tanh(torch.cat([x, context], dim=-1) @ self.readout)
            outputs.append(output)
            all_weights.append(weights)
        return torch.stack(outputs, dim=1) @ self.output, all_weights

    def attend(self, query, memory, is_real):
        if self.settings.score == "additive":
            hidden = torch.tanh(
                memory @ self.attention["key"] + (query @ self.attention["query"])[:, None]
            )
            scores = hidden @ self.attention["score"]
        elif self.settings.score == "multiplicative":
            scores = torch.einsum("bq,qk,bsk->bs", query, self.attention["score"], memory)
        else:
            scores = torch.einsum("bk,bsk->bs", query, memory)
        weights = torch.softmax(scores.masked_fill(~is_real, -torch.inf), dim=-1)
        return torch.einsum("bs,bsk->bk", weights, memory), weights


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_gradients_are_those_of_pytorch(variant, batch, run_eagerly):
    model = RnnSeq2Seq(23, **{**SIZES, **VARIANTS[variant]})
    model.build()
    rng = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.4, size=weight.shape))
    other = TorchSeq2Seq(model)
    source_ids, target_ids = (torch.tensor(ids, dtype=torch.long) for ids in batch.values())
    expected, expected_weights = other(source_ids, target_ids)
    logits, weights = model(batch, return_attention_weights=True)
    logits = ops.convert_to_numpy(logits)
    np.testing.assert_allclose(logits, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    if model.attention is None:
        assert weights == {}
    else:
        expected_weights = torch.stack(expected_weights, dim=1).detach().numpy()
        [weights] = weights["cross"]
        found = ops.convert_to_numpy(weights)[:, 0]
        np.testing.assert_allclose(found, expected_weights, rtol=1e-4, atol=1e-5)

    # With a learning rate of 1, a step of gradient descent moves each weight by its gradient.
    labels = np.roll(batch["target_ids"], -1, axis=1)
    nn.functional.cross_entropy(
        expected.flatten(0, 1), torch.tensor(labels, dtype=torch.long).flatten()
    ).backward()
    before = [ops.convert_to_numpy(weight).copy() for weight in model.weights]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=run_eagerly)
    model.train_on_batch(batch, labels)
    assert len(other.names) == len(model.weights)
    for weight, old in zip(model.weights, before, strict=True):
        gradient = other.names[weight.path.split("/", 1)[1]]()
        found = old - ops.convert_to_numpy(weight)
        assert np.abs(gradient).max() > 1e-4, weight.path
        np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=2e-6, err_msg=weight.path)
