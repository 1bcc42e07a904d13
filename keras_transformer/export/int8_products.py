"""Matrix products in int8, by an operation that TensorFlow has on x86-64.

`_QuantizedMatMul` is internal to TensorFlow, so no other module names it. It needs oneDNN, which
the packages for Linux on x86-64 contain. On a processor that adds products of int8 in 32 bits (VNNI
or AMX), it is exact and up to three times as fast as float32. On others it adds pairs of products
in 16 bits, where large ones are cut off, and it is slower. So a graph asks the processor when it is
loaded, and computes the same sums in float32 there, see `Int8Kernel`.

Shapes: R rows, D width of the input, F width of the output.
"""

import functools
import math
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import quantizers

from keras_transformer.config.settings import processor_features
from keras_transformer.export.verification import ExportError
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.nested import nested_layers
from keras_transformer.translation.evaluation import bleu

LARGEST = 127
"""Largest absolute value of an input in int8."""

LARGEST_WEIGHT = 127
"""The same of a weight. Up to 64, the sums of two products fit into 16 bits on every processor."""

MIN_ENTRIES = 2**18
"""Entries of a kernel from which it is multiplied in int8: 512 x 512. Quantizing the rows takes as
long as a smaller product."""

MAX_BLEU_LOSS = 0.3
"""How much lower the BLEU of validation text may be than in float32."""

MAX_SENTENCES = 1000
"""Sentences of the validation text that are translated for it, at even distances."""

SMALLEST_MAXIMUM = 1e-30
"""What the rows of zeros are divided by."""


class Int8Kernel(NamedTuple):
    """The kernel of a dense layer, quantized by column: column j is `values[:, j] * scales[j]`.

    It stands where a decoder expects a kernel `(D, F)`, see `layers.decoding_step.product`, and its
    `multiply` in the place of that of a `Dense`.
    """

    values: Any
    """`(D, F)` int8, from -127 to 127. The operation keeps a copy in its own layout from its first
    call on, so that they must never change within a graph."""

    scales: Any
    """`(F,)` float32."""

    floats: Any
    """`(D, F)` float32, `values * scales`, for processors on which int8 is not exact. On others it
    is empty, `(0, F)`, in an export."""

    is_exact: Any
    """Bool scalar, from `int8_is_exact`."""

    @classmethod
    def of(cls, kernel: Any, is_exact: Any) -> "Int8Kernel":
        """Returns the quantized kernel of a tensor `(D, F)`."""
        limits = -LARGEST_WEIGHT, LARGEST_WEIGHT
        values, factors = quantizers.abs_max_quantize(kernel, axis=0, value_range=limits)
        scales = 1.0 / tf.reshape(factors, [-1])
        return cls(values, scales, tf.cast(values, tf.float32) * scales, is_exact)

    def multiply(self, x: Any) -> Any:
        """Returns `(..., F)`, the product of `x` `(..., D)`."""
        product = self.multiply_rows(tf.reshape(x, [-1, x.shape[-1]]))
        return tf.reshape(product, [*tf.unstack(tf.shape(x)[:-1]), product.shape[-1]])

    def multiply_rows(self, x: Any) -> Any:
        """Returns `(R, F)`, the product of `x` `(R, D)`, each of whose rows has a scale of its own.

        A row's result therefore does not depend on the other rows.
        """
        values, scales = quantized_rows(x)

        def in_int8():
            product = int8_product(tf.cast(values, tf.int8), self.values, self.scales)
            return product * scales

        def in_float32():
            return tf.matmul(values * scales, tf.ensure_shape(self.floats, self.values.shape))

        if tf.executing_eagerly():  # the operation exists in graphs alone
            return in_float32()
        return tf.cond(self.is_exact, in_int8, in_float32)


def quantized_rows(x):
    """Returns whole numbers `(R, D)` from -127 to 127, in float32, and a scale for each row.

    Args:
        x: `(R, D)` float32, about `values * scales`.
    Returns:
        `(values, scales)`, the latter `(R, 1)`.
    """
    largest = tf.maximum(tf.reduce_max(tf.abs(x), axis=1, keepdims=True), SMALLEST_MAXIMUM)
    return tf.round(x * (LARGEST / largest)), largest / LARGEST


def int8_product(x, values, scales):
    """Returns `(R, F)` float32: the product of int8 `x` `(R, D)` and `values`, times `scales`.

    Args:
        x: int8 `(R, D)`.
        values, scales: see `Int8Kernel`.
    """
    width = values.shape[1]
    # The operation computes a scale of its inputs from their ranges: range / 127.
    ranges = tf.constant(float(LARGEST)), scales * float(LARGEST)
    (x_limit, values_limit), no_bias = ranges, tf.zeros([width])
    quantized = (tf.bitcast(tensor, tf.qint8) for tensor in (x, values))  # a loop carries no qint8
    limits = -x_limit, x_limit, -values_limit, values_limit
    inputs = [*quantized, no_bias, *limits]
    attributes = dict(
        T1=tf.qint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        Tout=tf.float32,
        Thost_inputs=[tensor.dtype for tensor in inputs],
        Tdevice_inputs=[],
        Tdevice_outputs=[],
        Thost_outputs=[tf.float32],
        fused_ops=[b"BiasAdd", b"Dequantize"],
        input_quant_mode=b"SCALED",
        is_weight_const=True,
    )
    operation = tf.compat.v1.get_default_graph().create_op(
        "_QuantizedMatMul",
        inputs,
        [tf.float32],
        name="int8_product",
        attrs={name: _attribute(value) for name, value in attributes.items()},
    )
    return tf.ensure_shape(operation.outputs[0], [None, width])


