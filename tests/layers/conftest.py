"""The layers' mathematics in NumPy, written from the papers, and what the tests share."""

import keras
import numpy as np
import pytest
from keras import ops


class Reference:
    """The Transformer's parts as loops in float64, on the weights of the layer that is tested."""

    @staticmethod
    def attention(query, key, value, mask=None):
        """Eq. 1 for one head of one sentence: `(T, K)`, `(S, K)`, `(S, K')`, mask `(T, S)`."""
        context = np.zeros((len(query), value.shape[-1]))
        weights = np.zeros((len(query), len(key)))
        for t in range(len(query)):
            seen = [s for s in range(len(key)) if mask is None or mask[t, s]]
            if not seen:
                continue
            scores = np.array([query[t] @ key[s] for s in seen]) / np.sqrt(query.shape[-1])
            exponentials = np.exp(scores - scores.max())
            weights[t, seen] = exponentials / exponentials.sum()
            for s in seen:
                context[t] += weights[t, s] * value[s]
        return context, weights

    @staticmethod
    def dense(layer, x):
        kernel, *bias = (np.asarray(weight, "float64") for weight in layer.get_weights())
        return x @ kernel + (bias[0] if bias else 0.0)

    @classmethod
    def multi_head(cls, layer, query, key, value, mask=None):
        """Section 3.2.2: `(B, T, D)`, `(B, S, D_k)`, `(B, S, D_v)`, mask `(B, T, S)`."""
        queries = cls.dense(layer.query_projection, query)
        keys = cls.dense(layer.key_projection, key)
        values = cls.dense(layer.value_projection, value)
        width = queries.shape[-1] // layer.num_heads
        weights = np.zeros((len(query), layer.num_heads, query.shape[1], key.shape[1]))
        contexts = np.zeros(queries.shape)
        for b in range(len(query)):
            for h in range(layer.num_heads):
                head = slice(h * width, (h + 1) * width)
                contexts[b, :, head], weights[b, h] = cls.attention(
                    queries[b, :, head],
                    keys[b, :, head],
                    values[b, :, head],
                    None if mask is None else mask[b],
                )
        return cls.dense(layer.output_projection, contexts), weights

    @classmethod
    def feed_forward(cls, layer, x):
        """Eq. 2, with the rectifier."""
        return cls.dense(layer.outer, np.maximum(cls.dense(layer.inner, x), 0.0))

    @staticmethod
    def normalization(layer, x):
        """Layer normalization over the last axis."""
        gamma, beta = layer.get_weights()
        mean = x.mean(axis=-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 1e-6) * gamma + beta

    @classmethod
    def residual(cls, layer, x, sublayer):
        """A sublayer, a function of an array, within a `Residual` that drops nothing."""
        if layer.normalize_first:
            return x + sublayer(cls.normalization(layer.normalization, x))
        return cls.normalization(layer.normalization, x + sublayer(x))


def normal(*shapes, seed=3):
    """Returns an array of random numbers, float32, for each shape."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def assert_equal(actual, expected, tolerance=1e-5):
    actual = ops.convert_to_numpy(ops.cast(actual, "float32"))
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="session")
def reference():
    return Reference


@pytest.fixture(scope="session")
def randomize():
    """Gives every weight of a built layer a random value: no bias stays 0, no scale 1."""

    def assign(layer, seed=7):
        rng = np.random.default_rng(seed)
        for weight in layer.weights:
            weight.assign(rng.normal(scale=0.5, size=weight.shape))
        return layer

    return assign


@pytest.fixture(scope="session")
def gradient():
    """From a function and an array to the gradient of the sum of the function's values there."""

    def of(function, x):
        x = ops.convert_to_tensor(x)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                tape.watch(x)
                total = ops.sum(function(x))
            return ops.convert_to_numpy(tape.gradient(total, x))
        if keras.backend.backend() == "jax":
            import jax

            return np.asarray(jax.grad(lambda x: ops.sum(function(x)))(x))
        x = x.clone().requires_grad_()
        ops.sum(function(x)).backward()
        return x.grad.cpu().numpy()

    return of


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(11)
