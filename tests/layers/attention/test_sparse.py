"""Local, block and strided attention against loops over the pairs that each may see."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.layers import (
    BlockAttention,
    LocalAttention,
    ScaledDotProductAttention,
    StridedAttention,
    alibi_slopes,
)
from tests.layers.conftest import assert_equal, normal

B, T, H, K, V = 2, 23, 3, 6, 5

# layer, and whether position t may see position s, as its paper says it
KINDS = {
    "local 4": (lambda **a: LocalAttention(4, **a), lambda t, s: abs(t - s) <= 4),
    "local 1": (lambda **a: LocalAttention(1, **a), lambda t, s: abs(t - s) <= 1),
    "local 22": (lambda **a: LocalAttention(22, **a), lambda t, s: True),
    "block 5": (lambda **a: BlockAttention(5, **a), lambda t, s: t // 5 == s // 5),
    "block 1": (lambda **a: BlockAttention(1, **a), lambda t, s: t == s),
    "block 40": (lambda **a: BlockAttention(40, **a), lambda t, s: True),
    "strided 4": (
        lambda **a: StridedAttention(4, **a),
        lambda t, s: abs(t - s) < 4 or (t - s) % 4 == 0,
    ),
    "strided 1": (lambda **a: StridedAttention(1, **a), lambda t, s: True),
    "strided 30": (lambda **a: StridedAttention(30, **a), lambda t, s: True),
}


@pytest.fixture
def arrays():
    return normal((B, T, H, K), (B, T, H, K), (B, T, H, V))


def loop(query, key, value, may_see, real, causal, slopes):
    context, weights = np.zeros((B, T, H, V)), np.zeros((B, H, T, T))
    for b, h, t in np.ndindex(B, H, T):
        seen = [s for s in range(T) if may_see(t, s) and real[b, s] and (s <= t or not causal)]
        if not seen:
            continue
        scores = np.array([query[b, t, h] @ key[b, s, h] / np.sqrt(K) for s in seen])
        scores -= slopes[h] * np.abs(t - np.array(seen))
        exponentials = np.exp(scores - scores.max())
        weights[b, h, t, seen] = exponentials / exponentials.sum()
        context[b, t, h] = weights[b, h, t, seen] @ value[b, seen, h]
    return context, weights


@pytest.mark.parametrize(
    "kind, alibi",
    [("local 4", False), ("block 5", False), ("strided 4", False), *((k, True) for k in KINDS)],
)
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_loop_and_its_steps_do(arrays, kind, causal, alibi):
    make, may_see = KINDS[kind]
    real = np.ones((B, T), bool)
    real[1, 17:] = False
    real[0, 2] = False
    slopes = alibi_slopes(H) if alibi else np.zeros(H)
    layer = make(alibi=alibi)
    expected, expected_weights = loop(*arrays, may_see, real, causal, slopes)
    masks = dict(padding_mask=real, causal=causal)
    assert_equal(layer(*arrays, **masks), expected)
    context, weights = layer(*arrays, **masks, return_attention_weights=True)
    assert_equal(context, expected)
    assert_equal(weights, expected_weights)
    if causal:
        expected, _ = loop(*arrays, may_see, np.ones((B, T), bool), causal, slopes)
        cache = layer.start_cache(B, T + 2, H, K, V)
        cache = {name: part + 1e9 for name, part in cache.items()}
        for t in range(12):  # more than two strides and blocks
            position = [ops.convert_to_tensor(x[:, t]) for x in arrays]
            step = layer.start_step(ops.convert_to_tensor(t, "int32"), cache)
            found, cache = layer.decode_step(*position, step, cache)
            assert_equal(found, expected[:, t])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["local 22", "block 40", "strided 1", "strided 30"])
def test_wide_enough_it_equals_dense_attention(arrays, kind, causal):
    expected = ops.convert_to_numpy(ScaledDotProductAttention()(*arrays, causal=causal))
    assert_equal(KINDS[kind][0]()(*arrays, causal=causal), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_future_nor_padding_nor_the_unseen_leaks(arrays, kind):
    make, may_see = KINDS[kind]
    layer = make()
    real = np.ones((B, T), bool)
    real[0, 20:] = False
    before = ops.convert_to_numpy(layer(*arrays, padding_mask=real, causal=True))
    query, key, value = (array.copy() for array in arrays)
    key[:, 9:] += 1e3
    value[:, 9:] -= 1e3
    key[0, 20:], value[0, 20:] = 1e9, -1e9
    after = ops.convert_to_numpy(layer(query, key, value, padding_mask=real, causal=True))
    assert_equal(after[:, :9], before[:, :9])
    assert np.abs(after).max() < 1e5
    before = ops.convert_to_numpy(layer(*arrays))
    value = arrays[2].copy()
    value[:, 9] += 1e3
    changed = np.abs(ops.convert_to_numpy(layer(*arrays[:2], value)) - before).max((0, 2, 3)) > 1e-3
    assert changed.tolist() == [bool(may_see(t, 9)) for t in range(T)]


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
def test_one_padding_mask_may_be_that_of_all_sentences(arrays, kind):
    layer, real = KINDS[kind][0](), np.arange(T)[None] < 17
    expected = layer(*arrays, padding_mask=np.repeat(real, B, axis=0))
    assert_equal(layer(*arrays, padding_mask=real), ops.convert_to_numpy(expected))


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
def test_one_compiled_function_serves_every_length(kind):
    layer = KINDS[kind][0]()

    def attend(x, real):
        x = ops.reshape(x, (-1, ops.shape(x)[1], H, K))
        return layer(x, 2 * x, x + 1, padding_mask=real, causal=True)

    compiled = backend.compile_function(attend)
    for batch, length in ((2, 23), (3, 4), (1, 1), (2, 64), (0, 5)):
        x = np.random.default_rng(1).normal(size=(batch, length, H, K)).astype("float32")
        real = np.ones((batch, length), bool)
        real[-1:, length // 2 + 1 :] = False
        flat = ops.reshape(x, (batch, length, H * K))
        found = compiled(flat, ops.convert_to_tensor(real))
        assert_equal(
            found, ops.convert_to_numpy(layer(x, 2 * x, x + 1, padding_mask=real, causal=True))
        )


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
def test_a_sentence_of_padding_alone_is_zero_and_has_finite_gradients(arrays, kind, gradient):
    layer = KINDS[kind][0]()
    real = np.array([[True] * T, [False] * T])
    assert np.all(ops.convert_to_numpy(layer(*arrays, padding_mask=real))[1] == 0)
    result = gradient(lambda x: ops.square(layer(x, *arrays[1:], padding_mask=real)), arrays[0])
    assert np.all(np.isfinite(result)) and np.any(result[0] != 0) and np.all(result[1] == 0)


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_in_gives_nothing(kind, causal):
    layer = KINDS[kind][0]()
    for shape in ((B, 0, H, K), (0, T, H, K)):
        x = np.zeros(shape, "float32")
        assert tuple(layer(x, x, x, causal=causal).shape) == shape


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
def test_mixed_precision_comes_close(arrays, kind):
    make, _ = KINDS[kind]
    context = make(dtype="mixed_bfloat16")(*arrays)
    assert ops.dtype(context) == "bfloat16"
    assert_equal(context, ops.convert_to_numpy(make()(*arrays)), tolerance=0.05)


@pytest.mark.parametrize("kind", ["local 4", "block 5", "strided 4"])
def test_what_it_cannot_honour_is_refused(arrays, kind):
    layer = KINDS[kind][0]()
    query, key, value = arrays
    with pytest.raises(ValueError, match=r"an attention_mask of shape \(23, 23\)"):
        layer(*arrays, attention_mask=np.ones((T, T), bool))
    with pytest.raises(ValueError, match="Received: 23 queries, 7 keys"):
        layer(query, key[:, :7], value[:, :7])
    with pytest.raises(ValueError, match=r"Received: value.shape=\(2, 7, 3, 5\), query.shape"):
        layer(query, key, value[:, :7])
    with pytest.raises(ValueError, match=r"Received: padding_mask.shape=\(2, 7\), query.shape"):
        layer(*arrays, padding_mask=np.ones((B, 7), bool))
    with pytest.raises(ValueError, match=r"Received: padding_mask.shape=\(2,\)"):
        layer(*arrays, padding_mask=np.ones((B,), bool))
    with pytest.raises(ValueError, match="Leave cross_attention dense"):
        layer.start_memory(key, value)


@pytest.mark.parametrize(
    "make, name",
    [(LocalAttention, "window"), (BlockAttention, "block_size"), (StridedAttention, "stride")],
)
def test_a_size_below_one_is_refused(make, name):
    with pytest.raises(ValueError, match=f"Received: {name}=0"):
        make(0)
