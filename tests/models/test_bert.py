"""BERT: its parameters, what each output may depend on, its heads and bad input."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.models import Bert, BertClassifier, BertPretraining, BertTokenClassifier
from tests.models.conftest import randomized

# No two sizes equal. To find shapes, Keras calls a model on 83 or 89 tokens on PyTorch.
SIZES = dict(num_layers=1, d_model=12, ff_dim=17, num_heads=3, dropout=0.1, max_length=97)
VOCAB_SIZE = 23


@pytest.fixture(scope="module")
def bert():
    return randomized(Bert(VOCAB_SIZE, **SIZES))


@pytest.fixture(scope="module")
def models(bert):
    """A `Bert` and those on top of it, by name. No test changes them."""
    return all_models(bert)


@pytest.fixture
def batch():
    """Pairs of segments, of 7 and 5 tokens."""
    ids = np.array([[2, 5, 9, 3, 7, 4, 3], [2, 8, 3, 11, 3, 0, 0]], "int32")
    segment_ids = np.array([[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0]], "int32")
    return {"ids": ids, "segment_ids": segment_ids}


def call(model, inputs, **options):
    return keras.tree.map_structure(ops.convert_to_numpy, model(inputs, **options))


def sequence(model, inputs):
    return call(model, inputs)["sequence_output"]


def test_the_parameters_of_the_base_model(without_values):
    """Those of BERT-base, uncased; the paper says 110 million. One of its 12 blocks is made."""
    base = without_values(Bert.from_preset, "bert_base", 30_522)
    assert without_values(Bert, 30_522, name=base.name).get_config() == base.get_config()
    assert base.num_layers == len(base.encoder.blocks) == 12

    def count(head=lambda bert: bert, **arguments):
        bert = without_values(Bert.from_preset, "bert_base", 30_522, num_layers=1, **arguments)
        model = without_values(head, bert)
        whole, block = (
            sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights)
            for layer in (model, bert.encoder.blocks[0])
        )
        return whole + 11 * block

    assert count() == 109_482_240
    assert count(BertPretraining, pooler=False) == 109_514_298
    assert count(lambda bert: BertPretraining(bert, next_sentence=True)) == 110_106_428


@pytest.mark.slow
def test_a_step_of_the_base_model():
    model = BertPretraining(Bert.from_preset("bert_base", 30_522), next_sentence=True)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids, positions = np.full((2, 16), 7), np.array([[3, 5], [1, 2]])
    labels = {"masked_tokens": np.array([[9, 8], [7, 6]]), "next_sentence": np.array([0, 1])}
    loss = model.train_on_batch({"ids": ids, "masked_positions": positions}, labels)
    assert np.all(np.isfinite(loss))
    assert model.count_params() == 110_106_428


def test_every_output_depends_on_every_token(bert, batch):
    """And so both on what comes before and on what comes after."""
    before = sequence(bert, batch)[0]
    for changed in range(7):
        batch["ids"][0, changed] = 13
        after = sequence(bert, batch)[0]
        assert np.all(np.abs(after - before).max(axis=-1) > 1e-3), changed
        before = after


def test_the_segments_count(bert, batch):
    without = sequence(bert, {"ids": batch["ids"]})
    zeros = {**batch, "segment_ids": np.zeros_like(batch["ids"])}
    np.testing.assert_array_equal(sequence(bert, zeros), without)
    np.testing.assert_array_equal(sequence(bert, batch["ids"]), without)
    assert np.abs(sequence(bert, batch) - without).max() > 1e-2


def test_padding_and_neighbours_do_not_count(bert, batch):
    together = call(bert, batch)
    alone = call(bert, {name: value[1:, :5] for name, value in batch.items()})
    np.testing.assert_allclose(
        alone["sequence_output"][0], together["sequence_output"][1, :5], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        alone["pooled_output"][0], together["pooled_output"][1], rtol=1e-4, atol=1e-5
    )
    batch["segment_ids"][1, 5:] = 1
    other = call(bert, batch)
    np.testing.assert_array_equal(
        other["sequence_output"][1, :5], together["sequence_output"][1, :5]
    )


def test_the_order_counts_with_positions_alone(bert):
    ids, order = np.array([[2, 5, 9, 7, 4, 3]]), [0, 3, 1, 5, 2, 4]
    there, moved = sequence(bert, ids), sequence(bert, ids[:, order])
    assert np.abs(moved - there[:, order]).max() > 0.1
    without = randomized(Bert(VOCAB_SIZE, **SIZES, positions=None))
    there, moved = sequence(without, ids), sequence(without, ids[:, order])
    np.testing.assert_allclose(moved, there[:, order], rtol=1e-4, atol=1e-5)
    assert sequence(without, np.full((1, 98), 7)).shape == (1, 98, 12)  # above max_length


def test_the_pooled_output(bert, batch):
    outputs = call(bert, batch)
    kernel, bias = bert.pooler_layer.get_weights()
    expected = np.tanh(outputs["sequence_output"][:, 0] @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, rtol=1e-4, atol=1e-5)
    without = Bert(VOCAB_SIZE, **SIZES, pooler=False)
    assert call(without, batch).keys() == {"sequence_output"}


def test_logits_at_masked_positions_are_those_of_all_positions(bert, batch):
    model = randomized(BertPretraining(bert))
    positions = np.array([[3, 1, 0], [4, 4, 2]])
    every = call(model, batch)
    masked = call(model, {**batch, "masked_positions": positions})
    expected = np.take_along_axis(every, positions[:, :, None], axis=1)
    np.testing.assert_allclose(masked, expected, rtol=1e-4, atol=1e-4)
    outside = call(model, {**batch, "masked_positions": np.array([[7, -1, 8], [99, 7, 7]])})
    assert np.all(np.isfinite(outside))
    np.testing.assert_allclose(outside, np.broadcast_to(outside[:1, :1], outside.shape), rtol=1e-5)


def all_models(bert):
    return {
        "bert": bert,
        "pretraining": randomized(BertPretraining(bert, next_sentence=True)),
        "classifier": randomized(BertClassifier(bert, num_classes=5, dropout=0.2)),
        "token classifier": randomized(BertTokenClassifier(bert, num_classes=4, dropout=0.3)),
    }


SHAPES = {
    "bert": {"sequence_output": (2, 7, 12), "pooled_output": (2, 12)},
    "pretraining": {"masked_tokens": (2, 7, 23), "next_sentence": (2, 2)},
    "classifier": (2, 5),
    "token classifier": (2, 7, 4),
}


def shapes(outputs):
    return {k: v.shape for k, v in outputs.items()} if isinstance(outputs, dict) else outputs.shape


def test_attention_weights(batch):
    for name, model in all_models(
        randomized(Bert(VOCAB_SIZE, **{**SIZES, "num_layers": 2}))
    ).items():
        outputs, weights = call(model, batch, return_attention_weights=True)
        assert shapes(outputs) == SHAPES[name]
        keras.tree.map_structure(np.testing.assert_array_equal, outputs, call(model, batch))
        (weights,) = weights.values()
        assert [layer.shape for layer in weights] == [(2, 3, 7, 7)] * 2
        np.testing.assert_allclose(weights[1].sum(axis=-1), 1.0, rtol=1e-5)
        assert np.all(weights[1][1, :, :, 5:] == 0)


def test_a_functional_model_and_a_compiled_graph_of_unknown_sizes(models, batch):
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in batch}
    for name, model in list(models.items())[:2]:
        functional = keras.Model(inputs, model(inputs))
        found, expected = call(functional, batch), call(model, batch)
        assert shapes(found) == SHAPES[name]
        keras.tree.map_structure(np.testing.assert_array_equal, found, expected)
        if name == "bert":  # the heads add a few operations
            continue
        compiled = backend.compile_function(lambda ids, model=model: model({"ids": ids}))
        for ids in (batch["ids"], batch["ids"][:1, :4]):
            found = keras.tree.map_structure(ops.convert_to_numpy, compiled(ids))
            keras.tree.map_structure(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
                found,
                call(model, ids),
            )


def test_nothing_real_gives_finite_outputs(models):
    for model in models.values():
        outputs = call(model, np.array([[2, 5, 3], [0, 0, 0]]))
        assert all(np.all(np.isfinite(output)) for output in keras.tree.flatten(outputs))
        outputs = call(model, np.zeros((0, 3), "int32"))
        assert {len(output) for output in keras.tree.flatten(outputs)} == {0}


def test_mixed_precision(models, batch):
    bert = randomized(Bert(VOCAB_SIZE, **SIZES, dtype="mixed_bfloat16"))
    for name, model in all_models(bert).items():
        assert model.dtype_policy.name == "mixed_bfloat16"
        assert {weight.dtype for weight in model.weights if "seed" not in weight.path} <= {
            "float32"
        }
        outputs, expected = model(batch), call(models[name], batch)
        for output, other in zip(*map(keras.tree.flatten, (outputs, expected)), strict=True):
            assert ops.dtype(output) == "bfloat16"
            difference = ops.convert_to_numpy(ops.cast(output, "float32")) - other
            assert np.abs(difference).max() < 0.1 * np.abs(other).max()


def test_a_copy_by_its_config_is_the_same_model(models):
    for model in models.values():
        config = model.get_config()
        assert type(model).from_config(config).get_config() == config
    arguments = dict(positions=None, num_segments=5, activation="relu", layer_norm_epsilon=0.1)
    config = Bert(VOCAB_SIZE, **SIZES, **arguments, pooler=False).get_config()
    assert {**config, **SIZES, **arguments, "pooler": False} == config


def test_heads_share_the_encoder(batch, run_eagerly):
    """What a classifier learns moves the `Bert` that others read."""
    bert = randomized(Bert(VOCAB_SIZE, **SIZES))
    before = sequence(bert, batch)
    model = BertClassifier(bert, num_classes=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=run_eagerly)
    model.train_on_batch(batch, np.array([0, 1]))
    assert np.abs(sequence(bert, batch) - before).max() > 1e-3


def test_dropout_is_applied_in_training_alone(models, batch):
    for model in models.values():
        first, second = (keras.tree.flatten(call(model, batch, training=True)) for _ in range(2))
        assert all(np.any(a != b) for a, b in zip(first, second, strict=True))


def test_it_learns_to_fill_in_what_both_sides_tell():
    """Each row is x y x y x y ..., so that a masked token is told by its second neighbours."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    rows = np.tile(rng.integers(4, 22, size=(1500, 2)), 4).astype("int32")
    positions = rng.permuted(np.tile(np.arange(8), (1500, 1)), axis=1)[:, :2].astype("int32")
    labels = np.take_along_axis(rows, positions, axis=1)
    np.put_along_axis(rows, positions, 22, axis=1)
    sizes = dict(num_layers=1, d_model=32, ff_dim=64, num_heads=2, dropout=0.0, max_length=8)
    model = BertPretraining(Bert(VOCAB_SIZE, **sizes, pooler=False))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    inputs = {"ids": rows[:1350], "masked_positions": positions[:1350]}
    model.fit(inputs, labels[:1350], batch_size=64, epochs=3, verbose=0)
    held_out = call(model, {"ids": rows[1350:], "masked_positions": positions[1350:]})
    assert np.mean(held_out.argmax(axis=-1) == labels[1350:]) > 0.9


