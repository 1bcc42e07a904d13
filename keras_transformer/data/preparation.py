"""How text becomes the shards of a prepared directory, piece by piece and on several cores.

A chunk of the text is tokenized and dealt to the shards at random, and stands in a file of its own
until all chunks are there. Then each shard is put together of its pieces. Both are functions of the
text, the tokenizers and the seed, so a file that is there need not be made again.

A process of `pieces_made` takes its tasks, pickled, from standard input. It ends when that is
closed, also by a parent that was killed.
"""

import concurrent.futures
import os
import pathlib
import pickle
import queue
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from keras_transformer.data.ragged_ids import RaggedIds, left_out
from keras_transformer.data.shards import Shard, write_shard
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing

CHUNK_PAIRS = 20_000
"""Pairs that a process tokenizes at once."""


class Plan(NamedTuple):
    """What all pieces of a preparation have in common."""

    directory: pathlib.Path
    """Of the shards."""
    work: pathlib.Path
    """The directory of the chunks."""
    tokenizers: tuple
    """Those of source and target."""
    max_length: int
    """Maximum tokens of a side, including the end token."""
    num_parts: int
    num_shards: int
    seed: int

    def path_of_chunk(self, number):
        return self.work / f"chunk-{number:06}"


class Chunk(NamedTuple):
    """Consecutive pairs of a part of the text."""

    number: int
    part: int
    source: list[str]
    target: list[str]


def write_chunk(plan, chunk):
    """Tokenizes a chunk, and writes what each shard gets of it.

    The file has the numbers of pairs without tokens and of long ones, then for each shard the
    number of its pairs and of its ids, all int64; then for each shard the lengths of the sources
    and of the targets and the ids of both, int32.
    """
    sides = list(map(RaggedIds.encode, plan.tokenizers, (chunk.source, chunk.target)))
    is_blank, is_long = left_out(*sides, plan.max_length)
    fits = ~(is_blank | is_long)
    sides = [rows.select(fits) for rows in sides]
    rng = np.random.default_rng([plan.seed, chunk.number])
    shard_of = rng.integers(plan.num_shards, size=int(fits.sum()))
    counts, pieces = [(int(is_blank.sum()), int(is_long.sum()))], []
    for number in range(plan.num_shards):
        source, target = (rows.take(np.flatnonzero(shard_of == number)) for rows in sides)
        counts.append((len(source.lengths), len(source.ids) + len(target.ids)))
        pieces += [source.lengths, target.lengths, source.ids, target.ids]
    with replacing(plan.path_of_chunk(chunk.number)) as partial, open(partial, "wb") as file:
        file.write(np.array(counts, "int64"))  # `tofile` would not say why it fails
        file.write(np.concatenate(pieces).astype("int32"))


def merge_shard(plan, number, parts):
    """Writes a shard of its pieces in the chunks, and returns its `Entry`.

    Args:
        parts: the part of each chunk.
    """
    pieces = []
    for chunk, part in enumerate(parts):
        with open(plan.path_of_chunk(chunk), "rb") as file:
            counts = np.fromfile(file, "int64", 2 * (1 + plan.num_shards)).reshape(-1, 2)[1:]
            num_pairs, num_ids = counts[number]
            before = (counts[:number] @ [2, 1]).sum()
            file.seek(4 * before, os.SEEK_CUR)
            values = np.fromfile(file, "int32", 2 * num_pairs + num_ids)
        lengths = values[: 2 * num_pairs].reshape(2, -1)
        ids = np.split(values[2 * num_pairs :], [lengths[0].sum()])
        pieces.append((*lengths, *ids, np.full(num_pairs, part, "int32")))
    source, target, source_ids, target_ids, part_of = map(np.concatenate, zip(*pieces, strict=True))
    shard = Shard(RaggedIds(source_ids, source), RaggedIds(target_ids, target), part_of)
    return write_shard(plan.directory, number, shard, plan.num_parts)


def num_left_out(plan, num_chunks):
    """Returns the numbers of pairs without tokens and of long ones in all chunks."""
    paths = map(plan.path_of_chunk, range(num_chunks))
    return np.sum([np.fromfile(path, "int64", 2) for path in paths], axis=0).tolist()


# === Processes ===


def pieces_made(plan, tasks, num_processes):
    """Yields what the tasks return, in their order.

    Args:
        tasks: iterable of `(function, *arguments)`; the function is called with the plan before the
            arguments. Tasks are taken as they are needed, so that few are in memory.
        num_processes: number of processes beside this one; 1: all is done in this one.
    """
    if num_processes == 1:
        yield from (function(plan, *arguments) for function, *arguments in tasks)
        return
    free = queue.SimpleQueue()

    def made(task):
        process = free.get()
        try:
            return process.answer(task)
        finally:
            free.put(process)

    processes = []
    pool = concurrent.futures.ThreadPoolExecutor(num_processes)
    try:
        for _ in range(num_processes):
            processes.append(_Process(plan))
            free.put(processes[-1])
        pending = []
        for task in tasks:
            pending.append(pool.submit(made, task))
            if len(pending) > 2 * num_processes:
                yield pending.pop(0).result()
        for each in pending:
            yield each.result()
    finally:
        for process in processes:
            process.end()
        pool.shutdown(cancel_futures=True)


class _Process:
    """Another Python that does tasks of a plan, one after the other."""

    def __init__(self, plan):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # notes of libraries
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the parent
        )
        self._send(plan)

    def _send(self, value):
        pickle.dump(value, self._process.stdin)
        self._process.stdin.flush()

    def answer(self, task):
        try:
            self._send(task)
            value, error = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError):
            code = self._process.wait()
            raise ChildProcessError(f"a process that prepares text has ended ({code})") from None
        if error is not None:
            raise error
        return value

    def end(self):
        self._process.kill()
        self._process.communicate()


def main():
    """Does the tasks that come from standard input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    plan = pickle.load(sys.stdin.buffer)
    while True:
        try:
            function, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = function(plan, *arguments), None
        except (InputError, OSError) as error:
            answer = None, error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
