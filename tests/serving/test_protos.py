"""Tensors of gRPC requests, as C++ and other clients encode them."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import (
    resource_handle_pb2,
    tensor_pb2,
    tensor_shape_pb2,
    types_pb2,
)
from tensorflow_serving.apis import model_management_pb2, predict_pb2

from keras_transformer.serving import protos
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.settings import ServingConfig


class Tensor:
    dtype = tf.string


class Signature:
    inputs = {"text": Tensor()}


def read(proto):
    """Returns the array of a tensor in a request."""
    request = predict_pb2.PredictRequest()
    request.inputs["text"].CopyFrom(proto)
    return protos.inputs(request, Signature(), ServingConfig())["text"]


def tensor(content, *sizes, values=()):
    proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_content=content)
    for size in sizes:
        proto.tensor_shape.dim.add().size = size
    proto.string_val.extend(values)
    return proto


def by_tensorflow(proto):
    """Returns the array as TensorFlow's C++ reads it."""
    return tf.io.parse_tensor(proto.SerializeToString(), tf.string).numpy()


LONG = "мир ".encode() * 60
STRINGS = [  # 420 is 0xA4 0x03 as a varint
    tensor(b"\x01a", 1),
    tensor(b"\x06\x00\xa4\x03" + b"A dog." + LONG, 3),
    tensor(b"\x01\x02\x03\x00" + b"abbccc", 2, 2),
    tensor(b"\x80\x00", 1),  # more bytes than the length needs
    tensor(b"\x01\x01\xff\x00", 2),  # any bytes
    tensor(b"\x01a", 1, values=[b"not read"]),
]


@pytest.mark.parametrize("proto", STRINGS, ids=range(len(STRINGS)))
def test_strings_in_the_content_are_those_that_tensorflow_reads(proto):
    found = read(proto)
    assert found.dtype == object
    np.testing.assert_array_equal(found, by_tensorflow(proto))


@pytest.mark.parametrize(
    "proto",
    [
        tensor(b"\x01", 1),  # its bytes are missing
        tensor(b"\x01ab", 1),  # one too many
        tensor(b"\x01a", 2),  # a length is missing
        tensor(b"\x01\x05a", 2),
        tensor(b"\x80\x80", 1),  # a length without end
        tensor(b"\xff" * 9 + b"\x01", 1),
        tensor(b"\xff\xff\xff\xff\x0f", 1),  # 4 GB
    ],
)
def test_malformed_content_is_refused_as_tensorflow_does(proto):
    with pytest.raises(tf.errors.InvalidArgumentError):
        by_tensorflow(proto)
    with pytest.raises(ServingError, match="^tensor parsing error: text$"):
        read(proto)


def test_more_values_than_the_shape_has_are_refused():
    with pytest.raises(ServingError, match="^tensor parsing error: text$"):
        read(tensor(b"", 1, values=[b"a", b"b"]))


def test_shapes_of_any_rank_are_read_or_refused():
    assert read(tensor(b"\x05hello")).shape == ()
    with pytest.raises(ServingError, match="^tensor parsing error: text$"):
        read(tensor(b"\x01a", 0))
    with contextlib.suppress(ServingError):  # NumPy 1 has at most 32 axes
        assert read(tensor(b"\x01a", *[1] * 40)).ndim == 40  # where TensorFlow's `numpy` crashes


def with_tensor(**fields):
    request = predict_pb2.PredictRequest()
    request.inputs["text"].MergeFrom(tensor_pb2.TensorProto(**fields))
    return request.SerializeToString()


HANDLES = [resource_handle_pb2.ResourceHandleProto()] * 1000
DIMENSIONS = tensor_shape_pb2.TensorShapeProto(
    dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)] * 1000
)


@pytest.mark.parametrize(
    "content",
    [
        b"\x12\x00" * 1001,
        b"\xf9\x01" + b"x" * 8 + b"\x12\x00" * 1001,
        with_tensor(tensor_shape=DIMENSIONS),
        with_tensor(resource_handle_val=HANDLES),
        with_tensor(string_val=[b""] * 301_000),
    ],
)
def test_a_message_of_many_fields_is_refused_before_it_is_parsed(content):
    class Message:
        DESCRIPTOR = predict_pb2.PredictRequest.DESCRIPTOR
        FromString = None  # cannot be called

    with pytest.raises(ServingError, match="at most 1000 fields"):
        protos.parse(Message, content)
    message = predict_pb2.PredictRequest(output_filter=["x"] * 999)
    message.model_spec.version.value = -1
    assert protos.parse(type(message), message.SerializeToString()) == message
    with pytest.raises(ServingError, match="at most 1000 outputs"):
        protos.output_names(predict_pb2.PredictRequest(output_filter=["x"] * 1001), Signature())
    many = with_tensor(string_val=[b"\x12\x00"] * 3000, float_val=[0.5] * 3000)
    assert protos.parse(type(message), many).SerializeToString() == many


def test_messages_within_messages_are_counted_and_their_depth_is_bounded():
    config = model_management_pb2.ReloadConfigRequest()
    for _ in range(1000):
        config.config.model_config_list.config.add()
    with pytest.raises(ServingError, match="at most 1000 fields"):
        protos.parse(type(config), config.SerializeToString())
    content = b""
    for tag in [b"\x1a", b"\x7a"] * 2000 + [b"\x12", b"\x12"]:  # a tensor in a variant in a tensor
        size = len(content)
        content = tag + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + content
    with pytest.raises(ServingError, match="cannot be parsed"):
        protos.parse(predict_pb2.PredictRequest, content)
