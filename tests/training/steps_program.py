"""Takes ten steps of `fit`, divided as the arguments say, and writes weights and losses.

    python steps_program.py STRATEGY DEVICES BATCHES.npz CASES.json OUTPUT.npz

`test_gradient_accumulation.py` runs it in processes of its own, as TensorFlow takes its devices
once.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.layers import Dropout
from keras_transformer.models import Transformer
from keras_transformer.models.decoder_model import TokenModel
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy
from keras_transformer.training.distribution import start
from keras_transformer.training.optimizer import AveragingAdam

STEPS = 10
INPUTS = "source_ids", "target_ids", "alignment"
SIZES = dict(num_layers=1, d_model=16, ff_dim=24, num_heads=2, dropout=0.0)
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "clipped": lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.1),
    "averaging": lambda: AveragingAdam(0.01, decay=0.7),
    "accumulating": lambda: keras.optimizers.SGD(0.5, gradient_accumulation_steps=2),
}


class SmallModel(TokenModel):
    """Predicts a token from the token before and the mean of the source, with one table for all.

    It aligns a token by dot products. It is traced in a tenth of the time of a Transformer.
    """

    def __init__(self, vocab_size, dtype=None):
        super().__init__(dtype=dtype)
        normal = keras.initializers.RandomNormal(stddev=0.5)
        self.embedding = keras.layers.Embedding(vocab_size, 16, normal, dtype=dtype)
        self.dense = keras.layers.Dense(16, dtype=dtype)

    def build(self, input_shape=None):
        self.embedding.build((None, None))
        self.dense.build((None, None, 16))
        self.built = True

    def call(self, inputs, training=False):
        source, target = self.embedding(inputs["source_ids"]), self.embedding(inputs["target_ids"])
        is_token = keras.ops.cast(inputs["source_ids"][..., None] != 0, source.dtype)
        number = keras.ops.maximum(keras.ops.sum(is_token, axis=1, keepdims=True), 1)
        mean = keras.ops.sum(source * is_token, axis=1, keepdims=True) / number
        hidden = self.dense(target + mean)
        scores = keras.ops.matmul(hidden, keras.ops.transpose(source, (0, 2, 1))) / 4
        log_weights = keras.ops.log_softmax(keras.ops.cast(scores, "float32"))
        return self.predict_tokens(hidden, (inputs["alignment"], log_weights) if training else None)

    def project(self, hidden):
        return keras.ops.matmul(hidden, keras.ops.transpose(self.output_table()))

    def output_table(self):
        return keras.ops.cast(self.embedding.embeddings, self.compute_dtype)


def main(strategy, num_devices, batches_path, cases, output):
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * int(num_devices)
    tf.config.set_logical_device_configuration(cpu, devices)
    distribution = start(strategy)
    with np.load(batches_path) as arrays:
        batches = [
            tuple(arrays[f"{name}/{i}"] for name in (*INPUTS, "labels", "weights"))
            for i in range(STEPS)
        ]
    results = {"replicas": distribution.num_replicas, "dropout": dropped(distribution)}
    for name, case in json.loads(cases).items():
        results |= {
            f"{name}/{key}": value for key, value in take_steps(distribution, batches, **case)
        }
    np.savez(output, **results)


def take_steps(
    distribution,
    batches,
    optimizer="sgd",
    parts=1,
    of_keras=False,
    dtype=None,
    small=False,
    run_eagerly=False,
):
    """Yields names and arrays: the weights before, after a step and at the end, and the losses."""
    keras.utils.set_random_seed(3)
    with distribution.scope():
        model_class = SmallModel if small else Transformer
        if not of_keras:
            model_class = distribution.model_class(model_class, parts)
        sizes = {} if small else SIZES
        model = model_class(150, **sizes, dtype=dtype)
        model.build()
        model.compile(
            OPTIMIZERS[optimizer](),
            TokenCrossEntropy(0.1),
            metrics=[TokenAccuracy(), Perplexity()],
            run_eagerly=run_eagerly,
        )
        model.optimizer.build(model.trainable_variables)
    yield "start", weights(model)
    row_multiple = 1 if of_keras else distribution.num_replicas * parts

    def generate():
        for arrays in batches:
            missing = -len(arrays[0]) % row_multiple
            *inputs, labels, token_weights = (
                np.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)]) for array in arrays
            )
            yield dict(zip(INPUTS, inputs, strict=True)), labels, token_weights

    ids = tf.TensorSpec([None, None], tf.int32)
    inputs = dict(zip(INPUTS, (ids, ids, tf.TensorSpec([None, None, None])), strict=True))
    signature = inputs, ids, tf.TensorSpec([None, None])
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if not of_keras:
        dataset = distribution.dataset(dataset)

    class Record(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.steps = []

        def on_train_batch_end(self, batch, logs=None):
            self.steps.append(weights(self.model))

    record = Record()
    try:
        history = model.fit(
            dataset, epochs=STEPS, steps_per_epoch=1, callbacks=[record], verbose=0, shuffle=False
        ).history
    except Exception as error:
        yield "error", type(error).__name__
        return
    yield "after_a_step", record.steps[0]
    yield "end", weights(model)
    if optimizer == "averaging":
        yield "steps", np.stack(record.steps)
        inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        yield "averages", np.concatenate([np.ravel(average) for average in inner.averages])
    yield from history.items()


def weights(model):
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


def dropped(distribution):
    """Returns what each replica here makes of the same ones by the same dropout layer."""
    with distribution.scope():
        layer = Dropout(0.5, seed=1)
    if distribution.strategy is None:
        return np.stack([layer(np.ones([40]), training=True)])
    results = distribution.strategy.run(lambda: layer(tf.ones([40]), training=True))
    return np.stack(distribution.strategy.experimental_local_results(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
