"""The mask that Keras keeps with a tensor is the padding mask where none is given."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers
from keras_transformer.layers.decoding_step import project_rows

D, V = 12, 19
IDS = np.array([[5, 7, 3, 9, 0, 0], [4, 6, 0, 0, 0, 0], [8, 2, 11, 5, 6, 3]], "int32")
MEMORY_IDS = np.array([[6, 2, 0, 0], [7, 3, 9, 5], [1, 0, 0, 0]], "int32")
REAL = IDS != 0


def heads(x):
    """`(B, T, H, K)` with the mask of `x`, as a layer that hands masks on gives it."""
    split = keras.layers.Lambda(
        lambda x: ops.reshape(x, (-1, ops.shape(x)[1], 3, D // 3)), mask=lambda x, mask: mask
    )
    return split(x)


def of_heads(layer):
    return lambda x, **options: layer(*[heads(x)] * 3, **options)


# name: from an input with a mask to an output; of self-attention, options are those of the layer
SELF_ATTENTIONS = {
    "multi-head": lambda: layers.MultiHeadAttention(3),
    "local": lambda: layers.MultiHeadAttention(3, attention=layers.LocalAttention(2)),
    "linear": lambda: layers.MultiHeadAttention(3, attention=layers.LinearAttention()),
    "general": lambda: layers.Attention("additive"),
    "encoder block": lambda: layers.EncoderBlock(3, 17),
    "encoder block, pre-norm": lambda: layers.EncoderBlock(3, 17, normalize_first=True),
    "heads": lambda: of_heads(layers.ScaledDotProductAttention()),
    "heads, block": lambda: of_heads(layers.BlockAttention(3)),
    "heads, linear": lambda: of_heads(layers.LinearAttention()),
}


def embedded(ids):
    """Vectors of ids, with Keras's mask in the first place, without one in the second."""
    embedding = keras.layers.Embedding(V, D, mask_zero=True)
    x = embedding(ids)
    return x, ops.convert_to_tensor(ops.convert_to_numpy(x))


@pytest.mark.parametrize("name", SELF_ATTENTIONS)
def test_self_attention_leaves_out_what_the_mask_leaves_out(name):
    layer = SELF_ATTENTIONS[name]()
    masked, plain = embedded(IDS)
    found = ops.convert_to_numpy(layer(masked))
    expected = ops.convert_to_numpy(layer(plain, padding_mask=ops.convert_to_tensor(REAL)))
    without = ops.convert_to_numpy(layer(plain))
    np.testing.assert_allclose(found[REAL], expected[REAL], rtol=1e-5, atol=1e-6)
    assert np.abs(found - without)[REAL].max() > 1e-3


@pytest.mark.parametrize("name", ["multi-head", "general", "encoder block"])
def test_a_padding_mask_that_is_given_counts_instead(name):
    layer = SELF_ATTENTIONS[name]()
    masked, plain = embedded(IDS)
    given = ops.convert_to_tensor(np.arange(6) < 3)[None] & ops.ones((3, 1), "bool")
    found = layer(masked, padding_mask=given)
    expected = layer(plain, padding_mask=given)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), ops.convert_to_numpy(expected))


@pytest.mark.parametrize("make", [lambda: layers.MultiHeadAttention(3), lambda: layers.Attention()])
def test_attention_to_others_leaves_out_their_padding(make):
    layer = make()
    queries, _ = embedded(IDS)
    memory, plain = embedded(MEMORY_IDS)
    real = ops.convert_to_tensor(MEMORY_IDS != 0)
    expected = ops.convert_to_numpy(layer(queries, plain, padding_mask=real))
    for arguments in ([memory], [memory, memory], [plain, memory], [memory, plain]):
        found = ops.convert_to_numpy(layer(queries, *arguments))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(ops.convert_to_numpy(layer(queries, plain)), expected, atol=1e-3)


def test_the_decoder_block_honours_the_masks_of_target_and_source():
    block = layers.DecoderBlock(3, 17)
    left_padded = IDS[:, ::-1]  # which the causal mask does not hide
    x, _ = embedded(left_padded)
    memory, plain_memory = embedded(MEMORY_IDS)
    found = ops.convert_to_numpy(block(x, memory))
    given = block(x, plain_memory, source_padding_mask=ops.convert_to_tensor(MEMORY_IDS != 0))
    np.testing.assert_allclose(found, ops.convert_to_numpy(given), rtol=1e-5, atol=1e-6)
    for row in range(3):  # each sentence by itself, without padding
        real, real_memory = left_padded[row] != 0, MEMORY_IDS[row] != 0
        rows = ops.convert_to_numpy(x)[row, real], ops.convert_to_numpy(memory)[row, real_memory]
        alone = ops.convert_to_numpy(block(*(part[None] for part in rows)))
        np.testing.assert_allclose(found[row, real], alone[0], rtol=1e-4, atol=1e-5)


