"""The language model: causality, padding, what it learns, sizes, and what it refuses."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.config.presets import model_preset
from keras_transformer.data import TextWindows
from keras_transformer.models import Gpt
from keras_transformer.training import Perplexity, TokenCrossEntropy
from tests.models.conftest import logits_of, randomized

SIZES = dict(num_layers=1, d_model=12, ff_dim=17, num_heads=3, max_length=9)
VOCAB_SIZE = 19

VARIANTS = {
    "GPT-2": dict(),
    "post-norm, untied": dict(normalize_first=False, tie_output=False, activation="relu"),
    "rotary, every id a token": dict(positions="rotary", pad_id=-1, end_id=None),
    "sinusoidal": dict(positions="sinusoidal"),
    "ALiBi, local": dict(positions="alibi", attention={"name": "local", "window": 2}),
    "linear": dict(attention="linear"),
}


def make(seed=7, **arguments):
    return randomized(Gpt(VOCAB_SIZE, **{**SIZES, **arguments}), seed, scale=0.4)


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    """No test changes it."""
    return make(**VARIANTS[request.param])


@pytest.fixture
def ids():
    """Two texts of 7 tokens."""
    return np.random.default_rng(3).integers(4, VOCAB_SIZE, size=(2, 7)).astype("int32")


def assert_equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_future_does_not_change_the_past(model, ids):
    before = logits_of(model, ids)
    assert before.shape == (2, 7, VOCAB_SIZE)
    ids[:, 4:] = [[7, 8, 9], [9, 4, 4]]
    after = logits_of(model, ids)
    assert_equal(after[:, :4], before[:, :4])
    assert np.all(np.abs(after - before)[:, 4:].max(axis=-1) > 1e-3)


def test_every_earlier_token_counts(ids):
    """Row i has another token at i; the last row has none."""
    changed = np.repeat(ids[:1], 8, axis=0)
    changed[range(7), range(7)] += 1 - 2 * (changed[range(7), range(7)] > 10)
    logits = logits_of(make(), changed)
    assert np.all(np.abs(logits - logits[7:])[:7, -1].max(axis=-1) > 1e-4)


def test_padding_and_neighbours_change_nothing(model, ids):
    together = np.pad(ids, ((0, 0), (0, 2)), constant_values=model.pad_id)
    together[1, 4:] = model.pad_id
    logits = logits_of(model, together)
    assert np.all(np.isfinite(logits))
    assert_equal(logits[:1, :7], logits_of(model, ids[:1]))
    assert_equal(logits[1:, :4], logits_of(model, ids[1:, :4]))


def test_attention_weights(ids):
    model = make(num_layers=2)
    logits, weights = model(ids, return_attention_weights=True)
    assert_equal(ops.convert_to_numpy(logits), logits_of(model, ids))
    assert set(weights) == {"decoder"} and len(weights["decoder"]) == 2
    for layer in weights["decoder"]:
        layer = ops.convert_to_numpy(layer)
        assert layer.shape == (2, 3, 7, 7)
        assert_equal(layer.sum(axis=-1), 1.0)
        assert np.all((layer > 0) == np.tri(7, dtype=bool))
    logits, weights = make(attention="linear")(ids, return_attention_weights=True)
    assert weights == {} and logits.shape == (2, 7, VOCAB_SIZE)


def test_dropout_acts_in_training_alone(ids):
    model = make(dropout=0.5)
    assert_equal(logits_of(model, ids), logits_of(model, ids))
    first, second = (ops.convert_to_numpy(model(ids, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 0.1


def test_the_tables_are_not_scaled_and_the_output_is_the_embedding(ids):
    """With one block whose sublayers give nothing, the model is its tables and a normalization."""
    model = make()
    (block,) = model.decoder.blocks
    for layer in (block.self_attention.output_projection, block.feed_forward.outer):
        layer.set_weights([0 * weight for weight in layer.get_weights()])
    table, positions = (
        layer.get_weights()[0] for layer in (model.embedding, model.decoder.position_layer)
    )
    x = table[ids] + positions[:7]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    gamma, beta = model.decoder.norm.get_weights()
    assert_equal(logits_of(model, ids), (x * gamma + beta) @ table.T)


def test_mixed_precision(ids):
    model = make(dtype="mixed_bfloat16")
    assert ops.dtype(model(ids)) == "bfloat16"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    expected = logits_of(make(), ids)
    assert np.abs(logits_of(model, ids) - expected).max() < 0.1 * expected.std()
    assert_equal(logits_of(model, ids.astype("float32")), logits_of(model, ids))
    large = Gpt(997, **SIZES, dtype="mixed_bfloat16")
    odd = np.array([[995, 513, 3]])
    assert_equal(logits_of(large, odd.astype("float32")), logits_of(large, odd))


@pytest.mark.parametrize("name", ["GPT-2", "ALiBi, local", "linear"])
def test_compiled_for_any_size(name, ids):
    model = make(**VARIANTS[name])
    function = backend.compile_function(lambda ids: model(ids))
    for part in (ids, ids[:1, :4]):
        found = ops.convert_to_numpy(function(ops.convert_to_tensor(part)))
        assert_equal(found, logits_of(model, part))
    if keras.backend.backend() == "tensorflow":
        assert function(ids[:0]).shape == (0, 7, VOCAB_SIZE)


def parameters(vocab_size, num_layers, d_model, max_length, tie_output=True):
    """The number of parameters of GPT-2, in which the feed-forward networks are 4 D wide."""
    attention = 4 * (d_model * d_model + d_model)  # query, key, value, output
    feed_forward = 4 * d_model * d_model + 4 * d_model + 4 * d_model * d_model + d_model
    blocks = num_layers * (attention + feed_forward + 4 * d_model)
    tables = (vocab_size + max_length + (0 if tie_output else vocab_size)) * d_model
    return tables + blocks + 2 * d_model


def test_the_number_of_parameters_is_what_a_real_model_holds():
    for tie_output in (True, False):
        model = make(num_layers=2, ff_dim=None, tie_output=tie_output)
        assert model.count_params() == parameters(VOCAB_SIZE, 2, 12, 9, tie_output)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("gpt2_small", 124_439_808),
        ("gpt2_medium", 354_823_168),
        ("gpt2_large", 774_030_080),
        ("gpt2_xl", 1_557_611_200),
    ],
)
def test_the_sizes_of_gpt_2(name, expected):
    """The numbers of parameters of the published models, from the arguments of the presets."""
    preset = model_preset(name, "gpt")
    sizes = {key: preset.pop(key) for key in ("num_layers", "d_model")}
    assert parameters(50_257, **sizes, max_length=1024) == expected
    assert preset == {"num_heads": sizes["d_model"] // 64, "ff_dim": 4 * sizes["d_model"]}


def test_the_defaults_are_gpt_2_small(without_values):
    of_preset = dict(ff_dim=None)  # 4 d_model, as in the preset
    model = without_values(Gpt.from_preset, "gpt2_small", 50_257, **of_preset)
    assert (model.max_length, model.tie_output, model.positions) == (1024, True, "learned")
    default = without_values(Gpt, 50_257, name=model.name)
    assert default.get_config() == model.get_config()


@pytest.mark.slow
def test_gpt_2_small_takes_a_step():
    model = Gpt.from_preset("gpt2_small", 50_257)
    model.compile(keras.optimizers.SGD(0.01), TokenCrossEntropy(0.0))
    ids = np.random.default_rng(1).integers(4, 50_257, size=(1, 17))
    losses = [
        float(model.train_on_batch(ids[:, :-1], ids[:, 1:], np.full((1, 16), 1 / 16)))
        for _ in range(2)
    ]
    assert abs(losses[0] - np.log(50_257)) < 1 and losses[1] < losses[0]


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(TokenCrossEntropy(0.0), id="ours"),
        pytest.param("stock", id="stock", marks=pytest.mark.slow),
    ],
)
def test_learns_a_text_that_repeats(loss, eagerly):
    """Given 4 it can be 5 or 6: the token before it decides."""
    keras.utils.set_random_seed(5)
    text = np.tile([7, 4, 5, 8, 4, 6], 40)  # windows of 13 begin at each place of the six
    model = Gpt(12, num_layers=1, d_model=16, num_heads=2, dropout=0.0, max_length=13, end_id=None)
    metrics = []
    if loss == "stock":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    else:
        metrics = [Perplexity()]
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=metrics)
    assert model.needs_no_logits == bool(metrics)
    windows = TextWindows(text, length=13, batch_size=14)
    model.fit(windows.arrays(), steps_per_epoch=60, epochs=1, verbose=0)
    valid = TextWindows(text, length=13, batch_size=14, shuffle=False, stride=4)
    inputs, labels, weights = next(valid.arrays())
    probabilities = np.take_along_axis(
        ops.convert_to_numpy(ops.softmax(model(inputs))), labels[..., None], axis=-1
    )
    # ln(2) / 3 = 0.23 with the last token alone
    assert -np.sum(weights * np.log(probabilities[..., 0])) < 0.15
    texts = model.generate([[5, 8], [4, 5, 8, 4], [7]], max_new_tokens=6)
    assert [text.tolist() for text in texts] == [
        [5, 8, 4, 6, 7, 4, 5, 8],
        [4, 5, 8, 4, 6, 7, 4, 5, 8, 4],
        [7, 4, 5, 8, 4, 6, 7],
    ]


def test_errors(ids):
    with pytest.raises(ValueError, match="Received: d_model=10, num_heads=3"):
        Gpt(23, d_model=10, num_heads=3)
    with pytest.raises(ValueError, match="Received: num_layers=0"):
        Gpt(23, num_layers=0)
    with pytest.raises(ValueError, match="Received: positions='spiral'"):
        Gpt(23, positions="spiral")
    with pytest.raises(ValueError, match="Received: activation='gelu_fast'"):
        Gpt(23, activation="gelu_fast")
    bad_ends = [dict(end_id=end_id) for end_id in (0, 1, 2, 23)]
    for wrong in (dict(pad_id=3), *bad_ends, dict(pad_id=-1, end_id=-1)):
        with pytest.raises(ValueError, match="pad_id must be 0 or -1, and end_id"):
            Gpt(23, **wrong)
    with pytest.raises(ValueError, match="Received: a preset='base'|gpt2_small"):
        Gpt.from_preset("base", 23)
    for size in ("abc", None, 2.5):
        with pytest.raises(ValueError, match="vocab_size must be a whole number"):
            Gpt(size)
    with pytest.raises(ValueError, match="Received: pad_id=0, end_id=3, vocab_size=2. Give a larg"):
        Gpt(2)
    with pytest.raises(ValueError, match="Received: pad_id=0, end_id=x"):
        Gpt(23, end_id="x")
    model = make()
    with pytest.raises(ValueError, match=r"\(B, T\). Received: shape=\(7,\)"):
        model(ids[0])
    with pytest.raises(ValueError, match=r"\(B, T\). Received: dict"):
        model({"ids": ids})
    with pytest.raises(ValueError, match="max_length=9 positions long"):
        model(np.ones((1, 10), "int32"))
    with pytest.raises(ValueError, match="cannot be quantized"):
        model.quantize("int8")
