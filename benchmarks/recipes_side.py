"""Trains the model of a recipe for a few steps at full size; prints a line of JSON.

The ids are random, in sentences of 32 tokens without padding, so that a step has as many source
tokens and as many target tokens as the recipe allows. A first step builds the graph, and is not
timed. `benchmarks/recipes.py` calls it. On a GPU, JAX computes the whole step at once:

    KERAS_BACKEND=jax python benchmarks/without_tensorflow.py benchmarks/recipes_side.py \\
        wmt14-en-de-base --steps 20 --part-tokens 25000 --bfloat16
"""

import argparse
import json
import math
import time

from pinned import peak_megabytes
from training_side import dataset_of, examples_of, start_keras

LENGTH = 32  # tokens of a sentence


def size_of_step(training, part_tokens):
    """Returns the parts of a step and its sentences."""
    num_parts = math.ceil(training.batch_tokens / part_tokens)
    return num_parts, training.batch_tokens // (LENGTH * num_parts) * num_parts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--part-tokens", type=int, required=True)
    parser.add_argument("--bfloat16", action="store_true")
    arguments = parser.parse_args()
    import keras
    import numpy as np

    on_tensorflow = keras.backend.backend() == "tensorflow"
    if on_tensorflow:
        start_keras(arguments.bfloat16, threads=1)
    elif arguments.bfloat16:
        keras.config.set_dtype_policy("mixed_bfloat16")

    from keras_transformer.config import Config
    from keras_transformer.models.from_config import model_class_of
    from keras_transformer.special_ids import START_ID
    from keras_transformer.training import TokenAccuracy, TokenCrossEntropy
    from keras_transformer.training.optimizer import make_optimizer
    from keras_transformer.training.schedules import schedule_of

    config = Config.from_preset(arguments.recipe)
    training = config.training
    vocab_size = config.tokenizer.vocab_size
    num_parts, rows = size_of_step(training, arguments.part_tokens)
    draw = np.random.default_rng(1).integers

    def batch(rows, length):
        source_ids, labels = draw(4, vocab_size, (2, rows, length)).astype("int32")
        target_ids = np.roll(labels, 1, axis=1)
        target_ids[:, 0] = START_ID
        return source_ids, target_ids, labels

    class Clock(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.cpu, self.wall = [], []

        def on_train_batch_begin(self, batch, logs=None):
            self.cpu_start, self.wall_start = time.process_time(), time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])  # waits for a GPU
            self.cpu.append(time.process_time() - self.cpu_start)
            self.wall.append(time.perf_counter() - self.wall_start)

    model_class = model_class_of(config)
    if on_tensorflow:
        from keras_transformer.training.gradient_accumulation import with_divided_step

        model_class = with_divided_step(model_class, num_parts)
    model = model_class(vocab_size, **config.model_arguments)
    model.build()
    loss = TokenCrossEntropy(label_smoothing=training.label_smoothing)
    adam = make_optimizer(training, schedule_of(training, model.d_model))
    model.compile(adam, loss, metrics=[TokenAccuracy()])
    # JAX compiles for each shape, TensorFlow once for all
    first = batch(num_parts, 4) if on_tensorflow else batch(rows, LENGTH)
    batches = [first, *(batch(rows, LENGTH) for _ in range(arguments.steps))]
    clock = Clock()
    model.fit(
        dataset_of(batches) if on_tensorflow else examples_of(batches),
        steps_per_epoch=len(batches),
        callbacks=[clock],
        verbose=0,
        shuffle=False,
    )
    result = {
        "parameters": model.count_params(),
        "tokens": rows * LENGTH,
        "micro_batches": num_parts,
        "cpu_seconds": clock.cpu[1:],
        "wall_seconds": clock.wall[1:],
        "megabytes": peak_megabytes(),
    }
    if not on_tensorflow:
        result.update(gpu_of_jax())
    print(json.dumps(result))


def gpu_of_jax():
    import jax

    device = jax.devices()[0]
    statistics = device.memory_stats() or {}
    return {"device": device.device_kind, "gpu_bytes": statistics.get("peak_bytes_in_use")}


if __name__ == "__main__":
    main()
