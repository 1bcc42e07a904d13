"""Trains some steps of the preset tiny on prepared text, or on a part of it in memory.

Prints a line of JSON. `benchmarks/prepared.py` calls it.
"""

import argparse
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
    arguments = parser.parse_args()
    config = Config.load(arguments.output / "config.yaml", Config.from_preset("tiny"))
    data = {"prepared": str(next(arguments.output.glob("prepared-*")))}
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
    sizes = [int((labels != 0).sum()) for _, labels, _ in _first(task.batches, NUM_READ)]
    seconds = times.ends[-1] - times.ends[WARM_UP - 1]
    result = {
        "first_step": times.ends[0] - arguments.started,
        "first_step_cpu_seconds": times.first_cpu_seconds,
        "tokens_a_second": sum(sizes[WARM_UP : arguments.steps]) / seconds,
        "median_step": float(np.median(np.diff(times.ends))),
    }
    print(json.dumps(result))


def _first(batches, number):
    return (batch for batch, _ in zip(batches.arrays(), range(number), strict=False))


if __name__ == "__main__":
    main()
