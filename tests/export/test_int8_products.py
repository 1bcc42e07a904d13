"""Products in int8 are what a loop in NumPy computes, on every processor, row by row.

Shapes: R rows, D width of the input, F width of the output.
"""

import platform
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from keras_transformer.config.settings import processor_features
from keras_transformer.export import export_saved_model, int8_products
from keras_transformer.export.exportable import with_model
from keras_transformer.export.int8_products import Int8Kernel, check_bleu
from keras_transformer.export.quantized_weights import QuantizedWeights
from keras_transformer.export.verification import ExportError
from keras_transformer.models import Ensemble, RnnSeq2Seq, Transformer
from keras_transformer.translation.loading import load

R, D, F = 19, 40, 70
IS_LINUX_ON_X86 = sys.platform == "linux" and platform.machine() == "x86_64"

needs_the_operation = pytest.mark.skipif(
    not IS_LINUX_ON_X86, reason="TensorFlow has no int8 product for this system"
)


@pytest.fixture
def small_weights(monkeypatch):
    """Weights of up to 64, whose products are exact on every processor, and are then computed."""
    monkeypatch.setattr(int8_products, "LARGEST_WEIGHT", 64)
    monkeypatch.setattr(int8_products, "int8_is_exact", lambda: tf.constant(True))


@pytest.fixture
def arrays():
    rng = np.random.default_rng(1)
    x, kernel = rng.normal(size=(R, D)), rng.normal(size=(D, F)) * rng.uniform(0.1, 9, F)
    x[3] = 0.0
    x[4] *= 1e4  # a neighbour that would leave one step to all others
    return x.astype("float32"), kernel.astype("float32")


def reference(x, kernel, largest_weight):
    """The product as a loop: each row and each column has its scale, and sums are integers."""
    result = np.zeros((len(x), kernel.shape[1]))
    for i, row in enumerate(x):
        row_scale = max(np.abs(row).max(), 1e-30) / 127
        for j, column in enumerate(kernel.T):
            scale = np.abs(column).max() / largest_weight
            whole = np.rint(row / row_scale).astype(int) @ np.rint(column / scale).astype(int)
            result[i, j] = whole * row_scale * scale
    return result


def multiply(x, kernel, is_exact):
    quantized = Int8Kernel.of(tf.constant(kernel), tf.constant(is_exact))
    return tf.function(quantized.multiply_rows)(tf.constant(x)).numpy()


@pytest.mark.parametrize("is_exact", [False, pytest.param(True, marks=needs_the_operation)])
def test_it_is_the_product_of_whole_numbers(is_exact, small_weights, arrays):
    x, kernel = arrays
    expected, found = reference(*arrays, 64), multiply(*arrays, is_exact)
    step = np.abs(x).max(1, keepdims=True) / 127 * np.abs(kernel).max(0) / 64
    # a quotient near a half may be rounded to the other side: one step of an input or a weight
    assert np.mean(np.abs(found - expected) <= 0.01 * step) > 0.99
    np.testing.assert_allclose(found, x @ kernel, atol=0.1 * np.abs(x @ kernel).max(1).max())
    assert not found[3].any()


@needs_the_operation
def test_both_ways_compute_the_same(small_weights, arrays):
    ways = [multiply(*arrays, is_exact) for is_exact in (True, False)]
    np.testing.assert_allclose(*ways, rtol=1e-4, atol=1e-4)


@needs_the_operation
@pytest.mark.parametrize("num_rows", [1, 2, 16, 17])
def test_a_row_does_not_depend_on_its_neighbours(num_rows, small_weights, arrays):
    x, kernel = arrays
    together, some = multiply(x, kernel, True), multiply(x[:num_rows], kernel, True)
    np.testing.assert_array_equal(some, together[:num_rows])


def test_positions_of_texts_are_rows(arrays):
    x, kernel = arrays
    quantized = Int8Kernel.of(tf.constant(kernel), tf.constant(False))
    of_texts = tf.function(quantized.multiply, input_signature=[tf.TensorSpec([None, None, D])])
    texts = np.stack([x[:7], x[7:14]])
    expected = np.stack([multiply(text, kernel, False) for text in texts])
    np.testing.assert_allclose(of_texts(texts), expected, rtol=1e-5, atol=1e-5)
    assert of_texts(texts[:, :0]).shape == (2, 0, F)


@needs_the_operation
def test_the_operation_is_exact_within_a_loop():
    """If this fails, TensorFlow has changed `_QuantizedMatMul`, which is internal to it."""
    assert int8_products.has_int8_product()
    known = {attribute.name for attribute in op_def_registry.get("_QuantizedMatMul").attr}
    assert {"T1", "T2", "Tbias", "Tout", "fused_ops", "input_quant_mode"} <= known
    rng = np.random.default_rng(2)
    x = rng.integers(-127, 128, (R, D), "int8")
    values = rng.integers(-64, 65, (D, F), "int8")
    x[0], values[:, 0] = 127, 64  # the largest sums
    scales = rng.uniform(0.1, 9, F).astype("float32")

    @tf.function(autograph=False)
    def repeated(x, values, scales):
        def body(i, _):
            return i + 1, int8_products.int8_product(x, values, scales)

        start = 0, tf.zeros([tf.shape(x)[0], F])
        return tf.while_loop(lambda i, _: i < 3, body, start)[1]

    found = repeated(tf.constant(x), tf.constant(values), tf.constant(scales)).numpy()
    np.testing.assert_allclose(found, (x.astype(int) @ values.astype(int)) * scales, rtol=1e-6)


