"""Feature maps of linear attention: positive vectors whose dot product stands for exp(q · k).

Shapes: B batch, T length, H heads, K head_dim, M features.
"""

import math

import keras
from keras import ops

from keras_transformer.layers.whole_numbers import check_whole_numbers

LARGEST_EXPONENT = 36.0
"""Beyond it a feature is cut: sums of 10^6 of its squares stay finite in float32."""

LEAST_EXPONENT = -40.0
"""Where elu(x) + 1 ends falling: products of two of them are no zeros in float32."""

EPSILON = 1e-6
"""Added to each random feature, so that no query is far from all keys, and no weight is 0 / 0."""


@keras.saving.register_keras_serializable("keras_transformer")
class EluFeatures(keras.layers.Layer):
    """phi(x) = elu(x) + 1, as many features as the head is wide.

    Source: Katharopoulos et al., 2020, eq. 7, https://arxiv.org/abs/2006.16236. Not an
    approximation of the softmax, but another similarity, which a model is trained with.

    Call arguments:
        x: `(B, T, H, K)`, queries or keys.

    Returns:
        `(B, T, H, K)` float32, above 0: x is held at -40, where phi is 4e-18.

    Example:
    >>> EluFeatures()(np.zeros((1, 5, 2, 4))).shape
    (1, 5, 2, 4)
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x):
        x = ops.cast(x, "float32")
        # elu(x) + 1 itself would round to 0 below -17
        return ops.where(x > 0, x + 1.0, ops.exp(ops.clip(x, LEAST_EXPONENT, 0.0)))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config()  # else Keras records the arguments, and fails on a dtype policy


@keras.saving.register_keras_serializable("keras_transformer")
class PositiveRandomFeatures(keras.layers.Layer):
    """phi(x) = exp(w_m · x' - |x'|^2 / 2) / sqrt(M), x' = x / K^(1/4): Performer's FAVOR+.

    Source: Choromanski et al., 2021, eq. 7 and section 2.4, https://arxiv.org/abs/2009.14794. The
    expectation of phi(q) · phi(k) is exp(q · k / sqrt(K)): the more features, the closer to the
    softmax, with an error that falls as 1 / sqrt(M) and grows fast with the norms of q and k. Of
    queries and keys whose entries have deviation 0.4, and values of deviation 1, the context is off
    by 18 % of its size with K = 64 and M = 256 (M = 1,024: 9 %; with K = 32: 12 % and 6 %), at 1.0
    by more than its size (the norm of the difference to dense attention over the norm of that, the
    median of eight draws of everything, 256 positions; tests/layers/attention/test_linear.py
    measures it). A model is trained with it, it does not take the place of dense attention in a
    trained one. Costs T M K a head.

    The w_m are Gaussian vectors, orthogonal by blocks of K, of which the paper shows that they err
    less. They are kept with the weights, so that a saved model answers as it did.

    A departure from the paper's code: keys are not divided by their largest feature, which would
    let a query see later keys; exponents are cut at 36 instead.

    Args:
        num_features: M.
        seed: of the draws; None: another in each layer.

    Call arguments:
        x: `(B, T, H, K)`, queries or keys.

    Returns:
        `(B, T, H, M)` float32, above 0.

    Raises:
        ValueError: num_features below 1.

    Example:
    >>> PositiveRandomFeatures(num_features=8)(np.zeros((1, 5, 2, 4))).shape
    (1, 5, 2, 8)
    """

    def __init__(self, num_features=256, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        check_whole_numbers(num_features=num_features)
        self.num_features = num_features
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        self.directions = self.add_weight(
            name="directions",
            shape=(self.num_features, input_shape[-1]),
            initializer=lambda shape, dtype: ops.cast(self._draw(*shape), dtype),
            trainable=False,
            dtype="float32",
        )

    def redraw(self):
        """Draws other directions, as a training may do every thousand steps (the paper, 4.2)."""
        if not self.built:
            raise ValueError(
                "Expected features that are built. Received: a layer that has seen no input."
            )
        self.directions.assign(self._draw(*self.directions.shape))

    def _draw(self, num_features, width):
        num_blocks = -(-num_features // width)
        shape = (num_blocks, width, width)
        orthogonal, upper = ops.linalg.qr(keras.random.normal(shape, seed=self.seed_generator))
        # each direction alike: the algorithm fixes signs (Mezzadri, 2007, math-ph/0609050, eq. 4.1)
        signs = ops.sign(ops.diagonal(upper, axis1=-2, axis2=-1))
        orthogonal = orthogonal * signs[:, None]
        directions = ops.reshape(ops.transpose(orthogonal, (0, 2, 1)), (-1, width))[:num_features]
        gaussian = keras.random.normal((num_features, width), seed=self.seed_generator)
        return directions * ops.norm(gaussian, axis=-1, keepdims=True)

    def call(self, x):
        x = ops.cast(x, "float32") * x.shape[-1] ** -0.25
        exponents = ops.matmul(x, ops.transpose(self.directions))
        exponents = exponents - ops.sum(ops.square(x), axis=-1, keepdims=True) / 2
        features = ops.exp(ops.minimum(exponents, LARGEST_EXPONENT)) + EPSILON
        return features * (1.0 / math.sqrt(self.num_features))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.num_features)

    def get_config(self):
        return {**super().get_config(), "num_features": self.num_features, "seed": self.seed}