def test_bad_input(bert, batch):
    with pytest.raises(ValueError, match=r"divisible by num_heads. Received: d_model=12, num_h"):
        Bert(VOCAB_SIZE, d_model=12, num_heads=5)
    with pytest.raises(ValueError, match="positions must be one of .* Received: positions='rot"):
        Bert(VOCAB_SIZE, positions="rotary")
    with pytest.raises(ValueError, match="num_segments must be a whole number"):
        Bert(VOCAB_SIZE, num_segments=0)
    with pytest.raises(ValueError, match="a preset.* bert_base. Received: tiny"):
        Bert.from_preset("tiny", VOCAB_SIZE)
    with pytest.raises(ValueError, match="at most max_length=97 positions long"):
        bert(np.zeros((2, 98), "int32"))
    segment_ids = batch["segment_ids"]
    for inputs in (dict(segment_ids=segment_ids), {**batch, "mask": segment_ids}, dict(ids=None)):
        with pytest.raises(ValueError, match="Expected a dict of ids and"):
            bert(inputs)
    for ids, segment_ids in (([5], [0]), ([[5, 6]], [0, 1]), ([[5, 6]], [[0, 1, 1]])):
        with pytest.raises(ValueError, match=r"one shape, \(B, T\)"):
            bert({"ids": np.array(ids), "segment_ids": np.array(segment_ids)})
    with pytest.raises(ValueError, match=r"masked_positions must have shape \(B, M\)"):
        BertPretraining(bert)({**batch, "masked_positions": np.array([1, 2])})
    with pytest.raises(ValueError, match=r"with the B of the ids. .*shape=\(1, 2\), B="):
        BertPretraining(bert)({**batch, "masked_positions": np.array([[1, 2]])})
    with pytest.raises(ValueError, match=r"Expected ids \(B, T\), or a dict .*list"):
        bert([batch["ids"], batch["ids"]])
    with pytest.raises(ValueError, match="bert must be a Bert"):
        BertClassifier("bert_base", 2)
    without = Bert(VOCAB_SIZE, **SIZES, pooler=False)
    for make in (lambda: BertClassifier(without, 2), lambda: BertPretraining(without, True)):
        with pytest.raises(ValueError, match="reads the pooled output. Received: .*pooler=False"):
            make()
    with pytest.raises(ValueError, match="num_classes must be a whole number"):
        BertClassifier(bert, 0)
    with pytest.raises(ValueError, match="cannot be quantized"):
        bert.quantize("int8")
