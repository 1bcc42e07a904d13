"""What a command says while it works for long and has nothing else to say."""

import contextlib
import threading
import time

from keras_transformer.cli import console

FIRST_SECONDS, EVERY_SECONDS = 1.5, 10.0


@contextlib.contextmanager
def working(text):
    """Says what is done in this context, if it takes longer than a moment, and then how long.

    Args:
        text: what is done, such as "loading the run".
    """
    is_done = threading.Event()

    def remind():
        begin, seconds = time.monotonic(), FIRST_SECONDS
        while not is_done.wait(seconds):
            if seconds == FIRST_SECONDS:
                console.say(text)
            else:
                console.say(f"{text}, {time.monotonic() - begin:.0f} s so far")
            seconds = EVERY_SECONDS

    thread = threading.Thread(target=remind, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
