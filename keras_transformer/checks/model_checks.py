"""What a model computes: that a token sees what it should, and nothing else.

Differences are shares of the largest logit. Exact equality is not expected: products of other sizes
add in another order.
"""

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import gradients
from keras_transformer.checks.subject import as_array
from keras_transformer.checks.verdicts import check, failed, held, not_applicable

NO_EFFECT = 3e-6
"""Difference of logits up to which a change of the input is taken to have no effect."""
WHOLE_TEXT = "the model reads the whole text"
NO_TABLE = "no table of embeddings that is trained"
LARGEST_ROUNDING_ERROR = 0.5
"""Largest difference of logits in mixed precision, in standard deviations of the logits."""


def difference(logits, expected):
    """Returns the largest difference of logits, as a share of the largest one."""
    return float(np.max(np.abs(logits - expected)) / max(np.max(np.abs(expected)), 1e-30))


def _changed(ids, subject, seed=9):
    """Returns random ids, each of which is another than in `ids`."""
    first, stop = ids.min(), subject.vocab_size
    first = min(first, max(0, stop - 8))
    steps = np.random.default_rng(seed).integers(1, max(2, stop - first), ids.shape)
    return (first + (ids - first + steps) % (stop - first)).astype("int32")


@check("finite weights", is_quick=True)
def finite_weights(subject):
    """One number that is not finite makes all outputs so."""
    subject.logits_tensor(**subject.random_ids(1))  # a subclass may have no weights before
    bad = [w.path for w in subject.model.weights if not _is_finite(w)]
    if bad:
        return failed(f"not finite: {bad[0]} ({len(bad)} weights)", "Go back to an earlier one.")
    return held(f"{subject.model.count_params():,} numbers")


def _is_finite(weight):
    if "float" not in keras.backend.standardize_dtype(weight.dtype):
        return True
    return bool(np.all(np.isfinite(as_array(weight))))


@check("same twice", is_quick=True)
def same_twice(subject):
    """Dropout that is on while a model predicts, or a state that is kept, changes the answer."""
    ids = subject.random_ids()
    largest = difference(subject.logits(**ids), subject.logits(**ids))
    if largest > subject.tolerance:
        return failed(
            f"the same input gives logits that differ by {largest:.1e}",
            "Look for dropout or noise that ignores training=False, or a layer with a state.",
        )
    return held(f"difference {largest:.1e}")


@check("causality", is_quick=True)
def causality(subject):
    """What comes later must not change what is predicted: it is not there when decoding."""
    if not subject.is_causal:
        return not_applicable(WHOLE_TEXT)
    ids = subject.random_ids(1)
    length = ids["target"].shape[1]
    later = np.triu(np.ones((length, length), bool))[1:]  # row t - 1: from t on, all is changed
    rows = np.concatenate(
        [ids["target"], np.where(later, _changed(ids["target"], subject), ids["target"])]
    )
    sources = {"source": np.repeat(ids["source"], length, axis=0)} if subject.has_source else {}
    logits = subject.logits(rows, **sources)
    for t in range(1, length):
        largest = difference(logits[t, :t], logits[0, :t])
        if largest > subject.tolerance:
            at = int(np.argmax(np.max(np.abs(logits[t, :t] - logits[0, :t]), axis=-1)))
            return failed(
                f"the tokens from {t} on change the logits of position {at} by {largest:.1e}",
                "Mask each position's later ones in every layer that mixes positions, its "
                "normalizations and convolutions included.",
            )
    return held(f"{length - 1} changed futures")


