"""Accepts HTTP connections up to a limit, and a few more for probes."""

import asyncio
import contextlib
import dataclasses
import os
import resource

from keras_transformer.errors import InputError
from keras_transformer.serving import LOG
from keras_transformer.serving.http_connection import HttpConnection

BACKLOG = 1024
ACCEPTED_AT_ONCE = 8
NUM_SPARE = 128
"""Connections over the limit. They last many turns of the event loop, so that a probe is read in
time during a flood."""
NUM_OTHER_FILES = 256
"""File descriptors kept free for everything but connections: files of versions, threads, probes."""
PAUSE_SECONDS = 0.05  # when the system has no file descriptor left
SECONDS_BETWEEN_WARNINGS = 60


class HttpServer:
    """Listens on a port. Create and use it in one event loop.

    Each connection up to the limit has a slot. Connections without a slot are accepted too, because
    their request may be a status probe. If there are too many of them, the oldest is closed.

    Args:
        listener: socket that is bound to its port.
        application: answers the requests. `answer(request)`, a coroutine, and `refuse(error)`
            return a `Response`; `has(path)` returns whether a path takes requests with a body.
    Attributes:
        num_reserved: bytes of large bodies that have arrived and are not answered yet.
    """

    def __init__(self, listener, application, settings):
        self.application = application
        self.settings = settings
        self._num_free_slots = settings.max_rest_connections
        self.is_stopping = False
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._connections = {}  # a dict keeps them ordered from old to new
        self._connecting = set()
        self.num_reserved = 0
        self._warned_at = None
        self._is_empty = asyncio.Event()

    def start(self):
        """Starts to listen.

        Raises:
            OSError: another server listens on the port.
        """
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self, seconds):
        """Accepts no more connections, and closes the open ones after their answers."""
        self.is_stopping = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            if connection.is_waiting:
                connection.abort()
        if self._connections:
            self._is_empty.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)
        for connection in list(self._connections):
            connection.abort()

    def reserve(self, num_bytes):
        """Reserves memory for a body; returns False if that would exceed the limit."""
        if self.num_reserved + num_bytes > self.settings.max_queued_bytes:
            return False
        self.num_reserved += num_bytes
        return True

    def take_slot(self):
        """Takes a slot for a connection if one is free; returns whether it did."""
        if not self._num_free_slots:
            return False
        self._num_free_slots -= 1
        return True

    def leave(self, connection):
        """Removes a connection and releases its slot."""
        if connection in self._connections:
            del self._connections[connection]
            if connection.has_slot:
                self._num_free_slots += 1
        if not self._connections:
            self._is_empty.set()

    def _accept(self):
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            has_slot = self.take_slot()
            if not has_slot:
                self._close_oldest_spare()
            connection = HttpConnection(self, has_slot)
            self._connections[connection] = None
            task = self._loop.create_task(self._connect(connection, client))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection, client):
        try:
            await self._loop.connect_accepted_socket(lambda: connection, client)
        except OSError:  # the client has already gone
            client.close()
            self.leave(connection)

    def _close_oldest_spare(self):
        """Closes the oldest connection without a slot if there are too many of them."""
        spare = [connection for connection in self._connections if not connection.has_slot]
        if len(spare) >= NUM_SPARE:
            next((c for c in spare if c.is_waiting), spare[0]).abort()

    def _pause(self, error):
        """Stops accepting for a moment; asyncio would log a traceback for each attempt."""
        self._loop.remove_reader(self._listener)
        self._loop.call_later(PAUSE_SECONDS, self._resume)
        waiting = (c for c in self._connections if c.is_waiting)
        if (oldest := next(waiting, None)) is not None:  # frees its descriptor for the next client
            oldest.abort()
        now = self._loop.time()
        if self._warned_at is None or now > self._warned_at + SECONDS_BETWEEN_WARNINGS:
            self._warned_at = now
            LOG.warning(
                f"warning: no connection can be accepted: {error.strerror}. Raise the limit of "
                "open files (ulimit -n), or lower --max-connections."
            )

    def _resume(self):
        if not self.is_stopping:
            self._loop.add_reader(self._listener, self._accept)


def fit_connections(settings):
    """Returns the settings with at most as many connections as the process may open.

    Raises the process's limit of open files if needed. If the system does not allow that, lowers
    `max_connections` and prints a warning.

    Raises:
        InputError: the system allows too few open files for even two connections.
    """
    others = _num_open() + NUM_OTHER_FILES
    most = _raised_limit(others + settings.max_connections) - others
    if most >= settings.max_connections:
        return settings
    allowed = others + most
    if most < 2:
        raise InputError(
            f"Expected a process that may open at least {others + 2} files. Received: {allowed}. "
            "Raise its hard limit of open files (ulimit -Hn)."
        )
    LOG.warning(
        f"warning: at most {most} connections instead of {settings.max_connections}, because "
        f"this process may open at most {allowed} files. Raise its hard limit (ulimit -Hn), "
        "or lower --max-connections."
    )
    return dataclasses.replace(settings, max_connections=most)


def _raised_limit(needed):
    """Raises the limit of open files to `needed` if that is allowed, and returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):  # a system may allow less than its hard limit
        return soft
    return raised


def _num_open():
    """Returns the number of files that this process has open."""
    return len(os.listdir("/dev/fd"))