def translation_model():
    source_ids, target_ids = keras.Input((None,)), keras.Input((None,))
    x = keras.layers.Embedding(V, D, mask_zero=True)(source_ids)
    x = layers.SinusoidalPositions()(x)
    x = layers.Residual()(x, layers.FeedForward(17)(x))
    memory = layers.EncoderBlock(3, 17)(layers.EncoderBlock(3, 17, normalize_first=True)(x))
    y = keras.layers.Embedding(V, D, mask_zero=True)(target_ids)
    y = layers.DecoderBlock(3, 17)(layers.LearnedPositions(20)(y), memory)
    y = layers.Dense(5)(layers.LayerNormalization()(layers.Dropout(0.1)(y)))
    return keras.Model([source_ids, target_ids], y)


def test_padding_changes_nothing_in_a_functional_model_saved_and_loaded(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*does not support masking.*")
        model = translation_model()
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        source_ids, target_ids = (np.pad(ids, [(0, 0), (0, 3)]) for ids in (IDS, MEMORY_IDS))
        longer = model([source_ids, target_ids])
        again = loaded.predict([source_ids, target_ids], verbose=0)  # in a compiled function
    for row in range(2):
        alone = [ids[row][None, ids[row] != 0] for ids in (IDS, MEMORY_IDS)]
        expected = ops.convert_to_numpy(model(alone))
        for found in (longer, again):
            part = ops.convert_to_numpy(found)[row, : expected.shape[1]]
            np.testing.assert_allclose(part, expected[0], rtol=1e-4, atol=1e-5)


def test_decoding_step_by_step_honours_the_mask_of_the_source():
    layer = layers.MultiHeadAttention(3)
    memory, plain = embedded(MEMORY_IDS)
    query = ops.convert_to_tensor(np.random.default_rng(1).normal(size=(3, D)).astype("float32"))
    expected = ops.convert_to_numpy(layer(query[:, None], memory))[:, 0]
    weights = layer.memory_weights()
    found, without = (
        project_rows(
            layer.attend_to_memory(query, layer.start_memory(key), 1, weights), weights["output"]
        )
        for key in (memory, plain)
    )
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(ops.convert_to_numpy(without) - expected).max() > 1e-3


@pytest.mark.parametrize("return_state", [False, True])
def test_a_recurrent_encoder_leaves_out_the_padding_of_its_embedding(return_state):
    encoder = layers.RnnEncoder(keras.layers.Embedding(V, D, mask_zero=True), 2, units=7)
    expected = encoder(IDS, padding_mask=ops.convert_to_tensor(REAL), return_state=return_state)
    found = encoder(IDS, return_state=return_state)
    for x, y in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(x), ops.convert_to_numpy(y))


@pytest.mark.parametrize("attention", ["bahdanau", "luong", None])
def test_padding_changes_nothing_from_a_recurrent_encoder_to_its_decoder(attention):
    encoder = layers.RnnEncoder(keras.layers.Embedding(V, D, mask_zero=True), units=7)
    decoder = layers.RnnDecoder(layers.TokenEmbedding(V, D), units=7, attention=attention)
    more = np.pad(MEMORY_IDS, ((0, 0), (0, 3)))
    found, expected = (
        ops.convert_to_numpy(decoder(IDS[:, :4], encoder(ids))) for ids in (more, MEMORY_IDS)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    pooled = keras.layers.GlobalAveragePooling1D()(encoder(MEMORY_IDS))
    real = (MEMORY_IDS != 0)[..., None]
    mean = np.sum(ops.convert_to_numpy(encoder(MEMORY_IDS)) * real, 1) / real.sum(1)
    np.testing.assert_allclose(ops.convert_to_numpy(pooled), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["bahdanau", "luong", None])
def test_a_recurrent_decoder_leaves_out_the_padding_of_its_source(attention):
    decoder = layers.RnnDecoder(layers.TokenEmbedding(V, D), units=7, attention=attention)
    memory, plain = embedded(MEMORY_IDS)
    real = ops.convert_to_tensor(MEMORY_IDS != 0)
    expected = ops.convert_to_numpy(decoder(IDS[:, :4], plain, source_padding_mask=real))
    found = ops.convert_to_numpy(decoder(IDS[:, :4], memory))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(found - ops.convert_to_numpy(decoder(IDS[:, :4], plain))).max() > 1e-3