@check("causality by gradients")
def causality_by_gradients(subject):
    """The gradient by a later token's embedding is exactly 0, however small the leak would be."""
    if not subject.is_causal:
        return not_applicable(WHOLE_TEXT)
    tables = _tables(subject)
    if len(tables) == 0 or subject.vocab_size < 16:
        return not_applicable(NO_TABLE)
    ids = subject.random_ids(1)
    half = ids["target"].shape[1] // 2
    order = np.random.default_rng(3).permutation(np.arange(4, subject.vocab_size)).astype("int32")
    later, others = np.split(order, [len(order) // 2])  # ids of the future, and all others
    ids["target"][:, :half] = np.resize(others, half)
    ids["target"][:, half:] = np.resize(later, ids["target"].shape[1] - half)
    if subject.has_source:
        ids["source"][:] = np.resize(others[::-1], ids["source"].shape[1])
    kept = np.zeros((1, 1, subject.logits(**ids).shape[-1]), "float32")
    kept[..., others] = np.cos(others)  # a tied table is read in the output layer, too

    def past():
        logits = ops.cast(subject.logits_tensor(**ids), "float32")
        return ops.sum(logits[:, :half] * ops.convert_to_tensor(kept))

    found = [g for g in gradients(past, tables) if g is not None]
    largest = max((float(np.max(np.abs(g[ids["target"][0, half:]]))) for g in found), default=0.0)
    if largest > 0:
        return failed(
            f"the embeddings of later tokens have a gradient of {largest:.1e}",
            "A position sees a later one: look at masks and at what mixes positions.",
        )
    return held(f"exactly 0 for {len(np.unique(ids['target'][0, half:]))} later tokens")


def _tables(subject):
    """Returns the weights of the embeddings that are trained, `(V, D)` each."""
    return [
        weight
        for weight in subject.model.trainable_weights
        if len(weight.shape) == 2
        and weight.shape[0] == subject.vocab_size
        and "embed" in weight.path
    ]


@check("padding", is_quick=True)
def padding(subject):
    """Padding depends on the neighbours in a batch, so it must not change a text's logits."""
    ids, found = subject.random_ids(), []
    expected = subject.logits(**ids)
    for side in ids:
        if subject.length_of(side) is None:
            padded = np.pad(ids[side], [(0, 0), (0, 3)], constant_values=subject.pad_id)
            logits = subject.logits(**{**ids, side: padded})
            found.append((difference(logits[:, : expected.shape[1]], expected), side))
        elif (largest := _gradient_of_padding(subject, ids, side)) is not None:
            found.append((largest, side))
    if not found:
        return not_applicable("the model takes one length, and has no table that is trained")
    largest, side = max(found)
    if largest > subject.tolerance:
        return failed(
            f"3 tokens of padding after the {side} change the logits ({largest:.1e})",
            "Hand the mask to every layer that mixes positions, and see that no layer between "
            "drops Keras's implicit mask (supports_masking).",
        )
    return held(f"largest difference {largest:.1e} ({', '.join(side for _, side in found)})")


def _gradient_of_padding(subject, ids, side):
    """Returns the largest gradient by the embedding of padding in a side of a fixed length.

    The logits are those before the padding, of other tokens, as a tied table is read for its own.
    None: there is no such table.
    """
    ids = {name: rows.copy() for name, rows in ids.items()}
    ids[side][:, -3:] = subject.pad_id
    tables, stop = _tables(subject), -3 if side == "target" else None

    def kept():
        logits = ops.cast(subject.logits_tensor(**ids), "float32")
        return ops.sum(ops.sin(logits[:, :stop, subject.pad_id + 1 :]))

    found = [each for each in gradients(kept, tables) if each is not None] if tables else []
    return max((float(np.max(np.abs(each[subject.pad_id]))) for each in found), default=None)


@check("neighbours", is_quick=True)
def neighbours(subject):
    """A text has the same logits alone and in a batch."""
    ids = subject.random_ids()
    together = subject.logits(**ids)
    alone = [
        subject.logits(**{k: v[i : i + 1] for k, v in ids.items()}) for i in range(len(together))
    ]
    largest = difference(np.concatenate(alone), together)
    if largest > subject.tolerance:
        return failed(
            f"alone, a row has logits that differ by {largest:.1e}",
            "Look for statistics over the batch, a wrong axis, or a reshape that mixes rows.",
        )
    return held(f"largest difference {largest:.1e}")


@check("source", is_quick=True)
def source(subject):
    """A translation that does not depend on the source is none."""
    if not subject.has_source:
        return not_applicable("the model has no source")
    ids = subject.random_ids()
    other = _changed(ids["source"], subject)
    largest = difference(subject.logits(ids["target"], other), subject.logits(**ids))
    if largest <= NO_EFFECT:
        return failed(
            f"another source changes the logits by {largest:.1e}",
            "See that the cross-attention reads the encoder's output, and that its mask is not "
            "inverted.",
        )
    return held(f"another source changes the logits by {largest:.1e}")


@check("order", is_quick=True)
def order(subject):
    """Without positions, a model reads a bag of words."""
    ids, found = subject.random_ids(), {}
    expected = subject.logits(**ids)[:, -1]
    for side in ids:
        swapped = ids[side].copy()
        swapped[:, [-3, -2]] = swapped[:, [-2, -3]]
        found[side] = difference(subject.logits(**{**ids, side: swapped})[:, -1], expected)
    side = min(found, key=lambda each: found[each])
    if found[side] <= NO_EFFECT:
        return failed(
            f"two tokens of the {side}, swapped, change the logits by {found[side]:.1e}",
            "Add positions to the embeddings, or to the attention.",
        )
    return held(f"swapped tokens change the logits by {found[side]:.1e} or more")


@check("gradients reach all weights")
def gradients_reach_all(subject):
    """A weight without a gradient is never trained."""
    weights = subject.model.trainable_weights
    if not weights:
        return not_applicable("no weight is trained")
    ids = subject.random_ids(8)

    def value():
        outputs = subject.model(subject.inputs(**ids), training=False)  # the logits may be one
        outputs = [ops.cast(output, "float32") for output in keras.tree.flatten(outputs)]
        return sum(
            ops.sum(ops.sin(output + ops.arange(output.shape[-1], dtype="float32")))
            for output in outputs
        )

    missing = [
        weight.path
        for weight, gradient in zip(weights, gradients(value, weights), strict=True)
        if (gradient is None or not np.any(gradient)) and not weight.path.endswith("key/bias")
    ]  # softmax takes no notice of a bias of all keys
    if missing:
        return failed(
            f"no gradient: {missing[0]} ({len(missing)} of {len(weights)} weights)",
            "The layer is not called, its output is not used, or its units are dead.",
        )
    return held(f"{len(weights)} weights")


@check("mixed precision")
def mixed_precision(subject):
    """bfloat16 and float16 round, and float16 overflows above 65,504."""
    ids, found = subject.random_ids(), {}
    expected = subject.logits(**ids)
    policies = [(layer, layer.dtype_policy) for layer in subject.layers]
    if any(policy.compute_dtype != "float32" for _, policy in policies if policy is not None):
        return not_applicable("the model computes in another type than float32")
    names = ["mixed_bfloat16", "mixed_float16"]
    if keras.backend.backend() == "torch":
        names = names[:1]  # many operations lack float16 on a CPU
    for name in names:
        try:
            for layer, _ in policies:
                layer.dtype_policy = name
            logits = as_array(subject.logits_tensor(**ids))
        finally:
            for layer, policy in policies:
                layer.dtype_policy = policy
        found[name] = float(np.max(np.abs(logits - expected)) / np.std(expected))
        if not found[name] <= LARGEST_ROUNDING_ERROR:  # or not a number
            return failed(
                f"{name} changes logits by {found[name]:.2g} of their standard deviation",
                "Compute softmax, normalization and masks in float32, and mask with a number that "
                "the type has.",
            )
    return held(", ".join(f"{name} {error:.2g}" for name, error in found.items()))
