"""Dynamic batching, with signatures that need no graph."""

import asyncio
import gc
import threading
import time
import types

import grpc
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.batching import Batching
from keras_transformer.serving.errors import ServingError
from keras_transformer.serving.metrics import Metrics
from keras_transformer.serving.settings import ServingConfig


class Doubling:
    """A signature that doubles numbers, records the sizes of its runs, and refuses 13."""

    is_batchable = True

    def __init__(self, seconds=0.0):
        self.sizes = []
        self.seen = set()
        self.seconds = seconds
        self.inputs = {"x": types.SimpleNamespace(shape=(None,))}
        self._lock = threading.Lock()
        self.most_at_once = self._running = 0

    def __call__(self, inputs, timeout=None):
        with self._lock:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        self.sizes.append(len(inputs["x"]))
        self.seen.update(inputs["x"].tolist())
        time.sleep(self.seconds)
        with self._lock:
            self._running -= 1
        if 13 in inputs["x"]:
            raise tf.errors.InvalidArgumentError(None, None, "13 is refused\n\tsomewhere")
        return {"y": 2 * inputs["x"], "row": np.stack([inputs["x"]] * 3, axis=1)}


class Alone(Doubling):
    is_batchable = False


def run(requests, signature, **settings):
    """Returns the answers to lists of numbers that are sent at the same time."""

    async def main():
        batching = Batching(ServingConfig(**settings), Metrics("m"))
        calls = [batching.run(signature, {"x": np.array(numbers)}) for numbers in requests]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert batching.num_waiting == 0
        await batching.close()
        return answers

    return asyncio.run(main())


def check(requests, answers):
    for numbers, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer["y"], 2 * np.array(numbers))
        np.testing.assert_array_equal(answer["row"], np.stack([numbers] * 3, axis=1))


def test_requests_are_run_together_and_taken_apart():
    signature = Doubling()
    requests = [[1], [2, 3], [4], [5, 6, 7]]
    check(requests, run(requests, signature, batch_threads=1))
    assert signature.sizes == [1, 6]  # the first starts at once, the others wait for the thread


def test_threads_share_the_rows():
    signature = Doubling(seconds=0.05)
    run([[i] for i in range(20, 52)], signature, batch_threads=2)
    assert signature.sizes == [1, 1, 15, 15] or signature.sizes == [1, 1, 16, 14]


def test_no_batch_is_larger_than_allowed_and_order_is_kept():
    signature = Doubling(seconds=0.01)
    requests = [[i] for i in range(20, 50)] + [[100, 101, 102]]
    check(requests, run(requests, signature, max_batch_size=8, max_delay_ms=5))
    assert sum(signature.sizes) == 33 and max(signature.sizes) == 8


def test_a_large_request_is_run_in_parts():
    signature = Doubling()
    requests = [list(range(100, 150))]
    check(requests, run(requests, signature, max_batch_size=16))
    assert sorted(signature.sizes) == [2, 16, 16, 16]


def test_a_run_is_bounded_in_bytes_too():
    class Texts(Doubling):
        def __call__(self, inputs, timeout=None):
            self.sizes.append(len(inputs["x"]))
            return {"y": inputs["x"]}

    async def main(requests, signature):
        batching = Batching(ServingConfig(batch_threads=1, max_batch_size=8), Metrics("m"))
        calls = [batching.run(signature, {"x": texts}) for texts in requests]
        answers = await asyncio.gather(*calls)
        await batching.close()
        return [answer["y"].tolist() for answer in answers]

    signature = Texts()
    sizes = ([3000, 3000, 3000, 9000, 10, 10], [10] * 4)  # a run of 8 rows may have 8000 bytes
    requests = [np.array([b"a" * size for size in part], object) for part in sizes]
    assert asyncio.run(main(requests, signature)) == [texts.tolist() for texts in requests]
    # 3000 + 3000 + 10 + 10, 3000 + 4 * 10, and 9000 alone
    assert signature.sizes == [4, 5, 1]


def test_requests_that_cannot_be_batched_run_alone():
    signature = Alone()
    requests = [[1], [2, 3], [4]]
    check(requests, run(requests, signature, max_batch_size=2, max_delay_ms=1000))
    assert sorted(signature.sizes) == [1, 1, 2]


