"""What a training is given: labels, their end, and what padding counts."""

import keras
import numpy as np
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask  # no public function does it

from keras_transformer.checks.model_checks import WHOLE_TEXT
from keras_transformer.checks.verdicts import check, failed, held, not_applicable


def _labels(subject):
    """Returns the target ids and the labels `(B, T)`, and where labels are no padding."""
    _, labels, _ = keras.utils.unpack_x_y_sample_weight(subject.batch)
    labels = np.asarray(ops.convert_to_numpy(labels))
    labels = labels[..., 0] if labels.ndim == 3 else labels
    return subject.batch_ids("target"), labels, labels != subject.pad_id


@check("labels are the next tokens", needs="batch")
def labels_are_the_next_tokens(subject):
    """A model whose labels are its input learns to copy, with a loss that falls to 0."""
    if not subject.is_causal:
        return not_applicable(WHOLE_TEXT)
    ids, labels, is_real = _labels(subject)
    pairs = is_real[:, :-1] & (ids[:, 1:] != subject.pad_id)
    next_share = float(np.mean((labels[:, :-1] == ids[:, 1:])[pairs]))
    if next_share < 0.99:
        same_share = float(np.mean((labels == ids)[is_real]))
        return failed(
            f"{next_share:.0%} of the labels are the next token of the input, {same_share:.0%} the "
            "same token",
            "Shift the input right by one, with the start token before it.",
        )
    return held(f"{next_share:.0%} of the labels are the next token")


@check("end token", needs="batch")
def end_token(subject):
    """Without an end token that is no padding, a model never learns where to stop."""
    if not subject.is_causal:
        return not_applicable(WHOLE_TEXT)
    _, labels, is_real = _labels(subject)
    lengths = is_real.sum(axis=1)
    last = {int(row[length - 1]) for row, length in zip(labels, lengths, strict=True) if length}
    if len(last) > 1:
        return failed(
            f"rows end with {len(last)} different labels before the padding",
            "End each row with the end token, with another id than padding.",
        )
    return held(f"each row ends with {last.pop()}")


@check("loss on padding", needs="batch")
def loss_on_padding(subject):
    """Padding that counts makes the loss small, and the model learn to predict padding."""
    inputs, given, weights = keras.utils.unpack_x_y_sample_weight(subject.batch)
    _, _, is_real = _labels(subject)
    if is_real.all():
        return not_applicable("the batch has no padding")
    if weights is not None and np.ndim(weights) > 1:
        counted = int(np.count_nonzero(ops.convert_to_numpy(weights)[~is_real]))
        if not counted:
            return held(f"weight 0 at {int((~is_real).sum())} positions of padding")
        return failed(f"{counted} positions of padding have a weight", "Give them the weight 0.")
    if not getattr(subject.model, "compiled", False):
        return not_applicable("the model is not compiled")
    logits = subject.model(inputs, training=False)
    other = ops.where(
        is_real[..., None], logits, logits + ops.arange(logits.shape[-1], dtype=logits.dtype)
    )
    if (mask := get_keras_mask(logits)) is not None:
        set_keras_mask(other, mask)
    losses = [
        float(subject.model.compute_loss(inputs, given, each, weights)) for each in (logits, other)
    ]
    if abs(losses[1] - losses[0]) > 1e-5 * abs(losses[0]):
        return failed(
            f"other logits at padding change the loss from {losses[0]:.4f} to {losses[1]:.4f}",
            "Give padding the sample weight 0, or the loss ignore_class.",
        )
    return held("logits at padding do not change the loss")
