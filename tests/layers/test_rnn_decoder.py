"""The recurrent stacks against loops written from the papers, in float64."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import BertEmbedding, RnnDecoder, RnnEncoder, TokenEmbedding

V, D, U, C = 19, 6, 5, 7
SOURCE_LENGTHS, TARGET_LENGTH = (4, 2), 3


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def weights_of(layer):
    return [np.asarray(weight, "float64") for weight in layer.get_weights()]


def gru(layer, x, hidden):
    """Cho et al., 2014, eqs. 5 to 8, with the reset gate after the product."""
    kernel, recurrent, (bias, recurrent_bias) = weights_of(layer)
    x, h = x @ kernel + bias, hidden @ recurrent + recurrent_bias
    (x_z, x_r, x_n), (h_z, h_r, h_n) = np.split(x, 3), np.split(h, 3)
    z, r = sigmoid(x_z + h_z), sigmoid(x_r + h_r)
    return z * hidden + (1 - z) * np.tanh(x_n + r * h_n)


def attend(layer, query, memory):
    """Bahdanau et al., 2015, eqs. 5 and 6, or Luong et al., 2015, eqs. 7 and 8."""
    weights, scores = weights_of(layer), []
    for key in memory:
        if layer.score == "additive":
            of_query, of_key, u = weights
            scores.append(u @ np.tanh(of_query.T @ query + of_key.T @ key))
        elif layer.score == "multiplicative":
            scores.append(query @ weights[0] @ key)
        else:
            scores.append(query @ key / (np.sqrt(len(key)) if "scaled" in layer.score else 1.0))
    exponentials = np.exp(scores - np.max(scores))
    return (exponentials / exponentials.sum()) @ memory, exponentials / exponentials.sum()


def decoder_loop(decoder, ids, memory, summary):
    """Returns outputs `(T, D)` and attention weights `(T, S)` of one sentence."""
    table = weights_of(decoder.embedding)[0] * np.sqrt(D)
    kernel, bias = weights_of(decoder.initial_layer)
    states = np.split(np.tanh(summary @ kernel + bias), decoder.num_layers)
    output, outputs, all_weights = np.zeros(D), [], []
    for token in ids:
        x, context = table[token], summary
        if decoder.attention == "bahdanau":
            context, weights = attend(decoder.attention_layer, states[0], memory)
        if decoder.attention != "luong":
            x = np.concatenate([x, context])
        elif decoder.input_feeding:
            x = np.concatenate([x, output])
        for i, layer in enumerate(decoder.layers):
            states[i] = x = gru(layer, x, states[i])
        if decoder.attention == "luong":
            context, weights = attend(decoder.attention_layer, x, memory)
        output = np.tanh(np.concatenate([x, context]) @ weights_of(decoder.readout)[0])
        outputs.append(output)
        all_weights.append(weights if decoder.attention else [])
    return np.array(outputs), np.array(all_weights)


@pytest.mark.parametrize(
    "with_state, arguments",
    [
        (True, dict(attention=None)),
        (False, dict(attention=None)),
        (True, dict(score="additive")),
        (False, dict(score="multiplicative")),
        (True, dict(attention="luong", score="dot_product", units=C)),
        (False, dict(attention="luong", score="scaled_dot_product", units=C, input_feeding=True)),
        (True, dict(attention="luong", score="additive", input_feeding=True)),
    ],
    ids=str,
)
def test_decoder_equals_the_loop(with_state, arguments, randomize):
    rng = np.random.default_rng(3)
    memory = rng.normal(size=(2, max(SOURCE_LENGTHS), C)).astype("float32")
    summary = rng.normal(size=(2, 4)).astype("float32") if with_state else None
    mask = np.arange(max(SOURCE_LENGTHS)) < np.array(SOURCE_LENGTHS)[:, None]
    ids = rng.integers(0, V, size=(2, TARGET_LENGTH)).astype("int32")
    arguments = {"units": U, **arguments}
    decoder = RnnDecoder(TokenEmbedding(V, D), num_layers=2, **arguments)
    decoder.build(ids.shape, memory.shape, None if summary is None else summary.shape)
    randomize(decoder)
    found, weights = decoder(
        ids, memory, summary, source_padding_mask=mask, return_attention_weights=True
    )
    for b, length in enumerate(SOURCE_LENGTHS):
        real = memory[b, :length]
        expected, expected_weights = decoder_loop(
            decoder, ids[b], real, real.mean(axis=0) if summary is None else summary[b]
        )
        np.testing.assert_allclose(ops.convert_to_numpy(found)[b], expected, rtol=1e-4, atol=1e-5)
        if decoder.attention is None:
            assert weights == []
        else:
            found_weights = ops.convert_to_numpy(weights[0])[b, 0]
            np.testing.assert_allclose(found_weights[:, :length], expected_weights, atol=1e-5)
            assert not found_weights[:, length:].any()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_encoder_equals_the_loop(bidirectional, randomize):
    rng = np.random.default_rng(3)
    ids = rng.integers(1, V, size=(2, max(SOURCE_LENGTHS))).astype("int32")
    mask = np.arange(max(SOURCE_LENGTHS)) < np.array(SOURCE_LENGTHS)[:, None]
    encoder = RnnEncoder(TokenEmbedding(V, D), 2, U, bidirectional=bidirectional)
    encoder.build(ids.shape)
    randomize(encoder)
    found, state = encoder(ids, padding_mask=mask, return_state=True)
    found, state = ops.convert_to_numpy(found), ops.convert_to_numpy(state)
    directions = [(encoder.forward_layers, 1)]
    directions += [(encoder.backward_layers, -1)] if bidirectional else []
    for b, length in enumerate(SOURCE_LENGTHS):
        x = weights_of(encoder.embedding)[0][ids[b, :length]] * np.sqrt(D)
        for i in range(2):
            columns, last = [], []
            for layers, order in directions:
                hidden, outputs = np.zeros(U), []
                for vector in x[::order]:
                    hidden = gru(layers[i], vector, hidden)
                    outputs.append(hidden)
                columns.append(np.array(outputs)[::order])
                last.append(hidden)
            x = np.concatenate(columns, axis=-1)
        np.testing.assert_allclose(found[b, :length], x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state[b], np.concatenate(last), rtol=1e-4, atol=1e-5)
        assert not found[b, length:].any()


def test_a_grid_must_be_reshaped():
    decoder = RnnDecoder(TokenEmbedding(V, D), units=U)
    with pytest.raises(ValueError, match=r"Received: encoder_output.shape=\(1, 2, 2, 7\). Reshape"):
        decoder(np.zeros((1, 3), "int32"), np.zeros((1, 2, 2, C)))
    with pytest.raises(ValueError, match="Received: encoder_output.shape=None"):
        decoder(np.zeros((1, 3), "int32"))


def test_recurrent_layers_on_an_embedding_of_several_inputs():
    """That of BERT reads a dict of ids and segments."""
    ids = np.array([[4, 7, 5], [6, 8, 0]], "int32")
    inputs = {"ids": ids, "segment_ids": np.minimum(ids, 1)}
    encoder = RnnEncoder(BertEmbedding(20, 8), units=6)
    memory = encoder(inputs)
    assert memory.shape == (2, 3, 12)
    decoder = RnnDecoder(BertEmbedding(20, 8), units=6)
    assert decoder(inputs, memory).shape == (2, 3, 8)