def test_no_rows_are_an_answer_too():
    (answer,) = run([[]], Doubling())
    assert answer["y"].shape == (0,)


def test_a_request_that_fails_takes_no_other_with_it():
    signature = Doubling()
    requests = [[7, 8], [1], [13], [2, 3]]
    first, good, bad, other = run(requests, signature, batch_threads=1)
    check([requests[0], requests[1], requests[3]], [first, good, other])
    assert isinstance(bad, ServingError) and bad.code == grpc.StatusCode.INVALID_ARGUMENT
    assert str(bad) == "13 is refused"
    assert signature.sizes == [2, 4, 1, 1, 2]


def test_a_full_queue_refuses_at_once_and_serves_what_it_took():
    signature = Doubling(seconds=0.05)
    requests = [[i] for i in range(100)]
    answers = run(requests, signature, max_batch_size=1, batch_threads=1, max_queued=10, max_rows=1)
    refused = [answer for answer in answers if isinstance(answer, ServingError)]
    assert {error.http_status for error in refused} == {503} and len(refused) == 89
    check(requests[:11], answers[:11])  # one runs while ten wait
    assert "The batch scheduling queue to which this task was submitted is full" in str(refused[0])


def test_a_request_that_takes_too_long_is_given_up_and_not_run():
    signature = Doubling(seconds=0.3)
    answers = run(
        [[1], [2], [3]], signature, max_batch_size=1, batch_threads=1, request_timeout=0.2
    )
    assert [answer.http_status for answer in answers] == [504] * 3
    assert signature.sizes == [1]  # the others had not started


def test_a_request_that_is_given_up_leaves_the_queue_and_no_line_in_the_log(caplog):
    signature = Doubling(seconds=0.05)

    async def main():
        batching = Batching(ServingConfig(batch_threads=1, max_batch_size=2), Metrics("m"))
        calls = [batching.run(signature, {"x": np.arange(size)}) for size in (2, 6, 2)]
        first, second, third = (asyncio.create_task(call) for call in calls)
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.gather(first, third)
        assert second.cancelled()
        await batching.close()

    gc.freeze()  # looks at no object of other tests
    asyncio.run(main())
    gc.collect()  # asyncio logs an exception that was never retrieved when its future is freed
    gc.unfreeze()
    assert signature.sizes == [2, 2]
    assert not caplog.records


def test_requests_of_two_signatures_share_no_batch():
    doubling, other = Doubling(seconds=0.02), Doubling(seconds=0.02)
    ones, twos = [[1], [1, 1], [1]], [[2, 2], [2], [2, 2, 2]]

    async def main():
        batching = Batching(ServingConfig(batch_threads=1), Metrics("m"))
        calls = [
            batching.run(signature, {"x": np.array(numbers)})
            for pair in zip(ones, twos, strict=True)
            for signature, numbers in zip((doubling, other), pair, strict=True)
        ]
        await asyncio.gather(*calls)
        await batching.close()

    asyncio.run(main())
    assert doubling.seen == {1} and other.seen == {2}
    assert doubling.sizes == [1, 3] and other.sizes == [6]  # each batch has one signature


def ask_in_turn(pauses, **settings):
    """Returns the sizes of the runs when each client asks twice, with a pause in between."""
    signature = Doubling()

    async def main():
        batching = Batching(ServingConfig(**settings, batch_threads=1), Metrics("m"))

        async def ask(pause):
            await batching.run(signature, {"x": np.array([1])})
            await asyncio.sleep(pause)
            await batching.run(signature, {"x": np.array([1])})

        await asyncio.wait_for(asyncio.gather(*map(ask, pauses)), 30)
        await batching.close()

    asyncio.run(main())
    return signature.sizes


def test_a_thread_waits_for_clients_that_were_just_answered():
    assert ask_in_turn([0], max_delay_ms=3_600_000.0) == [1, 1]  # a lone client never waits
    assert ask_in_turn([0, 0], max_delay_ms=300.0) == [1, 2, 1]
    assert ask_in_turn([0, 0, 0.1], max_delay_ms=300.0) == [1, 3, 2]


def test_a_thread_does_not_wait_long_for_a_client_that_does_not_ask_again():
    assert ask_in_turn([0, 0, 0.6], max_delay_ms=50.0) == [1, 3, 1, 1]


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_batches_at_once_as_there_are_threads(threads):
    signature = Doubling(seconds=0.05)
    run([[i] for i in range(12)], signature, max_batch_size=2, batch_threads=threads)
    assert signature.most_at_once == threads


