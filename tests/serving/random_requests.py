"""Random requests, most of them bad."""

import json

from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import predict_pb2

TEXTS = ["", "A dog runs.", "ä\U0001f44d\x00", "A cat sleeps. " * 20, {"b64": "YQ=="}]


def value(draw, depth=0):
    """Returns a random JSON value."""
    leaves = [
        "",
        "A dog.",
        "ä\U0001f44d\x00",
        0,
        -1.5,
        10**30,
        True,
        None,
        {"b64": "YQ=="},
        "a" * 999,
    ]
    if depth > 3 or draw.random() < 0.5:
        return draw.choice(leaves)
    if draw.random() < 0.5:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = ["text", "target", "ids", "b64", "instances", "x"]
    return {draw.choice(keys): value(draw, depth + 1) for _ in range(draw.randrange(3))}


def body(draw):
    """Returns the bytes of a request's body: JSON, JSON that has been damaged, or noise."""
    kind = draw.random()
    if kind < 0.15:
        return draw.randbytes(draw.randrange(300))
    suits = [draw.choice(TEXTS) for _ in range(draw.randrange(4))]
    document = {draw.choice(["instances", "inputs"]): draw.choice([suits, value(draw)])}
    if draw.random() < 0.3:
        names = ["n_best", "score", "encode", "decode", "attention", "x", 5, ""]
        document["signature_name"] = draw.choice(names)
    encoded = bytearray(json.dumps(document).encode())
    if kind < 0.4:
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(encoded))
            encoded[place : place + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
    return bytes(encoded)


def message(draw, name):
    """Returns a `PredictRequest` of random parts, many of them valid."""
    request = predict_pb2.PredictRequest()
    if draw.random() < 0.2:  # a valid one
        request.model_spec.name = name
        texts = draw.choices([b"A dog.", b"", b"\xff"], k=draw.randrange(4))
        tensor = request.inputs["text"]
        tensor.dtype = types_pb2.DT_STRING
        tensor.tensor_shape.dim.add().size = len(texts)
        tensor.string_val.extend(texts)
        return request
    request.model_spec.name = draw.choice([name] * 9 + ["", "x"])
    names = ["", "n_best", "score", "encode", "decode", "attention", "x"]
    request.model_spec.signature_name = draw.choice(names)
    if draw.random() < 0.2:
        request.model_spec.version.value = draw.choice([1, 0, -1, 2**62])
    request.output_filter.extend(draw.choices(["score", "ids", "x"], k=draw.choice([0, 0, 1, 2])))
    for key in draw.choice([["text"], ["text", "target"], ["ids"], ["x"], []]):
        tensor = request.inputs[key]
        tensor.dtype = draw.choice([7, 7, 7, 3, 1, 9, 0, 99])
        tensor.tensor_shape.unknown_rank = draw.random() < 0.05
        for _ in range(draw.choice([1, 1, 1, 0, 2])):
            tensor.tensor_shape.dim.add().size = draw.choice([0, 1, 2, 2, 3, -1, 10**6, 2**62])
        fill = draw.random()
        if fill < 0.6:
            tensor.string_val.extend(draw.choices([b"A dog.", b"", b"\xff"], k=draw.randrange(4)))
        elif fill < 0.8:
            tensor.int_val.extend(draw.choices([0, 5, -1, 2**31 - 1], k=draw.randrange(4)))
        else:
            tensor.tensor_content = draw.randbytes(draw.randrange(20))
    return request
