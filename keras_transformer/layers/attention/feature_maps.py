"""Feature maps of linear attention: positive vectors whose dot product replaces exp(q · k).

Shapes: B batch, T length, H heads, K head_dim, M features.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.layers.base import Layer
from keras_transformer.types import Shape, Tensor

LARGEST_EXPONENT = 36.0
"""Larger exponents are clipped to it: a sum of 10^6 squared features stays finite in float32."""

LEAST_EXPONENT = -40.0
"""Smaller x are clipped to it: the product of two features elu(x) + 1 is not 0 in float32."""

EPSILON = 1e-6
"""Added to each random feature: no query has similarity 0 to all keys, and no weight is 0 / 0."""


@keras.saving.register_keras_serializable("keras_transformer")
class EluFeatures(Layer):
    """phi(x) = elu(x) + 1, with one feature for each entry of x.

    Source: Katharopoulos et al., 2020, eq. 7, https://arxiv.org/abs/2006.16236. It does not
    approximate the softmax: it is another similarity, and a model must be trained with it.

    Call arguments:
        x: `(B, T, H, K)`, queries or keys.

    Returns:
        `(B, T, H, K)` float32, above 0. Unlike in the paper, x below -40 is clipped to -40, where
        phi is 4e-18.

    Example:
    >>> EluFeatures()(np.zeros((1, 5, 2, 4))).shape
    (1, 5, 2, 4)
    """

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, "float32")
        # exp(x) rather than elu(x) + 1, which would round to 0 below -17
        return ops.where(x > 0, x + 1.0, ops.exp(ops.clip(x, LEAST_EXPONENT, 0.0)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


@keras.saving.register_keras_serializable("keras_transformer")
class PositiveRandomFeatures(Layer):
    """phi(x) = exp(w_m · x' - |x'|^2 / 2) / sqrt(M), x' = x / K^(1/4): Performer's FAVOR+.

    Source: Choromanski et al., 2021, eq. 7 and section 2.4, https://arxiv.org/abs/2009.14794. The
    expectation of phi(q) · phi(k) is exp(q · k / sqrt(K)). The error falls as 1 / sqrt(M) and grows
    fast with the norms of q and k. For queries and keys with standard deviation 0.4, and values
    with 1, the relative error of the context is 18 % with K = 64 and M = 256 (M = 1,024: 9 %; with
    K = 32: 12 % and 6 %); for queries and keys with 1.0 it is above 100 % (the norm of the
    difference to dense attention, divided by the norm of dense attention; median of four draws,
    256 positions; tests/layers/attention/test_linear.py measures it). A model must be trained with
    it: it cannot replace dense attention in a trained model. Costs T M K per head.

    The w_m are Gaussian vectors, orthogonal within blocks of K, for which the paper shows a
    smaller error. They are saved with the weights, so that a loaded model gives the same answers.

    A departure from the paper's code: keys are not divided by their largest feature, which would
    let a query see later keys; exponents are clipped at 36 instead. As in that code, but not in
    the equation, `EPSILON` is added to exp(...).

    Args:
        num_features: M.
        seed: seed of the draws; None: a different one in each layer.

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

    def __init__(self, num_features: int = 256, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integers(num_features=num_features)
        self.num_features = num_features
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape) -> None:
        self.directions = self.add_weight(
            name="directions",
            shape=(self.num_features, input_shape[-1]),
            initializer=lambda shape, dtype: ops.cast(self._draw(*shape), dtype),
            trainable=False,
            dtype="float32",
        )

    def redraw(self) -> None:
        """Draws new directions, which training may do every thousand steps (the paper, 4.2)."""
        if not self.built:
            raise InputError(
                "Expected features that are built. Received: a layer that has seen no input."
            )
        self.directions.assign(self._draw(*self.directions.shape))

    def _draw(self, num_features, width):
        num_blocks = -(-num_features // width)
        shape = (num_blocks, width, width)
        orthogonal, upper = ops.linalg.qr(keras.random.normal(shape, seed=self.seed_generator))
        # QR fixes signs; this makes directions uniform (Mezzadri, 2007, math-ph/0609050, eq. 4.1)
        signs = ops.sign(ops.diagonal(upper, axis1=-2, axis2=-1))
        orthogonal = orthogonal * signs[:, None]
        directions = ops.reshape(ops.transpose(orthogonal, (0, 2, 1)), (-1, width))[:num_features]
        gaussian = keras.random.normal((num_features, width), seed=self.seed_generator)
        return directions * ops.norm(gaussian, axis=-1, keepdims=True)

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, "float32") * x.shape[-1] ** -0.25
        # one product of matrices: of four axes with two, TensorFlow 2.20 reads beyond the end
        exponents = ops.tensordot(x, self.directions, axes=[[-1], [1]])
        exponents = exponents - ops.sum(ops.square(x), axis=-1, keepdims=True) / 2
        features = ops.exp(ops.minimum(exponents, LARGEST_EXPONENT)) + EPSILON
        return features * (1.0 / math.sqrt(self.num_features))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.num_features)
