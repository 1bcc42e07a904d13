"""How far a command is with its lines, and that it still works where it has nothing to count."""

import contextlib
import sys
import threading
import time

from keras_transformer.cli import console

SECONDS_BETWEEN_LINES = 60.0
"""Between two lines about the progress where standard error is no terminal."""


class Progress:
    """Shows how far a command is: as a bar in a terminal, elsewhere as a line each minute.

    Args:
        is_shown: whether it is shown at all.
        total: number of lines; None: unknown.
        done: number of lines that were done before these.
    """

    def __init__(self, is_shown=True, total=None, done=0):
        from tqdm import tqdm

        is_terminal = sys.stderr.isatty()
        self._says_lines = is_shown and not is_terminal
        self._total, self._first, self._done, self._ahead = total, done, done, 0
        self._begin = self._said = time.monotonic()
        bar = {"unit": " lines", "total": total, "initial": done}
        self._bar = tqdm(**bar, disable=not (is_shown and is_terminal))

    def one_by_one(self, chunks):
        """Yields the items of each chunk, one for each line."""
        with self._bar:
            for chunk in chunks:
                yield from chunk
                self._done += len(chunk)
                self.ahead(-self._ahead)

    def ahead(self, number):
        """Says that further lines of the chunk that comes next are done; a fraction counts."""
        self._ahead += number
        done = self._done + int(self._ahead)
        self._bar.update(done - self._bar.n)
        now = time.monotonic()
        if self._says_lines and now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            console.say(_far(done, self._total, (done - self._first) / (now - self._begin)))


def _far(number, total, rate):
    """Returns a line about how far a command is; `rate` is in lines a second."""
    text = f"{number:,} lines, {rate:,.1f} a second"
    if total and rate:
        minutes = max(0, total - number) / rate / 60
        text = f"{number:,} of {total:,} lines ({number / total:.0%}), {rate:,.1f} a second, "
        text += f"{minutes:,.0f} minutes left"
    return text


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