def int8_is_exact():
    """Returns a bool scalar: whether this processor adds products of int8 without an overflow.

    A tensor that a graph computes anew on each machine.
    """
    return _largest_product() == float(_DEPTH * LARGEST**2)


_DEPTH = 64


@tf.function(autograph=False)
def _largest_product():
    """Returns one of the largest sums that a product of `_DEPTH` rows can have."""
    x, values = (tf.fill([_DEPTH, _DEPTH], tf.constant(LARGEST, tf.int8)) for _ in range(2))
    return tf.reduce_min(int8_product(x, values, tf.ones([_DEPTH])))


@functools.cache
def has_int8_product() -> bool:
    """Returns whether this TensorFlow has the operation, with a kernel for this processor."""
    try:
        int8_is_exact()
    except (tf.errors.OpError, RuntimeError, ValueError):
        return False
    return True


def with_int8_kernels(weights: Any) -> Any:
    """Returns a model's `decoding_weights` with an `Int8Kernel` where that is faster.

    These are the output layer, and kernels of `dense_weights` from `MIN_ENTRIES` on.
    """
    is_exact = int8_is_exact()

    def converted(name, part):
        if isinstance(part, dict):
            return {key: converted(key, value) for key, value in part.items()}
        if isinstance(part, list):
            return [converted(name, value) for value in part]
        is_large = name == "kernel" and part.shape.num_elements() >= MIN_ENTRIES
        return Int8Kernel.of(part, is_exact) if name == "output" or is_large else part

    return converted(None, weights)


def large_dense_layers(model: keras.Model) -> list[Dense]:
    """Returns the `Dense` layers within a model whose kernels have `MIN_ENTRIES` or more.

    The output layer is not among them, as a search with shortlists reads columns of its kernel.
    """
    layers = nested_layers(model)
    outputs = {id(getattr(layer, "output_layer", None)) for layer in layers}
    dense = (each for each in layers if isinstance(each, Dense) and id(each) not in outputs)
    return [layer for layer in dense if math.prod(layer.kernel.shape) >= MIN_ENTRIES]


def int8_kernels(layers: list[Dense]) -> list[Int8Kernel]:
    """Returns an `Int8Kernel` for each layer."""
    is_exact = int8_is_exact() if layers else None
    return [Int8Kernel.of(tf.convert_to_tensor(layer.kernel), is_exact) for layer in layers]


def with_needed_floats(parts: Any) -> Any:
    """Returns a structure of tensors; the `floats` of its `Int8Kernel`s are empty if int8 is exact.

    They would take four times the memory of `values`. One condition for all of them is loaded
    faster than one for each.
    """
    flat, size = tf.nest.flatten(parts), len(Int8Kernel._fields)
    begins = [place for place, part in enumerate(flat) if part.dtype == tf.int8]
    if not begins:
        return parts
    kernels = [Int8Kernel(*flat[begin : begin + size]) for begin in begins]

    def needed():
        return [tf.cast(kernel.values, tf.float32) * kernel.scales for kernel in kernels]

    def no_rows():
        return [tf.zeros([0, kernel.values.shape[1]]) for kernel in kernels]

    all_floats = tf.cond(kernels[0].is_exact, no_rows, needed)
    for begin, kernel, floats in zip(begins, kernels, all_floats, strict=True):
        flat[begin : begin + size] = kernel._replace(floats=floats)
    return tf.nest.pack_sequence_as(parts, flat)


def where_proved() -> dict[str, Any]:
    """Returns the version of TensorFlow, and whether the products ran in int8 on this processor."""
    return {
        "tensorflow": tf.__version__,
        "processor": processor_features(),
        "int8_is_exact": bool(int8_is_exact()),
    }


def check_bleu(translator, quantized, sources, references, tokenize):
    """Compares the translations of validation text in float32 and in int8.

    Args:
        translator, quantized: `Translator`s, without and with `Int8Kernel`s.
        sources, references: lists of str.
        tokenize: see `evaluation.bleu`.
    Returns:
        {"sentences", "float32", "int8"}: their number, and BLEU.
    Raises:
        ExportError: the BLEU of `quantized` is lower by more than `MAX_BLEU_LOSS`.
    """
    number = min(len(sources), MAX_SENTENCES)
    places = [i * len(sources) // number for i in range(number)]
    sources, references = ([texts[i] for i in places] for texts in (sources, references))
    before, after = (
        bleu(each(sources), references, tokenize=tokenize, hints=False).value
        for each in (translator, quantized)
    )
    if before - after > MAX_BLEU_LOSS:
        raise ExportError(
            f"Products in int8 must lose at most {MAX_BLEU_LOSS} BLEU. Received: {after:.2f} "
            f"instead of {before:.2f}, on {len(sources):,} sentences of validation text. Export "
            "with weights float16, which computes in float32."
        )
    return {"sentences": len(sources), "float32": round(before, 2), "int8": round(after, 2)}


def _attribute(value):
    """Returns an attribute of an operation as its protocol buffer."""
    attribute = tf.compat.v1.AttrValue
    if isinstance(value, list):
        if not value or isinstance(value[0], tf.DType):
            types = [dtype.as_datatype_enum for dtype in value]
            return attribute(list=attribute.ListValue(type=types))
        return attribute(list=attribute.ListValue(s=value))
    if isinstance(value, tf.DType):
        return attribute(type=value.as_datatype_enum)
    return attribute(b=value) if isinstance(value, bool) else attribute(s=value)
