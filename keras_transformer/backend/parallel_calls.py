"""Calls in threads, for work that leaves Python, such as a search in TensorFlow."""

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def parallel_calls(num_threads: int) -> Iterator[Callable[..., Callable[[], Any]]]:
    """Yields a function that begins a call in another thread.

    `submit(function, *arguments)` returns a function that waits for the call and returns its
    result. Calls begin in the order of `submit`, at most `num_threads` at once. At the end of the
    context, those that have not begun are dropped. With one thread there is no other thread: a call
    happens when its result is asked for.

    Example:
        with parallel_calls(2) as submit:
            results = [submit(pow, 2, n) for n in range(5)]
            print([result() for result in results])
    """
    if num_threads == 1:
        yield functools.partial
        return
    with concurrent.futures.ThreadPoolExecutor(num_threads) as threads:
        try:
            yield lambda function, *arguments: threads.submit(function, *arguments).result
        finally:
            threads.shutdown(cancel_futures=True)


def first_call_locked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function; calls in other threads wait until its first call has ended.

    The first call of a compiled function compiles it, which each of the threads would do again.
    """
    lock = threading.Lock()
    is_compiled = False

    def call(*args, **kwargs):
        nonlocal is_compiled
        with lock:
            if not is_compiled:
                result = function(*args, **kwargs)
                is_compiled = True
                return result
        return function(*args, **kwargs)

    return call
