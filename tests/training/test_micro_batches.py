"""A step in micro-batches on JAX and PyTorch is the whole step; TensorFlow's has its own tests."""

import keras
import numpy as np
import pytest

from keras_transformer.models import Transformer
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy
from keras_transformer.training.one_device import Distribution

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="test_gradient_accumulation.py is TensorFlow's"
)
SIZES = dict(num_layers=1, d_model=16, ff_dim=24, num_heads=2, dropout=0.0)


def batches(num_batches=3, num_rows=8):
    """Yields batches whose parts have very different numbers of tokens."""
    random = np.random.default_rng(1)
    for _ in range(num_batches):
        ids = random.integers(4, 30, (3, num_rows, 9)).astype("int32")
        lengths = np.arange(num_rows)[:, None] % 4 * 2 + 2
        source, target, labels = np.where(np.arange(9) < lengths, ids, 0)
        weights = (labels != 0) / (labels != 0).sum()
        yield {"source_ids": source, "target_ids": target}, labels, weights.astype("float32")


def trained(num_parts, loss):
    """Returns the weights before and after some steps, and the metrics of each of these."""
    keras.utils.set_random_seed(3)
    model = Distribution().model_class(Transformer, num_parts)(30, **SIZES)
    model.build()
    clipped = keras.optimizers.SGD(0.5, global_clipnorm=0.3)
    model.compile(clipped, loss, metrics=[TokenAccuracy(), Perplexity()])
    start = model.get_weights()
    logs = [
        model.fit(*batch[:2], sample_weight=batch[2], batch_size=8, shuffle=False, verbose=0)
        for batch in batches()
    ]
    return start, model.get_weights(), [each.history for each in logs]


def flat(weights):
    return np.concatenate([np.ravel(weight) for weight in weights])


def test_micro_batches_are_the_whole_step():
    loss = TokenCrossEntropy(0.1, r_drop=1.0)  # which predicts each row of a part twice
    start, expected, logs = trained(1, loss)
    same_start, found, logs_of_parts = trained(4, loss)
    np.testing.assert_array_equal(flat(same_start), flat(start))
    distance = np.linalg.norm(flat(expected) - flat(start))
    assert distance > 0.1
    assert np.linalg.norm(flat(found) - flat(expected)) < 1e-5 * distance
    for of_parts, of_step in zip(logs_of_parts, logs, strict=True):
        assert of_parts.keys() == of_step.keys() and len(of_step) == 3
        for name, values in of_step.items():
            np.testing.assert_allclose(of_parts[name], values, rtol=1e-5, err_msg=name)
