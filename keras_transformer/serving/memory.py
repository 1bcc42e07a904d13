"""The memory that the requests of all clients may take together."""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import math

from keras_transformer.serving.errors import unavailable

UNCOUNTED_BYTES = 64 * 2**10
"""Requests up to this size are not counted, so that large ones cannot keep them out."""
SMALL_BYTES = 2**13
"""Messages below this size are read and written in the event loop."""
TRIM_SECONDS = 5
"""Interval at which memory that large messages have freed goes back to the system."""


class Memory:
    """Counts the bytes that requests hold. Use it in one event loop.

    Args:
        limit: int, maximum bytes.
    Attributes:
        num_held: bytes that are held now.
    """

    def __init__(self, limit):
        self.limit = limit
        self.num_held = 0


class Share:
    """What one request holds of a `Memory`."""

    def __init__(self, memory):
        self._memory = memory
        self._num_held = 0

    def hold(self, num_bytes):
        """Sets the bytes that the request holds from now on.

        Raises:
            ServingError: UNAVAILABLE if the requests would hold too many. The share is then as
                large as before.
        """
        counted = num_bytes if num_bytes > UNCOUNTED_BYTES else 0
        memory, more = self._memory, counted - self._num_held
        if more > 0 and memory.num_held + more > memory.limit:
            raise unavailable(
                "The server has no memory left for this request. Received: "
                f"{more} bytes, while {memory.num_held} of at most {memory.limit} are held. "
                "Try again later."
            )
        memory.num_held += more
        self._num_held = counted

    def close(self):
        """Holds nothing anymore."""
        self.hold(0)


class OneThread:
    """Reads and writes large messages, one at a time.

    In the event loop they would hold up the other requests; several at once would add up in memory,
    and their threads would slow down the loop. Those that wait can be given up.
    """

    def __init__(self):
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "messages")
        self._turn, self._parsing = asyncio.Lock(), asyncio.Lock()
        self._large_at = -math.inf  # when the last large message came

    async def run(self, num_bytes, function, *arguments):
        """Returns what a function returns that reads or writes so many bytes."""
        if num_bytes < SMALL_BYTES:
            return function(*arguments)
        async with self._turn:
            loop = asyncio.get_running_loop()
            if num_bytes > UNCOUNTED_BYTES:
                self._large_at = loop.time()
            return await loop.run_in_executor(self._thread, function, *arguments)

    async def parse(self, num_bytes, function, *arguments):
        """As `run`, but does not come before the work on what has been parsed already.

        Otherwise all requests would be parsed first, and wait with many times their bytes.
        """
        async with self._parsing if num_bytes >= SMALL_BYTES else contextlib.nullcontext():
            return await self.run(num_bytes, function, *arguments)

    async def give_back_until(self, ended, seconds):
        """Gives free memory back to the system now and then, until a task has ended.

        The C library of Linux keeps what large messages have freed, for later ones, which may never
        come. Others have no `malloc_trim`.

        Args:
            seconds: maximum time from a message to the end of all work on it.
        """
        trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
        while not ended.done():
            await asyncio.wait([ended], timeout=TRIM_SECONDS)
            if asyncio.get_running_loop().time() < self._large_at + seconds + 2 * TRIM_SECONDS:
                await asyncio.to_thread(trim, 0)

    def close(self):
        """Ends the thread. Do not call `run` afterwards."""
        self._thread.shutdown()
