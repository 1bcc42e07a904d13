"""Teacher forcing: in training the decoder reads the labels, shifted right by one position.

An output with a beginning, such as a translation, is shifted by `shift_right`: the start token
comes first. A window of a longer text has no beginning: `shift_window`.

Shapes: B batch, T length.
"""

from keras_transformer.special_ids import PAD_ID, START_ID


def shift_right(labels, numpy):
    """Returns the decoder's input for the labels: the start token, then all but the last label.

    Args:
        labels: `(B, T)`, integers: tokens and the end token, padded with 0 at the end.
        numpy: module whose `concatenate` and `where` accept the labels: `numpy`, `keras.ops` or
            `tensorflow.experimental.numpy`.
    Returns:
        `(B, T)`, with padding where the labels are padding.
    """
    padding = labels * 0 + PAD_ID
    start = padding[:, :1] + START_ID
    shifted = numpy.concatenate([start, labels[:, :-1]], axis=1)
    return numpy.where(labels == PAD_ID, padding, shifted)


def shift_window(windows):
    """Returns the inputs and the labels of a language model, each `(B, T)`.

    Args:
        windows: `(B, T + 1)`, integers: consecutive tokens of a text.
    """
    return windows[:, :-1], windows[:, 1:]
