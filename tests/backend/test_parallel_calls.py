"""Calls in threads: in order, bounded in number, and none left behind."""

import threading
import time

import pytest

from keras_transformer.backend.parallel_calls import first_call_locked, parallel_calls
from keras_transformer.decoding.batch_search import length_batches


@pytest.mark.parametrize("num_threads", [1, 2, 7])
def test_each_result_belongs_to_its_call(num_threads):
    def slow_square(number, seconds):
        time.sleep(seconds)
        return number**2

    with parallel_calls(num_threads) as submit:
        results = [submit(slow_square, n, 0.02 * (n % 3 == 0)) for n in range(9)]
        assert [result() for result in results] == [n**2 for n in range(9)]


def test_as_many_calls_run_at_once_as_there_are_threads():
    together = threading.Barrier(3, timeout=30)  # opens when three calls have come
    running, most = [0], []
    lock = threading.Lock()

    def call(waits):
        with lock:
            running[0] += 1
            most.append(running[0])
        if waits:
            together.wait()
        time.sleep(0.01)
        with lock:
            running[0] -= 1

    with parallel_calls(3) as submit:
        for result in [submit(call, n < 3) for n in range(12)]:
            result()
    assert max(most) == 3


def test_with_one_thread_a_call_happens_in_the_callers_when_its_result_is_asked_for():
    with parallel_calls(1) as submit:
        called = []
        result = submit(lambda: called.append(threading.current_thread()))
        assert called == []
        result()
        assert called == [threading.current_thread()]


def test_an_error_reaches_the_caller_and_nothing_more_begins():
    begun = []

    def call(number):
        begun.append(number)
        if number == 1:
            raise OSError("broken")
        time.sleep(0.05)

    with pytest.raises(OSError, match="broken"), parallel_calls(2) as submit:
        for result in [submit(call, number) for number in range(100)]:
            result()
    assert len(begun) < 20
    assert threading.active_count() < 50


def test_the_first_call_is_alone():
    running, first_ended = [0], threading.Event()

    def function(number):
        running[0] += 1
        if not first_ended.is_set():
            time.sleep(0.05)
            assert running[0] == 1
            first_ended.set()
        return number

    alone = first_call_locked(function)
    with parallel_calls(4) as submit:
        assert [result() for result in [submit(alone, n) for n in range(8)]] == list(range(8))


def test_a_first_call_that_fails_is_tried_again():
    calls = []

    def function():
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("once")
        return "done"

    alone = first_call_locked(function)
    with pytest.raises(ValueError, match="once"):
        alone()
    assert alone() == alone() == "done"


@pytest.mark.parametrize(
    "num_texts, batch_size, num_threads, sizes",
    [
        (10, 4, 1, [4, 4, 2]),
        (10, 4, 2, [4, 4, 2]),
        (7, 4, 2, [4, 3]),
        (7, 64, 2, [4, 3]),  # few texts are shared out
        (2, 64, 4, [1, 1]),
        (0, 64, 4, []),
    ],
)
def test_batches_are_shared_among_threads_the_longest_first(
    num_texts, batch_size, num_threads, sizes
):
    lengths = [3 + 5 * i % 11 for i in range(num_texts)] + [0]  # an empty one is left out
    batches = length_batches(lengths, batch_size, num_threads)
    assert [len(batch) for batch in batches] == sizes
    order = [i for batch in batches for i in batch]
    assert sorted(order) == list(range(num_texts))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)[:-1]
