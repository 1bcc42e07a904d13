"""Requests and answers of the REST interface: JSON to NumPy arrays and back.

The formats and the error messages are those of TensorFlow Serving: the row format, which is a list
of instances, and the columnar format, which has one list for each input. `{"b64": ...}` is a string
of arbitrary bytes.
"""

import base64
import binascii
import functools
import json
import re

import numpy as np

from keras_transformer.serving.errors import ServingError, invalid, too_large

SHOWN = 200  # characters of a value that an error message quotes
TYPE_NAMES = {dict: "Object", list: "Array", str: "String", type(None): "Null"}
MEMBERS = ("signature_name", "instances", "inputs")  # all other members are ignored
MAX_MEMBERS = 10_000  # in all objects of a document: members take the longest to parse
SPACE = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)))  # first wins
ENCODER = json.JSONEncoder(ensure_ascii=False)


def parse(body, settings):
    """Parses the body of a request: returns dict from name to value, with the `MEMBERS` only.

    As in TensorFlow Serving, the first of several members with the same name is used, and text
    after the document is ignored.

    Args:
        body: bytes. Invalid UTF-8 becomes U+FFFD, as it would in the graph.
    Raises:
        ServingError: the body is not a JSON object, is nested too deeply, or has too many values.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    _check_size(body, settings)
    try:
        text = body.decode("utf-8-sig", "replace")
        document, _ = DECODER.raw_decode(text, SPACE.match(text).end())
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from None
    except ValueError as error:  # an integer with thousands of digits
        raise invalid(f"JSON Parse error: {error} at offset: 0") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_shown(document)} Is not object")
    return {name: document[name] for name in MEMBERS if name in document}


def _check_size(body, settings):
    """Refuses a document that would take too much memory or time, before it is parsed."""
    # what remains are quotes that begin or end a string
    text = body.replace(rb"\\", b"").replace(rb"\"", b"")
    characters = np.frombuffer(text, "uint8")
    quotes = np.cumsum(characters == ord('"'), dtype="uint8")  # the last bit tells odd from even
    outside = characters[quotes & 1 == 0]
    opened = (outside == ord("[")) | (outside == ord("{"))
    closed = (outside == ord("]")) | (outside == ord("}"))
    steps = opened.astype("int8") - closed
    depth = int(np.max(np.cumsum(steps, dtype="int32"), initial=0))
    if depth > settings.max_json_depth:
        raise too_large(
            f"Expected JSON with at most {settings.max_json_depth} nested brackets. "
            "Received more. Send texts as a list of strings."
        )
    # a value follows a bracket or a comma
    num_values = np.count_nonzero(opened) + np.count_nonzero(outside == ord(","))
    if num_values > 2 * settings.max_values:
        raise too_large(
            f"Expected JSON with at most {2 * settings.max_values} brackets and commas. "
            f"Received: {num_values}. Send fewer values."
        )
    if np.count_nonzero(outside == ord(":")) > MAX_MEMBERS:
        raise too_large(
            f"Expected JSON whose objects have at most {MAX_MEMBERS} members. Received more. "
            "Send texts as a list of strings."
        )


def signature_name(document):
    """Returns the name of the signature that a request asks for; "" if it names none."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def inputs(document, signature, settings):
    """Returns the inputs of a request, and whether they are in the row format.

    Args:
        document: dict with the key "instances" (rows) or "inputs" (columns).
    Returns:
        `(inputs, is_rows)`: dict from name to NumPy array, with strings as bytes, and bool.
    Raises:
        ServingError: neither key or both, or values that do not fit the signature.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist "
        )
    if "instances" in document:
        rows = document["instances"]
        if not isinstance(rows, list):
            raise invalid(
                f"JSON Value: {_shown(document)} Excepting 'instances' to be an list/array"
            )
        if not rows:
            raise invalid(f"JSON Value: {_shown(document)} No values in 'instances' array")
        return _from_rows(rows, signature.inputs, settings.max_values), True
    if "inputs" in document:
        return _from_columns(document["inputs"], signature.inputs, settings.max_values), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _from_rows(rows, tensors, max_values):
    if len(tensors) > 1 and not _is_object(rows[0]):
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    are_objects = _is_object(rows[0])
    columns = {name: ([], []) for name in tensors}  # all values, and the shape of each row
    for number, row in enumerate(rows):
        if are_objects and not _is_object(row):
            raise invalid(f"Expecting object but got list at item {number} of input list")
        if _is_object(row) and not are_objects:
            raise invalid(f"Expecting value/list but got object at item {number} of input list")
        items = row.items() if are_objects else [(next(iter(tensors)), row)]
        for name, value in items:
            try:
                if name not in tensors:
                    raise invalid(f"JSON object: does not have named input: {name}")
                values, shapes = columns[name]
                shape = _shape(value)
                _fill(values, value, shape, tensors[name].dtype, max_values)
                if shapes and shape != shapes[0]:
                    raise invalid(f"Expecting shape {_listed(shapes[0])} but got: {_listed(shape)}")
                shapes.append(shape)
            except ServingError as error:
                if error.http_status != 400:
                    raise
                key = f" key: {name}" if are_objects else ""
                raise invalid(
                    f"Failed to process element: {number}{key} of 'instances' list. "
                    f"Error: INVALID_ARGUMENT: {error}"
                ) from None
        if are_objects and set(row) != set(tensors):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: {_shown(row)} keys must be equal to: {','.join(tensors)}"
            )
    return {
        name: _array(values, (len(rows), *shapes[0]), tensors[name].dtype)
        for name, (values, shapes) in columns.items()
    }


def _from_columns(value, tensors, max_values):
    if not _is_object(value):
        if len(tensors) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        value = {next(iter(tensors)): value}
    arrays = {}
    for name, tensor in tensors.items():
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        values, shape = [], _shape(value[name])
        _fill(values, value[name], shape, tensor.dtype, max_values)
        arrays[name] = _array(values, shape, tensor.dtype)
    return arrays


def _shape(value):
    """Returns the shape of nested lists, judged by the first list of each level."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _fill(values, value, shape, dtype, max_values, level=0):
    """Appends the scalars of `value` to the list `values`, and checks their shape and type."""
    if len(values) >= max_values:
        raise too_large(
            f"Expected at most {max_values} values in a request. Received more. Send fewer."
        )
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {_shown(value)} found at incorrect level: {level + 1} "
                f"in the JSON DOM. Expected at level: {len(shape)}"
            )
        values.append(_scalar(value, dtype))
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    for item in value:
        _fill(values, item, shape, dtype, max_values, level + 1)


