"""Reading JSON: the time and memory that a document may take."""

import tracemalloc

import pytest

from keras_transformer.serving import json_tensors
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.settings import ServingConfig

ROWS = b'{"instances": ["a"]'
SIZE = ServingConfig().max_body_bytes


def test_unknown_members_are_dropped_and_take_no_memory():
    body = ROWS + b', "junk": [' + b"[]," * 29_900 + b"[]]}"
    tracemalloc.start()
    document = json_tensors.parse(body, ServingConfig())
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert document == {"instances": ["a"]}
    assert kept < 100_000 and most < 5_000_000


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ROWS + b', "junk": [' + b"[]," * (SIZE // 3), "600000 brackets and commas"),
        (ROWS + b', "junk": [' + b"1," * (SIZE // 2), "600000 brackets and commas"),
        (ROWS + b',"abc":0' * (SIZE // 8), "at most 10000 members"),
        (ROWS + b', "junk": ' + b"[" * SIZE, "32 nested brackets"),
    ],
)
def test_documents_that_would_take_much_memory_are_refused_before_parsing(body, message):
    tracemalloc.start()
    with pytest.raises(ServingError, match=message) as raised:
        json_tensors.parse(body, ServingConfig())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raised.value.http_status == 413 and most < 90_000_000


def test_brackets_and_commas_in_a_text_are_not_counted():
    settings = ServingConfig(max_values=5, max_json_depth=2)
    text = r"""[[[{{{,,,,,,,,,,,,,,\\\"::::\"[[[\\"""
    body = b'{"instances": ["' + text.encode() + b'", "b"]}'
    (found, _) = json_tensors.parse(body, settings)["instances"]
    assert found == text.replace(r"\"", '"').replace(r"\\", "\\")


def test_as_many_nested_brackets_as_allowed_are_read():
    settings = ServingConfig(max_json_depth=2)
    assert json_tensors.parse(b'{"inputs": [1]}', settings) == {"inputs": [1]}
    with pytest.raises(ServingError, match="2 nested brackets"):
        json_tensors.parse(b'{"inputs": [[1]]}', settings)


def test_an_error_repeats_the_beginning_of_a_long_document():
    body = b'{"instances": ' + b'"' + b"a" * 100_000 + b'"}'
    with pytest.raises(ServingError) as raised:
        json_tensors.inputs(json_tensors.parse(body, ServingConfig()), None, ServingConfig())
    assert len(str(raised.value)) < 1000 and '{"instances": "aaa' in str(raised.value)
