"""The REST interface without a model: the memory and the time limit of a waiting request."""

import asyncio
import contextlib
import gc
import json
import tracemalloc
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.http_connection import Request
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.rest import RestInterface
from keras_transformer.serving.settings import ServingConfig

PATH = "/v1/models/m:predict"
BODY = b'{"instances": ["A dog."]}'
LARGE = b'{"junk": [' + b'"' + b"a" * 2_000_000 + b'", ' + b"[], " * 50_000 + b"5], " + BODY[1:]


class Predicting:
    """Answers each text with itself, and records the deadline and the memory in use."""

    def __init__(self):
        self.deadline = self.memory = None

    @contextlib.contextmanager
    def signature(self, target, name):
        tensor = types.SimpleNamespace(dtype=tf.string, shape=(None,))
        yield None, types.SimpleNamespace(inputs={"text": tensor})

    async def predict(self, signature, inputs, deadline):
        self.deadline = deadline
        gc.collect()
        self.memory = tracemalloc.get_traced_memory()[0]
        return {"translation": inputs["text"]}


def ask(predicting, body, seconds=60.0):
    """Returns the response to a body, and the deadline of its request."""

    async def main():
        rest = RestInterface(predicting, ServingConfig(), Metrics("m"))
        deadline = asyncio.get_running_loop().time() + seconds
        response = await rest.answer(Request("POST", PATH, {}, bytearray(body), deadline))
        rest.close()
        return response, deadline

    return asyncio.run(main())


def test_a_request_has_one_deadline_from_its_first_byte_to_its_answer():
    predicting = Predicting()
    response, deadline = ask(predicting, BODY)
    assert json.loads(response.body) == {"predictions": ["A dog."]}
    assert predicting.deadline == deadline


def test_what_is_late_before_it_is_read_is_not_run():
    predicting = Predicting()
    response, _ = ask(predicting, LARGE, seconds=-1.0)
    assert response.status == 504 and predicting.deadline is None


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["small", "large"])
def test_what_a_request_came_in_is_not_kept_while_it_waits(body):
    predicting = Predicting()
    tracemalloc.start()
    response, _ = ask(predicting, body)
    tracemalloc.stop()
    assert response.status == 200 and predicting.memory < 500_000
    np.testing.assert_equal(json.loads(response.body), {"predictions": ["A dog."]})