def _scalar(value, dtype):
    """Returns a value checked against a `tf.DType`; strings as bytes."""
    if dtype.name == "string" and isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from None
    if dtype.name == "string" and isinstance(value, dict):
        return _decoded(value)
    is_integer, is_floating, minimum, maximum = _bounds(dtype)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and is_number and minimum <= value <= maximum:
        return value
    if is_floating and (is_number or isinstance(value, float)):
        if abs(value) <= maximum or value in (float("inf"), -float("inf")) or value != value:
            return value
        raise invalid(
            f"Cannot convert JSON value: {_shown(value)} to {dtype.name} without loss of precision."
        )
    if dtype.is_bool and isinstance(value, bool):
        return value
    name = str(value) if isinstance(value, bool) else TYPE_NAMES.get(type(value), "Number")
    raise invalid(f"JSON Value: {_shown(value)} Type: {name} is not of expected type: {dtype.name}")


@functools.cache
def _bounds(dtype):
    """Returns the properties of a `tf.DType` that each value needs; they are slow to compute."""
    is_number = dtype.is_integer or dtype.is_floating
    bounds = (dtype.min, dtype.max) if is_number else (None, None)
    return dtype.is_integer, dtype.is_floating, *bounds


def _decoded(value):
    if _is_object(value):
        raise invalid(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
    text = value["b64"]
    if "=" not in text:  # TensorFlow Serving accepts base64 without padding
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def _is_object(value):
    """Returns whether a value is an object other than a base64 string."""
    is_base64 = isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str)
    return isinstance(value, dict) and not is_base64


def _array(values, shape, dtype):
    return np.array(values, object if dtype.name == "string" else dtype.as_numpy_dtype).reshape(
        shape
    )


def answer(outputs, is_rows):
    """Returns the body of an answer as JSON bytes, in the format of the request.

    Args:
        outputs: dict from name to NumPy array; in the row format, all have equally many rows.
        is_rows: bool, whether the request had the row format.
    """
    columns = {name: _plain(name, array) for name, array in outputs.items()}
    is_one = len(columns) == 1
    if not is_rows:
        document = {"outputs": next(iter(columns.values())) if is_one else columns}
    elif is_one:
        document = {"predictions": next(iter(columns.values()))}
    else:
        rows = zip(*columns.values(), strict=True)
        document = {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}
    return json.dumps(document, ensure_ascii=False).encode()


def _plain(name, array):
    """Returns an array as nested lists of JSON values."""
    if array.dtype == np.float32:  # shortest digits: 0.2, not 0.20000000298023224
        return array.astype("U32").astype("float64").tolist()
    if array.dtype != object:
        return array.tolist()
    if name.endswith("_bytes"):
        return _mapped(lambda text: {"b64": base64.b64encode(text).decode()}, array.tolist())
    return _mapped(lambda text: text.decode("utf-8", "replace"), array.tolist())


def _mapped(function, value):
    return [_mapped(function, v) for v in value] if isinstance(value, list) else function(value)


def _shown(value):
    """Returns a value for an error message, cut if it is long."""
    text = ""
    for part in ENCODER.iterencode(value):
        text += part
        if len(text) > SHOWN:
            return f"{text[:SHOWN]}..."
    return text


def _listed(shape):
    return f"[{','.join(map(str, shape))}]"
