"""The cache of compiled searches: what is forgotten, and threads that ask at the same moment."""

import concurrent.futures
import threading
import time

from keras_transformer.decoding.batch_search import MAX_REMEMBERED, remembered


def test_the_search_that_was_not_used_for_longest_is_forgotten():
    cache, made = {}, []

    def ask(key):
        return remembered(cache, key, lambda: made.append(key) or key)

    for key in range(MAX_REMEMBERED):
        ask(key)
    ask(0)  # used again, so that 1 is now the oldest
    ask(MAX_REMEMBERED)
    assert sorted(cache) == [0, *range(2, MAX_REMEMBERED + 1)]
    ask(0)
    ask(1)
    assert made == [*range(MAX_REMEMBERED + 1), 1]


def test_threads_that_ask_at_the_same_moment_get_one_search():
    cache, made = {}, []
    together = threading.Barrier(4)

    def make():
        time.sleep(0.05)  # for as long, the others ask
        made.append(object())
        return made[-1]

    def ask(_):
        together.wait()
        return remembered(cache, "decode", make)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert len(made) == 1 and set(found) == set(made)
