"""How many connections may be open: one count for all ports."""

import threading


class ConnectionBudget:
    """A number of places, of which each open connection takes one.

    Args:
        limit: int.
    """

    def __init__(self, limit):
        self.limit = limit
        self._num_taken = 0
        self._lock = threading.Lock()

    def try_acquire(self):
        """Takes a place if one is left; returns whether it did."""
        with self._lock:
            if self._num_taken >= self.limit:
                return False
            self._num_taken += 1
            return True

    def release(self):
        """Gives a place back."""
        with self._lock:
            self._num_taken -= 1
