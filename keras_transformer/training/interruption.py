"""SIGINT and SIGTERM: finish the step, save, then stop."""

import contextlib
import signal


class Interrupted(Exception):
    """Training was told to stop by a signal; its work is saved.

    Attributes:
        signal_number: which signal it was.
    """

    def __init__(self, signal_number):
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}; the work is saved")
        self.signal_number = signal_number


class Interruption:
    """Remembers a signal until there is a good moment to obey it.

    Attributes:
        signal_number: the signal that came, or None.
        at_once: whether any moment is good: a signal then raises `Interrupted` where it finds the
            program.

    >>> with Interruption.watched() as interruption:
    ...     interruption.signal_number is None
    True
    """

    def __init__(self):
        self.signal_number = None
        self.at_once = False

    def obey_at_once(self):
        """From now on any moment is good; so is this one, if a signal has come."""
        self.at_once = True
        if self.signal_number is not None:
            raise Interrupted(self.signal_number)

    @contextlib.contextmanager
    def obeyed_at_once(self):
        """Raises `Interrupted` for a signal that comes meanwhile, whatever Keras makes of it."""
        try:
            self.obey_at_once()
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
        """Takes the signals over meanwhile; a second one is obeyed at once, as before."""
        interruption = cls()
        before = {}

        def remember(signal_number, _):
            interruption.signal_number = signal_number
            signal.signal(signal_number, before[signal_number])
            if interruption.at_once:
                raise Interrupted(signal_number)

        try:
            for signal_number in (signal.SIGINT, signal.SIGTERM):
                before[signal_number] = signal.signal(signal_number, remember)
        except (
            ValueError
        ):  # not the main thread: a notebook's or a test's, where signals go elsewhere
            pass
        try:
            yield interruption
        finally:
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)
