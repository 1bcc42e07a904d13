"""Accepts HTTP connections up to a limit, and a few more for probes."""

import asyncio
import contextlib
import dataclasses
import math
import os
import resource

from keras_transformer.errors import InputError
from keras_transformer.serving import LOG
from keras_transformer.serving.http_connection import HttpConnection
from keras_transformer.serving.memory import Memory

BACKLOG = 1024
ACCEPTED_AT_ONCE = 8
NUM_SPARE = 128
"""Connections over the limit. They last many turns of the event loop, so that a probe is read in
time during a flood."""
NUM_OTHER_FILES = 256
"""File descriptors kept free for everything but connections: files of versions, threads, probes."""
FREE_SECONDS = 0.5  # between closing idle connections when the system has no descriptor left
SECONDS_BETWEEN_WARNINGS = 60


class HttpServer:
    """Listens on a port. Create and use it in one event loop.

    Each connection up to the limit has a slot. Connections without a slot are accepted too, because
    their request may be a status probe. If there are too many of them, the oldest is closed.

    Args:
        listener: socket that is bound to its port.
        application: answers the requests. `answer(request)`, a coroutine, and `refuse(error)`
            return a `Response`; so does `refusal_of_body(path)` for a path that takes no requests
            with a body, and None for one that does.
    Attributes:
        memory: `Memory` of the bodies that arrive and the answers that are not read yet.
    """

    def __init__(self, listener, application, settings):
        self.application = application
        self.settings = settings
        self.is_stopping = False
        self.memory = Memory(settings.max_queued_bytes)
        self._num_free_slots = settings.max_rest_connections
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._server = None
        self._connections = {}  # a dict keeps them ordered from old to new
        self._warned_at = self._freed_at = -math.inf
        self._is_empty = asyncio.Event()

    async def start(self):
        """Starts to listen.

        Raises:
            OSError: another server listens on the port.
        """
        self._loop.set_exception_handler(self._report)
        self._server = await self._loop.create_server(
            lambda: HttpConnection(self), sock=self._listener, backlog=ACCEPTED_AT_ONCE
        )
        self._listener.listen(BACKLOG)

    async def stop(self, seconds):
        """Accepts no more connections, and closes the open ones after their answers."""
        self.is_stopping = True
        self._server.close()
        self._abort_waiting(len(self._connections))
        if self._connections:
            self._is_empty.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)
        for connection in list(self._connections):
            connection.abort()

    def enter(self, connection):
        """Adds a connection, with a slot if one is free."""
        if not self.take_slot(connection):
            spare = [c for c in self._connections if not c.has_slot]
            if len(spare) >= NUM_SPARE:
                next((c for c in spare if c.is_waiting), spare[0]).abort()
        self._connections[connection] = None

    def take_slot(self, connection):
        """Gives a connection a slot if one is free; returns whether it has one."""
        if not connection.has_slot and self._num_free_slots:
            self._num_free_slots -= 1
            connection.has_slot = True
        return connection.has_slot

    def leave(self, connection):
        """Removes a connection and releases its slot."""
        if connection in self._connections:
            del self._connections[connection]
            self._num_free_slots += connection.has_slot
        if not self._connections:
            self._is_empty.set()

    def _abort_waiting(self, number):
        """Closes the oldest connections that wait for a request."""
        waiting = [connection for connection in self._connections if connection.is_waiting]
        for connection in waiting[:number]:
            connection.abort()

    def _report(self, loop, context):
        """Reports an error of the event loop.

        If it cannot accept a connection, asyncio would log a traceback for each attempt, and there
        would be no descriptor for a probe. It tries again after a second.
        """
        if "accept" not in context["message"]:
            loop.default_exception_handler(context)
            return
        now = loop.time()
        if now > self._freed_at + FREE_SECONDS:
            self._freed_at = now
            self._abort_waiting(ACCEPTED_AT_ONCE)
        if now > self._warned_at + SECONDS_BETWEEN_WARNINGS:
            self._warned_at = now
            LOG.warning(
                f"warning: no connection can be accepted: {context['exception'].strerror}. Raise "
                "the limit of open files (ulimit -n), or lower --max-connections."
            )


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
