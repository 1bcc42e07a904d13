"""A product with a matrix, in the form that XLA can differentiate within a loop."""

from keras import ops


def project(x, weight):
    """Returns x W as one product of two matrices, from `(..., D)` and `(D, U)` to `(..., U)`.

    A product of higher rank would be transposed in the gradient by a permutation that TensorFlow
    computes. XLA needs it as a constant, and refuses a loop over such a step.
    """
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), weight)
    return ops.reshape(flat, (*ops.shape(x)[:-1], weight.shape[-1]))
