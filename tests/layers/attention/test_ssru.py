"""The SSRU against the loop of its equations."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import Transformer, backend
from keras_transformer.layers import DecoderBlock, EncoderBlock, MultiHeadAttention, Ssru
from tests.layers.conftest import assert_equal

B, T, D = 2, 7, 6


@pytest.fixture
def layer(randomize):
    layer = Ssru()
    layer.build((None, None, D))
    return randomize(layer)


@pytest.fixture
def x():
    return np.random.default_rng(3).normal(size=(B, T, D)).astype("float32")


def loop(layer, x, real):
    """The equations of section 3.2 in float64, position by position; padding keeps the state."""
    forget_kernel, forget_bias, candidate_kernel = map(ops.convert_to_numpy, layer.weights)
    x = np.where(real[..., None], x, 0.0)
    output = np.zeros(x.shape)
    for b in range(len(x)):
        state = np.zeros(D)
        for t in range(x.shape[1]):
            forget = 1 / (1 + np.exp(-(x[b, t] @ forget_kernel + forget_bias)))
            if real[b, t]:
                state = forget * state + (1 - forget) * (x[b, t] @ candidate_kernel)
            output[b, t] = np.maximum(state, 0)
    return output


def test_equals_the_loop_and_padding_keeps_the_state(layer, x):
    real = np.ones((B, T), bool)
    real[0, :2] = real[0, 4] = real[1, 5:] = False
    assert_equal(layer(x, padding_mask=real), loop(layer, x, real))
    x[~real] = 1e9
    assert_equal(layer(x, padding_mask=real), loop(layer, x, real))
    assert_equal(layer(x), loop(layer, x, np.ones((B, T), bool)))


def test_the_future_does_not_leak(layer, x):
    before = ops.convert_to_numpy(layer(x))
    x[:, 4:] += 1e3
    after = ops.convert_to_numpy(layer(x))
    assert_equal(after[:, :4], before[:, :4])
    assert np.all(np.abs(after[:, 4:] - before[:, 4:]).max(axis=-1) > 1)


def test_a_long_past_is_neither_lost_nor_infinite(layer):
    """Forget gates near 1 keep it; near 0, their products underflow, and the sums stay finite."""
    x = np.zeros((1, 300, D), "float32")
    for bias in (12.0, -30.0):
        layer.forget_projection.bias.assign(np.full(D, bias))
        x[0, 0] = 1e4
        found = ops.convert_to_numpy(layer(x))
        assert_equal(found, loop(layer, x, np.ones((1, 300), bool)), 1e-4)


@pytest.mark.parametrize("norm", [False, True])
def test_steps_equal_the_whole_pass(randomize, norm):
    """In a block, where the normalization before it becomes a part of its weights."""
    block = DecoderBlock(2, 8, normalize_first=norm, attention="ssru", has_cross_attention=False)
    block.build((None, None, D))
    randomize(block)
    x = np.random.default_rng(3).normal(size=(B, T, D)).astype("float32")
    expected = ops.convert_to_numpy(block(x))
    cache, weights = block.self_attention.start_cache(B, T), block.decoding_weights()
    assert cache["state"].shape == (B, D)
    for t in range(T):
        step = block.self_attention.start_step(ops.convert_to_tensor(t, "int32"), cache)
        row = block.ready_to_decode(ops.convert_to_tensor(x[:, t]))
        row, cache = block.decode_step(row, step, cache, {}, 1, weights)
        whole = expected[:, t] - expected[:, t].mean(-1, keepdims=True) if norm else expected[:, t]
        assert_equal(row, whole, 1e-4)


def test_one_compiled_function_serves_every_length(layer):
    compiled = backend.compile_function(lambda x: layer(ops.reshape(x, (*ops.shape(x)[:2], D))))
    for batch, length in ((2, 23), (3, 4), (1, 1), (0, 5), (2, 0)):
        x = np.random.default_rng(1).normal(size=(batch, length, D)).astype("float32")
        assert_equal(compiled(x), loop(layer, x, np.ones((batch, length), bool)))


def test_the_gradient_is_that_of_finite_differences(layer, x, gradient):
    def function(x):
        return ops.square(layer(x))

    found = gradient(function, x)
    everywhere = np.ones((B, T), bool)
    for place in ((0, 0, 1), (1, 3, 2), (0, T - 1, 0)):
        shift = np.zeros(x.shape)
        shift[place] = 1e-5
        sums = [(loop(layer, x + s * shift, everywhere) ** 2).sum() for s in (-1, 1)]
        assert found[place] == pytest.approx((sums[1] - sums[0]) / 2e-5, rel=1e-3, abs=1e-4)


def test_mixed_precision_comes_close(layer, x):
    mixed = Ssru(dtype="mixed_bfloat16")
    mixed.build((None, None, D))
    mixed.set_weights(layer.get_weights())
    output = mixed(x)
    assert ops.dtype(output) == "bfloat16"
    assert ops.dtype(mixed.start_cache(B, T)["state"]) == "float32"
    assert_equal(output, ops.convert_to_numpy(layer(x)), 0.05)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Ssru()(np.zeros((1, 2, D)), causal=False), "causal=False"),
        (
            lambda: Ssru()(np.zeros((1, 2, D)), return_attention_weights=True),
            "return_attention_weights=True. Use MultiHeadAttention",
        ),
        (lambda: MultiHeadAttention(2, attention="ssru"), "Use the layer Ssru in the place"),
        (lambda: EncoderBlock(2, 8, attention=Ssru()), "Use it in the decoder, as decoder_att"),
        (lambda: DecoderBlock(2, 8, attention="ssru", rotary=True), "rotary=True, attention='s"),
        (lambda: DecoderBlock(2, 8, cross_attention="ssru"), "Received: cross_attention='ssru'"),
        (lambda: Transformer(9, 9, 1, d_model=6, num_heads=2, attention="ssru"), "decoder_atten"),
        (
            lambda: Transformer(
                9, 9, 1, d_model=6, num_heads=2, positions="alibi", decoder_attention="ssru"
            ),
            "positions='alibi', attention='ssru'",
        ),
        (
            lambda: Transformer(
                9, 9, 1, d_model=6, num_heads=2, attention_dropout=0.1, decoder_attention="ssru"
            ),
            "attention_dropout=0.1, attention='ssru'",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
