"""Dynamic batching: requests that wait at the same time are answered by one run of the graph.

There is one queue of tasks, and a few threads run the graph. A free thread takes the oldest task
and others of the same signature, up to an equal share of all rows, so that all threads have about
the same work. A client that has just been answered often asks again, so a free thread waits a
little for such clients. A single request on an idle server does not wait. The queue is bounded:
requests that do not fit are refused at once. A task leaves the queue when its client gives up, and
a run is stopped when the last deadline of its tasks has passed. Everything but the runs happens in
the event loop, so nothing here needs a lock.
"""

import asyncio
import concurrent.futures
import contextlib
import itertools
import time

import numpy as np
import tensorflow as tf

from keras_transformer.errors import InputError
from keras_transformer.serving import errors
from keras_transformer.serving.memory import Memory, Share

BYTES_PER_STRING = 33  # what a bytes object takes in addition to its text
BYTES_PER_ROW = 1000
"""A run has at most so many bytes for each row of the largest batch, or a single row: the graph
takes a multiple of the memory of its texts, however few of their tokens it translates."""


class _Task:
    """Rows that stay together: a whole request, or a part of a request larger than a batch."""

    def __init__(self, signature, inputs, num_rows, is_batchable, deadline):
        self.signature = signature
        self.inputs = inputs
        self.num_rows = num_rows
        self.num_bytes = sum(map(num_bytes, inputs.values()))
        self.is_batchable = is_batchable
        self.deadline = deadline
        self.answer = asyncio.get_running_loop().create_future()


