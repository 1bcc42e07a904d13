"""The stacks as layers of their own; `Transformer` is tested on what they compute together."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import Decoder, Encoder, LayerNormalization, TokenEmbedding
from keras_transformer.layers.nested import nested_layers

B, T, D = 2, 6, 12
SIZES = dict(num_layers=2, num_heads=3, ff_dim=17)


@pytest.fixture
def ids():
    return np.random.default_rng(3).integers(4, 19, size=(B, T)).astype("int32")


def language_model(randomize, **options):
    decoder = Decoder(TokenEmbedding(19, D), **{**SIZES, **options}, cross_attention=None)
    decoder.build((None, None))
    return randomize(decoder)


@pytest.mark.parametrize("num_layers, layer", [(1, 0), (2, 0), (3, 1)])
def test_the_alignment_is_the_logarithm_of_the_weights_of_a_head(randomize, ids, num_layers, layer):
    """The first of the last layer but one. The outputs are the same as without it."""
    decoder = Decoder(
        TokenEmbedding(19, D), num_layers, num_heads=3, ff_dim=17, normalize_first=num_layers == 2
    )
    decoder.build((None, None), (None, None, D))
    randomize(decoder)
    source = np.random.default_rng(4).normal(size=(B, 4, D)).astype("float32")
    is_real = np.array([[True] * 4, [True] * 3 + [False]])
    output, _, cross = decoder(ids, source, is_real, return_attention_weights=True)
    same, log_weights = decoder(ids, source, is_real, return_log_alignment=True)
    output, same, cross, found = map(
        ops.convert_to_numpy, (output, same, cross[layer][:, 0], ops.exp(log_weights))
    )
    np.testing.assert_allclose(found, cross, atol=1e-6)
    assert not found[1, :, 3].any() and np.isfinite(ops.convert_to_numpy(log_weights)).all()
    np.testing.assert_allclose(same, output, atol=1e-6)


@pytest.mark.parametrize("stack_class", [Encoder, Decoder])
def test_each_block_has_an_attention_of_its_own(stack_class):
    """Performer's, for example, has random features."""
    stack = stack_class(TokenEmbedding(19, D), **SIZES)
    attentions = [block.self_attention.attention for block in stack.blocks]
    if stack_class is Decoder:
        attentions += [block.cross_attention.attention for block in stack.blocks]
    assert len(set(map(id, attentions))) == len(attentions)


VARIANTS = [
    {},
    dict(positions="learned", max_length=9, normalize_first=True),
    dict(positions="rotary", attention={"name": "local", "window": 2}, num_layers=1),
    dict(positions="alibi", num_layers=1),
    dict(attention="linear", num_layers=1),
    dict(attention="ssru", num_layers=1),
]


@pytest.mark.parametrize("options", VARIANTS)
def test_a_decoder_without_a_source_is_causal(randomize, ids, options):
    decoder = language_model(randomize, **options)
    before = ops.convert_to_numpy(decoder(ids))
    changed = ids.copy()
    changed[:, 4:] = 5
    after = ops.convert_to_numpy(decoder(changed))
    np.testing.assert_allclose(after[:, :4], before[:, :4], rtol=1e-5, atol=1e-5)
    assert np.any(np.abs(after[:, 4:] - before[:, 4:]) > 1e-2)


@pytest.mark.parametrize("options", VARIANTS)
def test_its_steps_equal_the_whole_pass(randomize, options):
    decoder, num_hypotheses = language_model(randomize, **options), 3
    rng = np.random.default_rng(4)
    ids = rng.integers(4, 19, size=(B * num_hypotheses, T)).astype("int32")
    whole = ops.convert_to_numpy(decoder(ids))
    state, weights = decoder.start_decoding(B * num_hypotheses, T + 2), decoder.decoding_weights()
    assert state.memory == [{}] * decoder.num_layers
    for step in range(T):
        tokens = ops.convert_to_tensor(ids[:, step].reshape(B, num_hypotheses))
        position = ops.convert_to_tensor(step, "int32")
        output, state = decoder.decode_step(tokens, position, state, weights)
        np.testing.assert_allclose(
            ops.convert_to_numpy(output), whole[:, step], rtol=1e-4, atol=1e-4
        )


