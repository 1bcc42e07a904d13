"""SIGINT, SIGTERM and SIGHUP: finish the step, save, then stop."""

import contextlib
import signal

import keras


class Interrupted(Exception):
    """Training was told to stop by a signal; its work is saved.

    Attributes:
        signal_number: which signal it was.
    """

    def __init__(self, signal_number: int) -> None:
        name = signal.Signals(signal_number).name
        super().__init__(
            f"interrupted by {name}; the work is saved, and the same command goes on from there"
        )
        self.signal_number = signal_number


class Interruption:
    """Remembers a signal until training can stop.

    Attributes:
        signal_number: the signal that was received, or None.
        at_once: whether a signal raises `Interrupted` immediately, wherever the program is.

    >>> with Interruption.watched() as interruption:
    ...     interruption.signal_number is None
    True
    """

    def __init__(self):
        self.signal_number = None
        self.at_once = False

    def stop_at_once(self):
        """From now on a signal raises `Interrupted`; so does one that was received before."""
        self.at_once = True
        if self.signal_number is not None:
            raise Interrupted(self.signal_number)

    @contextlib.contextmanager
    def stopping_at_once(self):
        """Raises `Interrupted` for a signal received inside, whatever error Keras makes of it."""
        try:
            self.stop_at_once()
            yield
        except Exception as error:
            if self.signal_number is None:
                raise
            raise Interrupted(self.signal_number) from error
        finally:
            self.at_once = False

    @classmethod
    @contextlib.contextmanager
    def watched(cls):
        """Handles the signals inside; a second signal does what it did before."""
        interruption = cls()
        before = {}

        def remember(signal_number, _):
            interruption.signal_number = signal_number
            signal.signal(signal_number, before[signal_number])
            if interruption.at_once:
                raise Interrupted(signal_number)

        try:
            for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                is_ignored = signal.getsignal(signal_number) == signal.SIG_IGN
                if signal_number == signal.SIGHUP and is_ignored:  # by nohup
                    continue
                before[signal_number] = signal.signal(signal_number, remember)
        except ValueError:
            pass  # not the main thread, which alone receives signals
        try:
            yield interruption
        finally:
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)


class StopAtOnce(keras.callbacks.Callback):
    """Lets a signal stop a validation immediately, since a validation may take long.

    In the list of callbacks it comes after those that compute the score, the last part of a
    validation, and before those that write. It is not used with several workers: they agree to stop
    after a step or after a whole validation.

    Args:
        interruption: `Interruption`.
    """

    def __init__(self, interruption):
        super().__init__()
        self.interruption = interruption

    def on_test_batch_begin(self, batch, logs=None):
        # not when the validation begins: weights and averages are exchanged then
        self.interruption.stop_at_once()

    def on_epoch_end(self, epoch, logs=None):
        self.interruption.at_once = False