class Batching:
    """Runs signatures for many requests together. Create and use it in one event loop."""

    def __init__(self, settings, metrics):
        self._settings = settings
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._threads = concurrent.futures.ThreadPoolExecutor(settings.batch_threads, "batch")
        self._num_free = settings.batch_threads
        self._queue = []
        self._memory = Memory(settings.max_queued_bytes)
        self._max_bytes = BYTES_PER_ROW * settings.max_batch_size  # of a run
        self._num_running = 0  # rows in runs that have begun
        self._num_returning = 0  # rows just answered, whose clients may soon ask again
        self._timer = None
        metrics.queue_size.set_function(lambda: self.num_waiting)

    async def run(self, signature, inputs, deadline=None):
        """Returns the outputs of a request: dict from output name to NumPy array.

        Args:
            inputs: dict from input name to NumPy array.
            deadline: None means `request_timeout` seconds from now.
        Raises:
            ServingError: the inputs do not fit the signature or a limit; the answer is too large;
                UNAVAILABLE if the queue is full, DEADLINE_EXCEEDED after the deadline, or the
                error that the graph raised.
        """
        settings = self._settings
        _check_inputs(signature, inputs, settings)
        if deadline is None:
            deadline = self._loop.time() + settings.request_timeout
        tasks = self._tasks(signature, inputs, deadline)
        num_rows = sum(task.num_rows for task in tasks)
        if self.num_waiting + num_rows > settings.max_queued:
            raise errors.unavailable(
                "The batch scheduling queue to which this task was submitted is full. Received: "
                f"{num_rows} rows, while {self.num_waiting} of at most {settings.max_queued} are "
                "waiting. Try again later."
            )
        with contextlib.closing(Share(self._memory)) as share:
            share.hold(sum(task.num_bytes for task in tasks))
            self._queue += tasks
            self._num_returning = max(0, self._num_returning - num_rows)
            self._start_batches()
            found = await self._answers([task.answer for task in tasks], deadline)
        outputs = found[0]
        if len(found) > 1:
            outputs = {name: np.concatenate([part[name] for part in found]) for name in outputs}
        num_values = sum(array.size for array in outputs.values())
        if num_values > settings.max_values:
            raise errors.too_large(
                f"Expected an answer of at most {settings.max_values} values. "
                f"It would have {num_values}. Send fewer or shorter texts."
            )
        return outputs

    async def _answers(self, answers, deadline):
        """Waits for the answers to all tasks of a request, and returns their outputs."""
        try:
            done, late = await asyncio.wait(
                answers, timeout=deadline - self._loop.time(), return_when=asyncio.FIRST_EXCEPTION
            )
        finally:
            for answer in answers:
                if not answer.cancel():
                    answer.exception()  # asyncio logs exceptions that are never retrieved
            self._queue = [task for task in self._queue if not task.answer.done()]
        found = [answer.result() for answer in answers if answer in done]
        if late:
            raise errors.timed_out(self._settings.request_timeout)
        return found

    @property
    def num_waiting(self):
        """Number of rows in the queue."""
        return sum(task.num_rows for task in self._queue)

    async def close(self):
        """Waits until all runs have ended. Do not call `run` afterwards."""
        await self._loop.run_in_executor(None, self._threads.shutdown)

    def _tasks(self, signature, inputs, deadline):
        """Returns the tasks of a request: several if it has more rows than a batch.

        A request whose inputs differ in their number of rows runs alone, and the graph refuses
        it. In a batch, its rows could be paired with those of another request.
        """
        sizes = {len(array) if array.ndim else 1 for array in inputs.values()}
        if not (signature.is_batchable and len(sizes) == 1):
            return [_Task(signature, inputs, max(sizes), False, deadline)]
        (num_rows,) = sizes
        starts, total = [0], 0  # a request without rows is a task too
        for row in range(num_rows):
            size = sum(num_bytes(array[row : row + 1]) for array in inputs.values())
            total += size
            is_full = row - starts[-1] == self._settings.max_batch_size or total > self._max_bytes
            if is_full and row > starts[-1]:
                starts.append(row)
                total = size
        return [
            _Task(signature, part, end - start, True, deadline)
            for start, end in itertools.pairwise([*starts, num_rows])
            for part in [{name: array[start:end] for name, array in inputs.items()}]
        ]

    def _start_batches(self):
        """Gives each free thread a batch, unless waiting would make the batch larger."""
        while self._num_free and self._queue:
            batch, num_rows, share = self._next_batch()
            if self._num_returning and batch[0].is_batchable and num_rows < share:
                return
            taken = set(map(id, batch))
            self._queue = [task for task in self._queue if id(task) not in taken]
            self._num_free -= 1
            self._num_running += num_rows
            self._metrics.batch_size.observe(num_rows)
            run = self._loop.run_in_executor(self._threads, self._run_batch, batch)
            run.add_done_callback(lambda done, batch=batch: self._finish(batch, done.result()))

    def _next_batch(self):
        """Returns the next batch, its number of rows, and the share of rows of one thread."""
        num_rows = self.num_waiting + self._num_running + self._num_returning
        share = min(self._settings.max_batch_size, -(-num_rows // self._settings.batch_threads))
        first, *others = self._queue
        batch, num_rows, size = [first], first.num_rows, first.num_bytes
        for task in others if first.is_batchable else ():
            is_compatible = task.is_batchable and task.signature is first.signature
            has_space = size + task.num_bytes <= self._max_bytes
            if is_compatible and has_space and num_rows + task.num_rows <= share:
                batch.append(task)
                num_rows += task.num_rows
                size += task.num_bytes
        return batch, num_rows, share

    def _finish(self, batch, answers):
        num_rows = sum(task.num_rows for task in batch)
        self._num_free += 1
        self._num_running -= num_rows
        self._num_returning += num_rows
        if self._timer is not None:
            self._timer.cancel()
        delay = self._settings.max_delay_ms / 1000
        self._timer = self._loop.call_later(delay, self._stop_waiting)
        for task, answer in zip(batch, answers, strict=True):
            if task.answer.done():  # the client has given up
                continue
            if isinstance(answer, Exception):
                task.answer.set_exception(errors.from_tensorflow(answer))
            else:
                task.answer.set_result(answer)
        self._start_batches()

    def _stop_waiting(self):
        self._timer = None
        self._num_returning = 0
        self._start_batches()

    def _run_batch(self, batch):
        """Returns the answer of each task, or its exception. Runs in a thread of the pool."""
        signature = batch[0].signature
        timeout = max(task.deadline for task in batch) - self._loop.time()
        if timeout <= 0:
            return [errors.timed_out(self._settings.request_timeout)] * len(batch)
        start = time.perf_counter()
        try:
            if len(batch) == 1:
                return [signature(batch[0].inputs, timeout)]
            inputs = {
                name: np.concatenate([task.inputs[name] for task in batch])
                for name in signature.inputs
            }
            found = signature(inputs, timeout)
            ends = np.cumsum([task.num_rows for task in batch])
            if any(len(array) != ends[-1] for array in found.values()):
                raise InputError(
                    f"Expected {signature.name} to return one row for each input row. Received: "
                    f"{ends[-1]} input rows and another number of output rows."
                )
        except tf.errors.InvalidArgumentError as error:
            if len(batch) == 1:
                return [error]
            # one bad input must not fail the others; skip tasks whose clients have given up
            return [error if t.answer.done() else self._run_batch([t])[0] for t in batch]
        except tf.errors.DeadlineExceededError:
            return [errors.timed_out(self._settings.request_timeout)] * len(batch)
        except Exception as error:
            return [error] * len(batch)
        finally:
            self._metrics.runtime_latency.observe(1e6 * (time.perf_counter() - start))
        return [
            {name: array[end - task.num_rows : end] for name, array in found.items()}
            for task, end in zip(batch, ends, strict=True)
        ]


def num_bytes(array):
    """Returns the approximate memory of an array in bytes."""
    strings = array.ravel() if array.dtype == object else ()
    return array.nbytes + sum(len(text) + BYTES_PER_STRING for text in strings)


def _check_inputs(signature, inputs, settings):
    """Raises `ServingError` for a wrong shape, too many rows or too long a text."""
    max_rows = settings.max_rows if signature.is_batchable else settings.max_rows_alone
    for name, array in inputs.items():
        expected = signature.inputs[name].shape
        if not tf.TensorShape(expected).is_compatible_with(array.shape):
            # the graph's own message; the Python session has another one
            sizes = ",".join("?" if size is None else str(size) for size in expected)
            raise errors.invalid(
                f"Shape of tensor {name} [{','.join(map(str, array.shape))}] "
                f"is not compatible with expected shape [{sizes}]."
            )
        num_rows = len(array) if array.ndim else 1
        if num_rows > max_rows:
            raise errors.too_large(
                f"Expected at most {max_rows} rows of {name} in a request. "
                f"Received: {num_rows}. Send them in several requests."
            )
        longest = max(map(len, array.ravel()), default=0) if array.dtype == object else 0
        if longest > settings.max_text_bytes:
            raise errors.too_large(
                f"Expected at most {settings.max_text_bytes} bytes in a {name}. "
                f"Received: {longest}. Send it in parts."
            )
