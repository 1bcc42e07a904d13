"""The Transformer: causality, padding, weights of the attention, and what it refuses."""

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_transformer import RnnSeq2Seq, Transformer, backend
from keras_transformer.layers import sinusoidal_encoding
from keras_transformer.models.translation_model import output_limits
from tests.models.conftest import logits_of


def assert_equal(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_the_future_padding_and_neighbours_change_nothing(shared_model, variant, batch):
    model = shared_model(**variant)
    before = logits_of(model, batch)
    assert before.shape == (2, 5, model.output_vocab_size)
    longer = {name: np.pad(ids, ((0, 0), (0, 4))) for name, ids in batch.items()}
    assert_equal(logits_of(model, longer)[:, :5], before)
    alone = {"source_ids": batch["source_ids"][1:, :4], "target_ids": batch["target_ids"][1:, :3]}
    assert_equal(logits_of(model, alone)[0], before[1, :3])
    batch["target_ids"][:, 3:] = [[7, 8], [9, 4]]
    after = logits_of(model, batch)
    assert_equal(after[:, :3], before[:, :3])
    assert np.all(np.abs(after - before)[:, 3:].max(axis=-1) > 1e-3)


def test_every_source_piece_and_every_earlier_target_piece_counts(
    shared_model, dense_variant, batch
):
    """Row i of the first 7 has another source piece at i, row 7 + i another target piece."""
    changed = {name: np.repeat(ids[:1], 13, axis=0) for name, ids in batch.items()}
    changed["source_ids"][range(7), range(7)] += 1
    changed["target_ids"][range(7, 12), range(5)] += 1
    logits = logits_of(shared_model(**dense_variant), changed)
    difference = np.abs(logits - logits[12:])[:, -1].max(axis=-1)
    assert np.all(difference[:12] > 1e-4)


def test_is_made_of_its_layers(shared_model, dense_variant, batch):
    """The way of the data, from layers whose own tests hold them to NumPy."""
    model = shared_model(**dense_variant)
    parts = {}
    for side in ("source", "target"):
        embedding = getattr(model, f"{side}_embedding")
        x = embedding.get_weights()[0][batch[f"{side}_ids"]]
        x = x * 12**0.5 if dense_variant.get("scale_embeddings", True) else x
        positions = np.arange(x.shape[1])
        if dense_variant.get("positions") == "learned":
            stack = {"source": model.encoder, "target": model.decoder}[side]
            table = stack.position_layer.get_weights()[0]
            parts[side] = x + table[positions]
        else:
            names = {"position_layout": "layout", "position_base": "base"}
            options = {names[key]: dense_variant[key] for key in names if key in dense_variant}
            parts[side] = x + ops.convert_to_numpy(sinusoidal_encoding(positions, 12, **options))
    real = batch["source_ids"] != 0
    source = parts["source"]
    for block in model.encoder.blocks:
        source = block(source, padding_mask=real)
    if model.normalize_first:
        source = model.encoder.norm(source)
    target = parts["target"]
    for block in model.decoder.blocks:
        target = block(target, source, source_padding_mask=real)
    if model.normalize_first:
        target = model.decoder.norm(target)
    output_layer = model.target_embedding.get_weights()[0].T
    if not model.tie_output:
        (output_layer,) = model.output_layer.get_weights()
    expected = ops.convert_to_numpy(target) @ output_layer
    if model.output_bias:
        (biases,) = (w.numpy() for w in model.weights if w.name == "output_biases")
        assert np.abs(biases).min() > 0
        expected = expected + biases
    assert_equal(logits_of(model, batch), expected)


def test_a_sentence_of_padding_alone_is_finite(shared_model, batch):
    batch["source_ids"][1] = 0
    batch["target_ids"][1] = 0
    assert np.all(np.isfinite(logits_of(shared_model(), batch)))


def test_attention_weights(shared_model, variants, batch):
    model = shared_model(**variants["all at once"])
    logits, weights = model(batch, return_attention_weights=True)
    assert_equal(ops.convert_to_numpy(logits), logits_of(model, batch))
    assert {name: len(layers) for name, layers in weights.items()} == {
        "encoder": 1,
        "decoder": 2,
        "cross": 2,
    }
    shapes = {"encoder": (2, 3, 7, 7), "decoder": (2, 3, 5, 5), "cross": (2, 3, 5, 7)}
    real = np.broadcast_to((batch["source_ids"] != 0)[:, None, None], (2, 3, 5, 7))
    seen = {
        "encoder": np.broadcast_to(real[:, :, :1], (2, 3, 7, 7)),
        "decoder": np.broadcast_to(np.tri(5, dtype=bool), (2, 3, 5, 5)),
        "cross": real,
    }
    for name, layers in weights.items():
        for layer in layers:
            layer = ops.convert_to_numpy(layer)
            assert layer.shape == shapes[name]
            assert_equal(layer.sum(axis=-1), 1.0)
            assert np.all((layer > 0) == seen[name])


def test_attention_weights_of_sparse_attention_and_none_of_linear(make_model, batch):
    options = dict(attention={"name": "local", "window": 2}, num_decoder_layers=1)
    _, weights = make_model(**options)(batch, return_attention_weights=True)
    distances = np.arange(5)[:, None] - np.arange(5)
    for layer in weights["decoder"]:
        layer = ops.convert_to_numpy(layer)
        assert_equal(layer.sum(axis=-1), 1.0)
        assert np.all((layer > 0) == ((distances >= 0) & (distances <= 2)))
    model = make_model(attention="linear")
    logits, weights = model(batch, return_attention_weights=True)
    assert_equal(ops.convert_to_numpy(logits), logits_of(model, batch))
    assert set(weights) == {"cross"} and len(weights["cross"]) == 2


def test_encode_is_the_first_half(shared_model, batch):
    model = shared_model()
    encoder_output = ops.convert_to_numpy(model.encode(batch["source_ids"]))
    assert encoder_output.shape == (2, 7, 12)
    longer = ops.convert_to_numpy(model.encode(np.pad(batch["source_ids"], ((0, 0), (0, 3)))))
    real = batch["source_ids"] != 0
    assert_equal(longer[:, :7][real], encoder_output[real])


def test_one_table_or_two(shared_model):
    shared = shared_model()
    assert shared.source_embedding is shared.target_embedding
    for arguments in (dict(share_embeddings=False), dict(target_vocab_size=19)):
        separate = shared_model(**arguments)
        assert separate.source_embedding is not separate.target_embedding
        assert separate.source_embedding.vocab_size == 23
        assert separate.target_embedding.vocab_size == arguments.get("target_vocab_size", 23)


def test_the_output_is_the_embedding_where_tied(make_model, batch):
    """Adding to one piece's embedding moves that piece's logits, by the hidden state's share."""
    model = make_model(share_embeddings=False)
    before = logits_of(model, batch)
    (table,) = model.target_embedding.get_weights()
    table[22] *= 2.0  # a piece that no target has
    model.target_embedding.set_weights([table])
    after = logits_of(model, batch)
    assert_equal(after[..., 22], 2 * before[..., 22])
    assert_equal(after[..., :22], before[..., :22])

    model = make_model(share_embeddings=False, tie_output=False)
    before = logits_of(model, batch)
    model.target_embedding.set_weights([table])
    assert_equal(logits_of(model, batch), before)


def test_ids_as_floats(shared_model, batch):
    model = shared_model()
    as_floats = {name: ids.astype("float32") for name, ids in batch.items()}
    np.testing.assert_array_equal(logits_of(model, as_floats), logits_of(model, batch))


def test_mixed_precision_comes_close(make_model, shared_model, batch):
    model, exact = make_model(dtype="mixed_bfloat16"), shared_model()
    logits = model(batch)
    assert ops.dtype(logits) == "bfloat16"
    assert {weight.dtype for weight in model.weights} == {"float32"}
    expected = logits_of(exact, batch)
    assert np.abs(logits_of(model, batch) - expected).max() < 0.1 * expected.std()

    step_fn, state, *_ = model.start_decoding(batch["source_ids"], 5)
    assert {ops.dtype(part) for part in tree.flatten(state.cache)} == {"bfloat16"}
    logits, _ = step_fn(
        ops.convert_to_tensor(batch["target_ids"][:, :1]),
        ops.convert_to_tensor(0, "int32"),
        state,
    )
    assert ops.dtype(logits) == "float32"
    first = ops.convert_to_numpy(logits)[:, 0]
    assert np.abs(first - expected[:, 0]).max() < 0.1 * expected.std()


def test_mixed_precision_keeps_ids_that_come_as_floats():
    model = Transformer(997, num_layers=1, d_model=8, ff_dim=5, num_heads=2, dtype="mixed_bfloat16")
    batch = {"source_ids": np.array([[995, 513, 3]]), "target_ids": np.array([[2, 995]])}
    as_floats = {name: ids.astype("float32") for name, ids in batch.items()}
    np.testing.assert_array_equal(logits_of(model, as_floats), logits_of(model, batch))


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="the next test does more")
def test_compiled_with_other_shapes(make_model, batch):
    model = make_model()
    function = backend.compile_function(
        lambda source_ids, target_ids: model({"source_ids": source_ids, "target_ids": target_ids})
    )
    for rows, source_length, target_length in ((2, 7, 5), (1, 4, 3)):
        part = {
            "source_ids": ops.convert_to_tensor(batch["source_ids"][:rows, :source_length]),
            "target_ids": ops.convert_to_tensor(batch["target_ids"][:rows, :target_length]),
        }
        assert_equal(ops.convert_to_numpy(function(*part.values())), logits_of(model, part))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="shapes unknown in a graph")
