"""TensorFlow Serving's protocol buffers: tensors to NumPy arrays and back, status and metadata."""

import functools
import itertools
import math

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2

from keras_transformer.errors import InputError
from keras_transformer.serving.errors import invalid, too_large

VALUES = {  # the field of a `TensorProto` for each type; clients read these fields by name
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}
MAX_FIELDS = 1000
"""Maximum inputs, outputs, versions or dimensions in a request. A field of two bytes that is a
message takes a hundred and more as an object."""
FIELDS_PER_VALUE = 1 / 300
"""What another field adds to their number, such as a string, which takes a tenth of that."""
MAX_RANK = 254  # of a tensor in TensorFlow


def parse(message_class, content):
    """Returns the message that bytes are.

    Raises:
        ServingError: they are none, or one of more than `MAX_FIELDS` fields.
    """
    try:
        number = _num_fields(content, 0, len(content), message_class.DESCRIPTOR)
        few("fields", range(math.ceil(number)))
        return message_class.FromString(content)
    except (DecodeError, InputError, RecursionError):
        raise invalid(
            f"Expected a {message_class.DESCRIPTOR.name}. Received {len(content)} bytes that "
            "cannot be parsed as one. Check how the client encodes it."
        ) from None


def few(name, values):
    """Returns the values of a field; raises `ServingError` if there are more than `MAX_FIELDS`."""
    if len(values) > MAX_FIELDS:
        raise too_large(f"Expected at most {MAX_FIELDS} {name} in a request. Received more.")
    return values


def _num_fields(content, place, end, descriptor):
    """Returns how many fields a message has from `place` to `end`, or more than `MAX_FIELDS`."""
    number, messages = 0, _messages(descriptor)
    while place < end and number <= MAX_FIELDS:
        tag, place = _varint(content, place)
        message = messages.get(tag >> 3)
        number += 1 if message else FIELDS_PER_VALUE
        if tag & 7 in (0, 2):
            value, place = _varint(content, place)
            if tag & 7 == 2:
                if message:
                    number += _num_fields(content, place, min(place + value, end), message)
                place += value
        else:
            place += {1: 8, 5: 4}.get(tag & 7, 0)
    return number


@functools.cache
def _messages(descriptor):
    """Returns the descriptors of the fields that are messages, by their numbers."""
    return {f.number: f.message_type for f in descriptor.fields if f.message_type}


def _varint(content, start):
    """Returns the varint that starts at a place, and the place where it ends."""
    if start < len(content) and content[start] < 128:  # most are one byte
        return content[start], start + 1
    value = 0
    for number, byte in enumerate(content[start : start + 10]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value, start + number + 1
    raise InputError("Expected a varint. Received bytes without its end.")


def inputs(request, signature, settings):
    """Returns the inputs of a `PredictRequest`: dict from name to NumPy array.

    Raises:
        ServingError: the names or types do not fit the signature, or a tensor cannot be parsed.
    """
    given, wanted = set(request.inputs), set(signature.inputs)
    if len(given) != len(wanted):
        names = [",".join(sorted(s)) for s in (given, wanted, given - wanted, wanted - given)]
        raise invalid(
            f"input size does not match signature: {len(given)}!={len(wanted)} "
            f"len({{{names[0]}}}) != len({{{names[1]}}}). Sent extra: {{{names[2]}}}. "
            f"Missing but required: {{{names[3]}}}."
        )
    for name in sorted(given - wanted):
        raise invalid(
            f"input tensor alias not found in signature: {name}. "
            f"Inputs expected to be in the set {{{','.join(sorted(wanted))}}}."
        )
    return {
        name: _array(name, request.inputs[name], tensor, settings)
        for name, tensor in signature.inputs.items()
    }


def _array(name, proto, tensor, settings):
    if proto.dtype != tensor.dtype.as_datatype_enum:
        known = types_pb2.DataType.values()
        received = types_pb2.DataType.Name(proto.dtype) if proto.dtype in known else proto.dtype
        expected = types_pb2.DataType.Name(tensor.dtype.as_datatype_enum)
        raise invalid(f"Expected the input {name} to be {expected}. Received: {received}.")
    sizes = [dim.size for dim in proto.tensor_shape.dim[: MAX_RANK + 1]]
    # a single value is repeated to fill the shape, so a few bytes could fill the memory
    is_bad = proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or len(sizes) > MAX_RANK
    if is_bad or any(size > settings.max_values for size in sizes):
        raise invalid(f"tensor parsing error: {name}")
    if math.prod(sizes) > settings.max_values:
        raise too_large(
            f"Expected at most {settings.max_values} values in a request. "
            f"Received: {math.prod(sizes)}. Send fewer."
        )
    try:
        if proto.tensor_content and tensor.dtype == tf.string:  # which make_ndarray cannot read
            strings = _strings(proto.tensor_content, math.prod(sizes))
            return np.array(strings, object).reshape(sizes)
        field = VALUES.get(tensor.dtype)
        if field and len(getattr(proto, field)) > math.prod(sizes):
            raise ValueError("more values than the shape has")  # before they are Python objects
        return tf.make_ndarray(proto)
    except (ValueError, TypeError):
        raise invalid(f"tensor parsing error: {name}") from None


def _strings(content, number):
    """Returns the strings of `tensor_content`, in TensorFlow's C++ encoding, as a list of bytes.

    All lengths come first, as varints, and then the bytes of all strings (`port::EncodeStringList`
    in tensorflow/core/platform/tensor_coding.cc).

    Raises:
        InputError: the content is not exactly `number` strings.
    """
    lengths, start = [], 0
    for _ in range(number):
        length, start = _varint(content, start)
        lengths.append(length)
    if start + sum(lengths) != len(content):
        raise InputError(f"Expected {number} strings. Received {len(content)} bytes of others.")
    ends = list(itertools.accumulate(lengths, initial=start))
    return [content[start:end] for start, end in itertools.pairwise(ends)]


def output_names(request, signature):
    """Returns the names of the outputs that a `PredictRequest` asks for."""
    wanted = list(few("outputs", request.output_filter))
    for name in wanted:
        if name not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name} "
                f"Outputs expected to be in the set {{{','.join(signature.outputs)}}}."
            )
        if wanted.count(name) > 1:
            raise invalid(f"duplicate output tensor alias: {name}")
    return wanted or list(signature.outputs)


def to_proto(array):
    """Returns a NumPy array as a `TensorProto`, with its values in the field of their type."""
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    shape = tf.TensorShape(array.shape).as_proto()
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, tensor_shape=shape)
    getattr(proto, VALUES[dtype]).extend(array.ravel().tolist())
    return proto


def model_spec(model_name, version, signature_name=""):
    spec = model_pb2.ModelSpec(name=model_name, signature_name=signature_name)
    spec.version.value = version.number
    return spec


def signatures(version):
    """Returns the `SignatureDefMap` of an available version."""
    return get_model_metadata_pb2.SignatureDefMap(signature_def=version.model.signature_defs)


def status(versions):
    """Returns the `GetModelStatusResponse` for a list of `Version`s."""
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        added = response.model_version_status.add(version=version.number)
        added.state = get_model_status_pb2.ModelVersionStatus.State.Value(version.state)
        if version.error is not None:
            added.status.error_code = version.error.code.value[0]
            added.status.error_message = str(version.error)
        else:
            added.status.SetInParent()
    return response