def test_its_weights_are_those_of_the_self_attention_alone(randomize, ids):
    decoder = language_model(randomize)
    assert not decoder.gives_cross_weights
    _, self_weights, cross_weights = decoder(ids, return_attention_weights=True)
    assert cross_weights == []
    for weights in self_weights:
        weights = ops.convert_to_numpy(weights)
        assert weights.shape == (B, 3, T, T) and np.all(np.triu(weights, 1) == 0)
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "make, num_lists",
    [
        (lambda e: Decoder(e, **SIZES, cross_attention=None), 2),
        (lambda e: Decoder(e, 1, 3, 17, cross_attention=None, attention="linear"), 2),
        (lambda e: Encoder(e, 1, 3, 17), 1),
        (lambda e: Encoder(e, 1, 3, 17, attention="performer"), 1),
    ],
)
def test_its_weights_are_outputs_of_a_functional_model(ids, make, num_lists):
    """Also those of a stack that has none."""
    layer = make(TokenEmbedding(19, D))
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, layer(inputs, return_attention_weights=True))
    found = model(ids)
    output, *weights = layer(ids, return_attention_weights=True)
    assert len(weights) == num_lists and keras.tree.flatten(found)[0].shape == (B, T, D)
    assert len(keras.tree.flatten(found)) == 1 + len(keras.tree.flatten(weights))


@pytest.mark.parametrize(
    "dtypes", [("float32", "mixed_bfloat16"), ("mixed_bfloat16", "float32")], ids=str
)
def test_its_steps_take_embeddings_of_another_dtype(randomize, ids, dtypes):
    embedding = TokenEmbedding(19, D, dtype=dtypes[0])
    decoder = Decoder(embedding, **SIZES, cross_attention=None, dtype=dtypes[1])
    decoder.build((None, None))
    randomize(decoder)
    whole = ops.convert_to_numpy(ops.cast(decoder(ids), "float32"))
    state, weights = decoder.start_decoding(B, T), decoder.decoding_weights()
    for step in range(T):
        position = ops.convert_to_tensor(step, "int32")
        output, state = decoder.decode_step(ids[:, step : step + 1], position, state, weights)
        output = ops.convert_to_numpy(ops.cast(output, "float32"))
        np.testing.assert_allclose(output, whole[:, step], rtol=0.1, atol=0.1)


def test_two_stacks_may_share_an_embedding(randomize, ids):
    embedding = TokenEmbedding(19, D)
    encoder, decoder = Encoder(embedding, **SIZES), Decoder(embedding, **SIZES)
    decoder(ids, encoder(ids))
    assert encoder.embedding.weights[0] is decoder.embedding.weights[0]


def test_padding_is_not_attended_to(randomize, ids):
    encoder = Encoder(TokenEmbedding(19, D), **SIZES)
    encoder(ids)
    randomize(encoder)
    real = np.arange(T) < np.array([[4], [T]])
    before = ops.convert_to_numpy(encoder(ids, padding_mask=real))
    changed = np.where(real, ids, 7)
    after = ops.convert_to_numpy(encoder(changed, padding_mask=real))
    np.testing.assert_allclose(after[real], before[real], rtol=1e-5, atol=1e-5)
    assert np.any(
        ops.convert_to_numpy(encoder(changed))[0] != ops.convert_to_numpy(encoder(ids))[0]
    )


def test_errors():
    embedding = TokenEmbedding(19, D)
    with pytest.raises(ValueError, match="Received: num_layers=0"):
        Encoder(embedding, 0, 3, 17)
    with pytest.raises(ValueError, match="positions must be one of .*Received: positions='spiral'"):
        Encoder(embedding, **SIZES, positions="spiral")
    with pytest.raises(ValueError, match="Received: positions='alibi', attention='linear'"):
        Encoder(embedding, **SIZES, positions="alibi", attention="linear")
    with pytest.raises(ValueError, match="no distance .* Received: cross_attention='local'"):
        Decoder(embedding, **SIZES, cross_attention="local")
    ids = np.array([[5, 6]])
    with pytest.raises(ValueError, match="Expected an encoder_output .*Received: none"):
        Decoder(embedding, **SIZES)(ids)
    with pytest.raises(ValueError, match="Expected no encoder_output .*Received: one"):
        Decoder(embedding, **SIZES, cross_attention=None)(ids, np.zeros((1, 3, D)))


def test_every_normalization_has_the_epsilon_that_was_asked_for():
    arguments = dict(num_layers=2, num_heads=2, ff_dim=16, layer_norm_epsilon=0.125)
    for stack in (
        Encoder(TokenEmbedding(9, 8), **arguments, normalize_first=True),
        Decoder(TokenEmbedding(9, 8), **arguments),
    ):
        found = [
            layer.epsilon for layer in nested_layers(stack) if isinstance(layer, LayerNormalization)
        ]
        assert len(found) >= 5 and set(found) == {0.125}