def test_one_graph_for_unknown_batch_and_lengths(shared_model, graph_variant, batch):
    import tensorflow as tf

    model = shared_model(**{**graph_variant, "num_decoder_layers": 1})
    ids = tf.TensorSpec([None, None], "int32")
    function = tf.function(
        lambda source_ids, target_ids: model({"source_ids": source_ids, "target_ids": target_ids}),
        input_signature=[ids, ids],
        autograph=False,
    )
    shape = function.get_concrete_function().output_shapes
    assert shape.as_list() == [None, None, model.output_vocab_size]
    assert function(np.zeros((0, 2), "int32"), np.zeros((0, 1), "int32")).shape[:2] == (0, 1)
    for rows, source_length, target_length in ((2, 7, 5), (1, 4, 3)):
        part = {
            "source_ids": batch["source_ids"][:rows, :source_length],
            "target_ids": batch["target_ids"][:rows, :target_length],
        }
        assert_equal(function(**part), logits_of(model, part))


def test_from_preset():
    model = Transformer.from_preset("tiny", 23, num_layers=1, target_vocab_size=19)
    assert (model.d_model, model.num_heads, model.normalize_first) == (128, 4, True)
    assert (model.num_layers, model.dropout, model.output_vocab_size) == (1, 0.3, 19)