@needs_the_operation
def test_the_processor_is_asked():
    features = set(processor_features().split())
    can_add_in_32_bits = bool(features & {"avx_vnni", "avx512_vnni", "amx_int8"})
    assert bool(int8_products.int8_is_exact()) == can_add_in_32_bits
    assert int8_products.where_proved()["int8_is_exact"] == can_add_in_32_bits


@needs_the_operation
def test_graphs_do_not_share_weights(small_weights, arrays):
    """The operation keeps a copy of its weights."""
    x, kernel = arrays
    np.testing.assert_array_equal(multiply(x, -kernel, True), -multiply(x, kernel, True))


@pytest.mark.parametrize("translation, is_refused", [("A cat runs here .", True), (None, False)])
def test_an_export_that_loses_bleu_is_refused(translation, is_refused):
    references = ["A dog runs here .", "A horse is in the barn ."] * 600  # too many

    def quantized(sources):
        return list(sources) if translation is None else [translation] * len(sources)

    arguments = list, quantized, references, references, "13a"
    if not is_refused:
        assert check_bleu(*arguments) == {"sentences": 1000, "float32": 100.0, "int8": 100.0}
        return
    with pytest.raises(ExportError, match=r"Received: \d+\.\d\d instead of 100.00, on 1,000 sent"):
        check_bleu(*arguments)


def test_a_system_without_the_operation_computes_in_float32(translator, monkeypatch):
    def missing(*_):
        raise tf.errors.NotFoundError(None, None, "no such operation")

    monkeypatch.setattr(int8_products, "int8_is_exact", missing)
    int8_products.has_int8_product.cache_clear()
    try:
        small = QuantizedWeights(translator.model, "int8")
    finally:
        int8_products.has_int8_product.cache_clear()
    assert small.products == "float32"
    assert not hasattr(small.model.decoding_weights()["output"], "multiply_rows")


@needs_the_operation
@pytest.mark.parametrize("is_exact", [True, False])
def test_large_dense_layers_multiply_in_int8(is_exact, translator, small_weights, monkeypatch):
    """Also by the kernels that a loaded export has expanded, which other graphs do not see."""
    monkeypatch.setattr(int8_products, "int8_is_exact", lambda: tf.constant(is_exact))
    monkeypatch.setattr(int8_products, "MIN_ENTRIES", 32 * 48)  # those of feed-forward networks
    small = QuantizedWeights(translator.model, "int8")
    tracked, _, reading_weights = small.track()
    tracked.expanded._initialize()
    specs = enumerate(tracked.expanded._specs)
    floats = [place for place, spec in specs if spec.shape.rank == 2 and spec.shape[0] is None]
    assert {len(tracked.expanded.read(place)) for place in floats} == (
        {0} if is_exact else {32, 48}
    )
    block, x = small.model.encoder.blocks[0], tf.random.stateless_normal([2, 5, 32], (1, 2))
    large, other = block.feed_forward.inner, block.self_attention.key_projection
    in_float32 = [x @ layer.kernel + layer.bias for layer in (large, other)]
    expected = multiply(tf.reshape(x, [10, 32]), large.kernel.numpy(), is_exact) + large.bias
    for decorator in (reading_weights, lambda function: function):
        within = decorator(lambda: large(x))  # as a signature calls the search
        both = decorator(lambda within=within: [0 * within() + large(x), other(x)])
        graph = tf.function(both, autograph=False)
        found, others = graph()
        np.testing.assert_allclose(found, tf.nn.relu(tf.reshape(expected, [2, 5, 48])), atol=1e-5)
        assert np.abs(found - tf.nn.relu(in_float32[0])).max() > 1e-3
        np.testing.assert_allclose(others, in_float32[1], atol=1e-5)
        num_captured = len(graph.get_concrete_function().captured_inputs)
        assert (num_captured == 1) == (decorator is reading_weights)  # x alone, no weights


def test_output_layers_are_no_large_dense_layers(monkeypatch):
    """A search with shortlists reads columns of their kernels."""
    monkeypatch.setattr(int8_products, "MIN_ENTRIES", 1)
    sizes = dict(num_layers=1, d_model=8, ff_dim=8, num_heads=1)
    members = [Transformer(20, **sizes, tie_output=False), RnnSeq2Seq(20, tie_output=False)]
    found = int8_products.large_dense_layers(Ensemble(members))
    assert len(found) > 10
    assert not any(layer is member.output_layer for layer in found for member in members)


@pytest.mark.slow
@needs_the_operation
def test_an_export_that_computes_in_int8_is_proved(
    translator, texts, tmp_path, small_weights, monkeypatch
):
    """In a fresh process, and its answers do not depend on neighbours."""
    monkeypatch.setattr(int8_products, "MIN_ENTRIES", 1)
    path = export_saved_model(translator, tmp_path, weights="int8")
    served = load(path)
    assert served.settings["products"] == "int8"
    assert served.settings["proved_on"]["tensorflow"] == tf.__version__
    small = with_model(translator, QuantizedWeights(translator.model, "int8").model)
    together = served(texts)
    assert together == small(texts) and [served(text) for text in texts[::5]] == together[::5]