def test_settings_refuse_a_queue_that_is_too_small():
    with pytest.raises(ValueError, match="Received: max_rows=20, max_queued=10"):
        ServingConfig(max_rows=20, max_queued=10)


class Patient(Doubling):
    """Stops a run after its time limit, as a graph does."""

    def __init__(self):
        super().__init__()
        self.timeouts = []

    def __call__(self, inputs, timeout=None):
        self.timeouts.append(timeout)
        self.seconds = min(timeout, 20.0)
        super().__call__(inputs)
        raise tf.errors.DeadlineExceededError(None, None, "Timed out waiting for notification")


def test_a_run_is_stopped_at_the_last_deadline_and_frees_its_thread():
    signature = Patient()

    async def main():
        batching = Batching(ServingConfig(batch_threads=1, max_batch_size=4), Metrics("m"))
        now = asyncio.get_running_loop().time()
        calls = [
            batching.run(signature, {"x": np.array([number])}, now + seconds)
            for number, seconds in ((1, 0.2), (2, 0.3), (3, 0.5))
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await batching.close()
        return answers

    start = time.monotonic()
    answers = asyncio.run(main())
    assert [answer.http_status for answer in answers] == [504] * 3
    assert {str(answer)[:9] for answer in answers} == {"Timed out"}
    assert signature.sizes == [1, 2]  # the first alone, then the two others together
    assert 0.1 < signature.timeouts[0] <= 0.2 and 0.1 < signature.timeouts[1] <= 0.35
    assert time.monotonic() - start < 5


def test_the_queue_is_bounded_in_bytes_too():
    class Texts(Doubling):
        def __call__(self, inputs, timeout=None):
            time.sleep(0.1)
            return {"y": inputs["x"]}

    async def main():
        settings = ServingConfig(
            batch_threads=1, max_body_bytes=1000, max_queued_bytes=200_000, max_batch_size=1
        )
        batching = Batching(settings, Metrics("m"))
        signature, text = Texts(), np.array([b"a" * 80_000], object)
        calls = [batching.run(signature, {"x": text}) for _ in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await batching.close()
        return answers

    answers = asyncio.run(main())
    refused = [answer for answer in answers if isinstance(answer, ServingError)]
    assert len(refused) == 3 and {error.http_status for error in refused} == {503}
    assert "80041 bytes, while 160082 of at most 200000 are held" in str(refused[0])


def test_a_client_that_has_gone_leaves_the_queue():
    signature = Doubling(seconds=0.2)

    async def main():
        batching = Batching(ServingConfig(batch_threads=1, max_batch_size=1), Metrics("m"))
        calls = [
            asyncio.create_task(batching.run(signature, {"x": np.array([number])}))
            for number in range(3)
        ]
        await asyncio.sleep(0.05)
        calls[1].cancel()
        await asyncio.sleep(0)
        assert batching.num_waiting == 1
        await asyncio.gather(*calls, return_exceptions=True)
        await batching.close()

    asyncio.run(main())
    assert signature.sizes == [1, 1]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3), r"Shape of tensor x \[2,3\] is not compatible with expected shape \[\?\]."),
        ((), r"Shape of tensor x \[\] is not compatible with expected shape \[\?\]."),
        ((6,), "Expected at most 5 rows of x in a request. Received: 6."),
    ],
)
def test_inputs_that_do_not_fit_are_refused_and_not_run(shape, message):
    signature = Doubling()

    async def main():
        batching = Batching(ServingConfig(max_rows=5), Metrics("m"))
        with pytest.raises(ServingError, match=message):
            await batching.run(signature, {"x": np.ones(shape)})
        await batching.close()

    asyncio.run(main())
    assert not signature.sizes


def test_answers_may_have_as_many_values_as_the_limit_and_no_more():
    """`Doubling` answers a row with four numbers."""
    (taken, refused) = run([[1, 2], [1, 2, 3]], Doubling(), max_values=8)
    assert taken["y"].tolist() == [2, 4]
    assert refused.http_status == 413
    assert "an answer of at most 8 values. It would have 12." in str(refused)
