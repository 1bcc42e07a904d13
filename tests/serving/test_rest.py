"""The REST interface without a model: the memory and the time limit of a waiting request."""

import asyncio
import contextlib
import gc
import json
import threading
import tracemalloc
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.http_connection import Request
from keras_transformer.serving.memory import Memory, OneThread, Share
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.rest import RestInterface
from keras_transformer.serving.settings import ServingConfig

PATH = "/v1/models/m:predict"
BODY = b'{"instances": ["A dog."]}'
LARGE = b'{"junk": [' + b'"' + b"a" * 2_000_000 + b'", ' + b"[], " * 10_000 + b"5], " + BODY[1:]


class Batching:
    """Answers each text with itself, and records the deadline and the memory in use."""

    def __init__(self):
        self.deadline = self.memory = None

    async def run(self, signature, inputs, deadline):
        self.deadline = deadline
        if tracemalloc.is_tracing():
            gc.collect()
            self.memory = tracemalloc.get_traced_memory()[0]
        return {"translation": inputs["text"]}


class Versions:
    """The versions of a model whose only signature takes texts."""

    @contextlib.contextmanager
    def using(self, name, number, label):
        tensor = types.SimpleNamespace(dtype=tf.string, shape=(None,))
        signature = types.SimpleNamespace(inputs={"text": tensor})
        model = types.SimpleNamespace(signatures={"serving_default": signature})
        yield types.SimpleNamespace(model=model)


def ask(batching, body, seconds=60.0):
    """Returns the response to a body, and the deadline of its request."""

    async def main():
        thread = OneThread()
        rest = RestInterface(Versions(), batching, ServingConfig(), Metrics("m"), thread)
        deadline = asyncio.get_running_loop().time() + seconds
        request = Request("POST", PATH, {}, bytearray(body), deadline, Share(Memory(10**8)))
        response = await rest.answer(request)
        thread.close()
        return response, deadline

    return asyncio.run(main())


def test_a_request_has_one_deadline_from_its_first_byte_to_its_answer():
    batching = Batching()
    response, deadline = ask(batching, BODY)
    assert json.loads(response.body) == {"predictions": ["A dog."]}
    assert batching.deadline == deadline


def test_a_request_that_is_late_before_it_is_read_is_not_run():
    batching = Batching()
    response, _ = ask(batching, LARGE, seconds=-1.0)
    assert response.status == 504 and batching.deadline is None


def test_a_document_that_is_refused_is_not_kept():
    body = b'{"inputs": [' + b"[]," * 100_000 + b"5]}"
    gc.freeze()  # looks at no object of other tests
    gc.disable()
    tracemalloc.start()
    response, _ = ask(Batching(), body)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.enable()
    gc.unfreeze()
    assert response.status == 400 and kept < 2_000_000


@pytest.mark.parametrize("body", [BODY, LARGE], ids=["small", "large"])
def test_the_body_of_a_request_is_not_kept_while_it_waits(body):
    batching = Batching()
    gc.freeze()  # looks at no object of other tests
    tracemalloc.start()
    response, _ = ask(batching, body)
    tracemalloc.stop()
    gc.unfreeze()
    assert response.status == 200 and batching.memory < 500_000
    np.testing.assert_equal(json.loads(response.body), {"predictions": ["A dog."]})


def test_large_messages_are_read_one_at_a_time_outside_the_event_loop():
    running, places = [], []

    def read():
        running.append(None)
        places.append((threading.get_ident(), len(running)))
        running.pop()

    async def main():
        thread = OneThread()
        await thread.run(2**13 - 1, read)
        await asyncio.gather(*(thread.run(2**13, read) for _ in range(20)))
        thread.close()

    asyncio.run(main())
    (small, _), *large = places
    assert small == threading.get_ident()
    assert len(set(large)) == 1 and large[0][0] != small and large[0][1] == 1


def test_what_is_parsed_becomes_tensors_before_much_more_is_parsed():
    waiting = []

    async def answer(thread):
        await thread.parse(2**13, waiting.append, None)
        num_parsed = len(waiting)
        await thread.run(2**13, waiting.pop)
        return num_parsed

    async def main():
        thread = OneThread()
        found = await asyncio.gather(*(answer(thread) for _ in range(20)))
        thread.close()
        return found

    assert max(asyncio.run(main())) <= 3