def test_errors():
    with pytest.raises(ValueError, match="Received: d_model=10, num_heads=3"):
        Transformer(23, d_model=10, num_heads=3)
    with pytest.raises(ValueError, match="Received: d_model=512, num_heads=0"):
        Transformer(23, num_heads=0)
    with pytest.raises(ValueError, match="Received: positions='spiral'"):
        Transformer(23, positions="spiral")
    with pytest.raises(ValueError, match="Received: attention='sparse'"):
        Transformer(23, attention="sparse")
    with pytest.raises(ValueError, match="no distance .* Received: cross_attention='local'"):
        Transformer(23, cross_attention="local")
    with pytest.raises(ValueError, match="ALiBi as the positions of the model. Received: "):
        Transformer(23, attention={"name": "dense", "alibi": True})
    with pytest.raises(ValueError, match="Received: positions='alibi', attention='linear'"):
        Transformer(23, positions="alibi", attention="linear")
    with pytest.raises(ValueError, match="Received: num_layers=0"):
        Transformer(23, num_layers=0)
    with pytest.raises(ValueError, match="num_decoder_layers=0"):
        Transformer(23, num_decoder_layers=0)
    with pytest.raises(ValueError, match="Received: vocab_size=0"):
        Transformer(0)
    with pytest.raises(ValueError, match="Received: vocab_size=0"):
        Transformer(23, target_vocab_size=0)
    with pytest.raises(ValueError, match="Received: ff_dim=0"):
        Transformer(23, ff_dim=0)
    with pytest.raises(ValueError, match="d_model=0"):
        Transformer(23, d_model=0)
    with pytest.raises(ValueError, match="Received: max_length=0"):
        Transformer(23, positions="learned", max_length=0)
    with pytest.raises(ValueError, match="Received: dropout=1.0"):
        Transformer(23, dropout=1.0)


def test_an_output_has_at_most_twice_the_tokens_of_its_source_and_ten():
    sources = np.array([[5, 6, 7, 3, 0], [5, 3, 0, 0, 0], [3, 0, 0, 0, 0]], "int32")
    for max_length, expected, longest in ((15, [15, 12, 10], 15), (99, [16, 12, 10], 20)):
        limits, largest = output_limits(sources, max_length)
        np.testing.assert_array_equal(ops.convert_to_numpy(limits), expected)
        assert largest == longest


def test_an_odd_width_has_sinusoidal_positions_too():
    model = Transformer(23, d_model=9, num_heads=3, num_layers=1, ff_dim=7)
    ids = np.ones((2, 5), "int32")
    assert model({"source_ids": ids, "target_ids": ids}).shape == (2, 5, 23)


def test_a_length_over_the_learned_positions_is_refused(make_model, batch):
    model = make_model(positions="learned", max_length=6)
    with pytest.raises(ValueError, match="max_length=6"):
        model(batch)


@pytest.mark.parametrize("model_class", [Transformer, RnnSeq2Seq])
def test_inputs_that_do_not_fit_are_refused(model_class):
    model = model_class(23, d_model=8, num_layers=1)
    ids = np.ones((2, 5), "int32")
    for inputs, message in (
        ([ids, ids], 'Expected inputs {"source_ids".* Received: list'),
        (ids, 'Expected inputs {"source_ids"'),
        ({"source_ids": ids}, "Received: .'source_ids'."),
        ({"source_ids": ids, "target_ids": ids[0]}, r"target_ids.shape=\(5,\)"),
        ({"source_ids": ids[..., None], "target_ids": ids}, r"source_ids.shape=\(2, 5, 1\)"),
        (
            {"source_ids": ids, "target_ids": ids[:1]},
            r"same batch size .*target_ids.shape=\(1, 5\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            model(inputs)
