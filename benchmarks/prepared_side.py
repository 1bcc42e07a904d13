"""Trains some steps of the preset tiny on prepared text, or on a part of it in memory, or by turns.

Prints a line of JSON. `benchmarks/prepared.py` calls it.
"""

import argparse
import itertools
import json
import pathlib
import tempfile
import time

import keras
import numpy as np

from keras_transformer.config import Config
from keras_transformer.runs.run import Run
from keras_transformer.training import distribution
from keras_transformer.training.train import compiled_model
from keras_transformer.training.translation_task import TranslationTask

WARM_UP = 5
NUM_READ = 10_000


class StepTimes(keras.callbacks.Callback):
    """Notes when each step has ended."""

    def __init__(self):
        super().__init__()
        self.ends, self.first_cpu_seconds = [], None

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.time())
        self.first_cpu_seconds = self.first_cpu_seconds or time.process_time()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--cores")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--in-memory", type=int)
    parser.add_argument("--started", type=float, required=True)
    parser.add_argument("--turns", type=int)
    arguments = parser.parse_args()
    config = Config.load(arguments.output / "config.yaml", Config.from_preset("tiny"))
    data = {"prepared": str(next(arguments.output.glob("prepared-*")))}
    if arguments.turns:
        print(json.dumps(by_turns(config, data, arguments)))
        return
    if arguments.in_memory:
        train = [{"tsv": c.tsv, "max_pairs": arguments.in_memory} for c in config.data.train]
        data = {"train": train}
    config = config.merged({"data": data})
    task, times = TranslationTask(), StepTimes()
    with distribution.started("one") as devices, tempfile.TemporaryDirectory() as directory:
        task.prepare(config, Run(directory), None, devices, print)
        model, _ = compiled_model(task, config, devices)
        dataset = task.batches.dataset()
        model.fit(dataset, steps_per_epoch=arguments.steps, callbacks=[times], verbose=0)
    # more than a shard's, so that the peak of memory is that of the change from one to the next
    sizes = target_sizes(task.batches, NUM_READ)
    seconds = times.ends[-1] - times.ends[WARM_UP - 1]
    result = {
        "first_step": times.ends[0] - arguments.started,
        "first_step_cpu_seconds": times.first_cpu_seconds,
        "tokens_a_second": sum(sizes[WARM_UP : arguments.steps]) / seconds,
        "median_step": float(np.median(np.diff(times.ends))),
    }
    print(json.dumps(result))


def by_turns(config, data, arguments):
    """Trains one model on the shards and on the same text in memory, in turn.

    The first turn, which traces or compiles the steps, does not count.

    Returns:
        A dict of the tokens per CPU second of each turn: others may have the rest of the core.
    """
    configs = {"shards": config.merged({"data": data}), "memory": config}
    tasks, num_tokens, rates = {}, {}, {name: [] for name in configs}
    with distribution.started("one") as devices, tempfile.TemporaryDirectory() as directory:
        for name, config in configs.items():
            tasks[name] = TranslationTask()
            tasks[name].prepare(config, Run(f"{directory}/{name}"), None, devices, print)
            num_tokens[name] = sum(target_sizes(tasks[name].batches, arguments.steps))
        model, _ = compiled_model(tasks["memory"], config, devices)
        for _ in range(1 + arguments.turns):
            for name, task in tasks.items():
                start = time.process_time()
                model.fit(task.batches.dataset(), steps_per_epoch=arguments.steps, verbose=0)
                rates[name].append(num_tokens[name] / (time.process_time() - start))
    counted = {name: each[1:] for name, each in rates.items()}
    ratio = np.median(counted["shards"]) / np.median(counted["memory"])
    return {"backend": keras.backend.backend(), **counted, "ratio": ratio}


def target_sizes(batches, number):
    """Returns the number of target tokens in each of the first batches."""
    first = itertools.islice(batches.arrays(), number)
    return [int((labels != 0).sum()) for _, labels, _ in first]


if __name__ == "__main__":
    main()
