"""A model that is divided over four devices of JAX, in a process of its own."""

import os
import subprocess
import sys

import keras
import pytest

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="tests JAX's devices")
PROGRAM = """
import keras
import numpy as np
from keras_transformer.models import Transformer
from keras_transformer.training import TokenCrossEntropy
from keras_transformer.training.distribution import started

rng = np.random.default_rng(1)
source, target, labels = (rng.integers(3, 36, (3, length)) for length in (6, 5, 5))
inputs = {"source_ids": source.astype("int32"), "target_ids": target.astype("int32")}
weights = np.full(labels.shape, 1 / labels.size, "float32")


def results(strategy):
    keras.utils.clear_session()  # numbers no names
    keras.utils.set_random_seed(3)
    with started(strategy) as devices:
        # the devices cannot divide the source's 43 tokens evenly
        model = devices.model_class(Transformer)(
            43, 36, num_layers=1, d_model=16, ff_dim=24, num_heads=4, dropout=0.0
        )
        model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy(0.1))
        model.optimizer.build(model.trainable_variables)
        shared = {
            v.path: v.value.addressable_data(0).shape
            for v in [*model.variables, *model.optimizer.variables]
            if v.value.addressable_data(0).shape != v.shape
        }
        logits = np.asarray(model(inputs))
        batches = ((inputs, labels, weights) for _ in range(3))
        losses = model.fit(batches, epochs=3, steps_per_epoch=1, verbose=0).history["loss"]
        return logits, losses, shared, str(devices)


logits, losses, nothing, _ = results("one")
found, found_losses, shared, name = results("model_parallel")
assert not nothing and name == "one model on 4 devices", name
np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-5)
np.testing.assert_allclose(found_losses, losses, rtol=1e-5)
assert losses[2] < 0.99 * losses[0]
block = "transformer/decoder/block_0"
expected = {
    f"{block}/self_attention/query/kernel": (16, 4),
    f"{block}/cross_attention/value/bias": (4,),
    f"{block}/cross_attention/output/kernel": (4, 16),
    f"{block}/feed_forward/inner/kernel": (16, 6),
    f"{block}/feed_forward/outer/kernel": (6, 16),
    "transformer/decoder/target_embedding/embeddings": (9, 16),
    "adam/transformer_decoder_target_embedding_embeddings_momentum": (9, 16),
}
assert expected.items() <= shared.items(), shared
# three attentions with 7 weights, two feed-forward layers with 3, and a table
assert sum(not path.startswith("adam") for path in shared) == 3 * 7 + 2 * 3 + 1, shared
"""


def test_logits_and_losses_are_those_of_one_device():
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
