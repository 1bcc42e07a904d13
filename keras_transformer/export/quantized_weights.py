"""Weights that a SavedModel stores in fewer bits, and that are expanded when it is loaded.

Products of 16 bits are fast with many rows only, so with float16 and bfloat16 all products stay in
float32 (benchmarks/README.md has the numbers). With int8, the large products are computed in int8.
A weight is expanded once, by the operations that a server runs when it has restored the variables.
"""

import uuid

import keras
import tensorflow as tf
from keras import quantizers

from keras_transformer.export.exportable import check_float16
from keras_transformer.export.int8_products import (
    has_int8_product,
    int8_kernels,
    large_dense_layers,
    with_int8_kernels,
    with_needed_floats,
)
from keras_transformer.layers.lora import kernel_variable

WEIGHTS = ("float32", "float16", "bfloat16", "int8")
"""The types in which the matrices of an export can be stored; vectors are always float32."""


class QuantizedWeights:
    """The weights of a model, rounded and stored small.

    int8 has a scale for each channel, an output of a matrix or a token of a table, by Keras's
    `abs_max_quantize`. Where TensorFlow has the product, the large kernels of the model's dense
    layers and `decoding_weights` are `Int8Kernel`s, which also quantize what they multiply.

    Args:
        model: built model, whose weights are float32.
        dtype: "float16", "bfloat16" or "int8".
    Attributes:
        model: a copy of the model with the rounded weights.
        products: "int8" or "float32", in which the large products are computed.
    Raises:
        ValueError: a matrix has numbers that are too large for float16.
    """

    def __init__(self, model, dtype):
        if dtype == "float16":
            check_float16([weight for weight in model.weights if _is_matrix(weight)])
        self._stored = [_stored(weight, dtype) for weight in model.weights]
        self.model = type(model).from_config(model.get_config())
        self.model.build()
        for weight, parts in zip(self.model.weights, self._stored, strict=True):
            weight.assign(_expanded(parts))
        self.products = "int8" if dtype == "int8" and has_int8_product() else "float32"
        self._dense = []
        if self.products == "int8":
            model = self.model
            model.decoding_weights = lambda: with_int8_kernels(type(model).decoding_weights(model))
            self._dense = large_dense_layers(model)
            _multiply_by(self._dense, [kernel.multiply for kernel in int8_kernels(self._dense)])

    def track(self):
        """Returns what to save, and two functions for `Signatures`.

        Returns:
            `(tracked, read_decoding_weights, reading_weights)`: a `tf.Module`; a function that
            returns the model's `decoding_weights` in a graph; and a decorator of functions that
            read the weights of the model.
        """
        tracked, weights = tf.Module(), self.model.weights
        in_int8 = {id(kernel_variable(layer)) for layer in self._dense}
        in_float32 = [weight for weight in weights if id(weight) not in in_int8]

        def expanded():
            with _values(weights, map(_expanded, self._stored)):
                parts = {
                    "weights": list(map(tf.convert_to_tensor, in_float32)),
                    "kernels": int8_kernels(self._dense),
                    "decoding": self.model.decoding_weights(),
                }
                return with_needed_floats(parts)

        # a graph of it, which computes nothing, knows all types and shapes
        parts = tf.function(expanded, autograph=False).get_concrete_function().structured_outputs
        specs = [tf.TensorSpec(part.shape, part.dtype) for part in tf.nest.flatten(parts)]
        numbers = tf.nest.pack_sequence_as(parts, range(len(specs)))
        tracked.stored = self._stored
        tracked.expanded = _Expanded(specs, lambda: tf.nest.flatten(expanded()))

        def read(name):
            return tf.nest.map_structure(tracked.expanded.read, numbers[name])

        def reading_weights(function):
            def with_expanded(*arguments):
                before = [layer.multiply for layer in self._dense]
                _multiply_by(self._dense, [kernel.multiply for kernel in read("kernels")])
                try:
                    with _values(in_float32, read("weights")):
                        return function(*arguments)
                finally:
                    _multiply_by(self._dense, before)

            return with_expanded

        return tracked, lambda: read("decoding"), reading_weights


class _Expanded(tf.saved_model.experimental.TrackableResource):
    """Variables that are not stored, but computed when the SavedModel is loaded.

    The SavedModel knows the first one as a resource, whose initialization assigns all of them; the
    others are found by their names. With a resource for each, loading takes three times as long.

    Args:
        specs: their `tf.TensorSpec`s.
        compute: function that returns their values, from variables that are stored.
    """

    def __init__(self, specs, compute):
        super().__init__()
        self._specs, self._compute = specs, compute
        self._name = uuid.uuid4().hex  # two exports that one process loads must not share variables

    def _handle(self, number):
        spec, name = self._specs[number], f"{self._name}_{number}"
        return tf.raw_ops.VarHandleOp(dtype=spec.dtype, shape=spec.shape, shared_name=name)

    def _create_resource(self):
        return self._handle(0)

    def _initialize(self):
        for number, value in enumerate(self._compute()):
            tf.raw_ops.AssignVariableOp(resource=self._handle(number), value=value)

    def read(self, number):
        """Returns the value of a variable, a tensor."""
        spec = self._specs[number]
        value = tf.raw_ops.ReadVariableOp(resource=self._handle(number), dtype=spec.dtype)
        return tf.ensure_shape(value, spec.shape)


def _stored(weight, dtype):
    """Returns the variables that store a weight: its rounded values and, for int8, the scales."""
    value = tf.convert_to_tensor(weight)
    if not _is_matrix(weight):
        parts = [value]
    elif dtype == "int8":
        is_table = weight.path.endswith("embeddings")
        parts = quantizers.abs_max_quantize(value, axis=-1 if is_table else 0)
    else:
        parts = [tf.cast(value, dtype)]
    return [tf.Variable(part, trainable=False) for part in parts]


def _is_matrix(weight):
    return len(weight.shape) > 1


def _expanded(parts):
    """Returns the float32 tensor of `_stored`."""
    values = tf.cast(parts[0], tf.float32)
    return values if len(parts) == 1 else values / parts[1]


def _multiply_by(layers, functions):
    """Has each of the `Dense` layers multiply by its function."""
    for layer, function in zip(layers, functions, strict=True):
        layer.multiply = function


def _values(weights, tensors):
    """Returns a context in which the weights of a model have these values."""
    return keras.StatelessScope(state_mapping=list(zip(weights, tensors, strict=True)))
