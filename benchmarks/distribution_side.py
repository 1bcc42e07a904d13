"""One process of the benchmark of devices; prints a line of JSON with the tokens of a whole step.

`benchmarks/distribution.py` calls it once for each worker.
"""

import argparse
import json
import time

import keras
import numpy as np
import tensorflow as tf
from training_side import (
    LABEL_SMOOTHING,
    LEARNING_RATE,
    SIZES,
    dataset_of,
    our_model,
    read_batches,
)

from keras_transformer.models import Transformer
from keras_transformer.training import TokenCrossEntropy
from keras_transformer.training.distribution import start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("strategy")
    parser.add_argument("--batches", required=True)
    parser.add_argument("--preset", choices=SIZES, required=True)
    parser.add_argument("--devices", type=int, default=1, help="logical devices of this process")
    parser.add_argument("--parts", type=int, default=1, help="micro-batches per step")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * arguments.devices
    tf.config.set_logical_device_configuration(cpu, logical)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(arguments.threads, arguments.devices))
    distribution = start(arguments.strategy)
    batches = filled_up(
        read_batches(arguments.batches), distribution.num_replicas * arguments.parts
    )
    with distribution.scope():
        model = make_model(distribution, arguments.preset, arguments.parts)
    clock = Clock()
    model.fit(
        distribution.dataset(dataset_of(batches).repeat(2).prefetch(2)),
        steps_per_epoch=len(batches),
        epochs=2,  # the first one builds what each shape needs
        callbacks=[clock],
        verbose=0,
        shuffle=False,
    )
    tokens = sum(int((labels != 0).sum()) for _, _, labels in batches)
    print(json.dumps({"tokens_a_second": tokens / clock.seconds}))


def filled_up(batches, multiple):
    """Returns the batches with rows of padding up to a multiple of rows."""
    return [
        tuple(np.pad(array, [(0, -len(array) % multiple), (0, 0)]) for array in batch)
        for batch in batches
    ]


def make_model(distribution, preset, num_parts):
    keras.utils.set_random_seed(1)
    model = our_model(distribution.model_class(Transformer, num_parts), SIZES[preset])
    model.build()
    optimizer = keras.optimizers.Adam(LEARNING_RATE, beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, TokenCrossEntropy(LABEL_SMOOTHING))
    model.optimizer.build(model.trainable_variables)
    return model


class Clock(keras.callbacks.Callback):
    """Measures the seconds of the last epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.start


if __name__ == "__main__":
    main()
