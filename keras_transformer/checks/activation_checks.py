"""What happens within a model: units that are dead, and attention that has chosen."""

import numpy as np

from keras_transformer.checks.recorder import attention_of, outputs_of
from keras_transformer.checks.verdicts import check, failed, held, not_applicable

MAX_CONSTANT = 0.95
"""Largest share of the units of a layer that may have one value everywhere."""
SATURATED = 0.99
"""A weight of the attention from which on a query reads one key alone."""
MAX_SATURATED = 0.95
"""Largest share of the queries of a layer that may do so."""


@check("activations")
def activations(subject):
    """A layer whose output is the same everywhere, or not finite, has no effect that is wanted."""
    largest, where = 0.0, "no layer"
    for path, rows in outputs_of(subject, subject.typical_ids()).items():
        if not np.all(np.isfinite(rows)):
            return failed(f"{path} returns numbers that are not finite", "Look at its inputs.")
        constant = float(np.mean(np.ptp(rows, axis=0) == 0))
        if constant > largest and len(rows) > 1:
            largest, where = constant, path
    if largest > MAX_CONSTANT:
        return failed(
            f"{largest:.0%} of the units of {where} have one value at all positions",
            "Its units are dead (a ReLU below 0), or its weights are 0: lower the learning rate, "
            "or look at how it is initialized.",
        )
    return held(f"at most {largest:.0%} of a layer's units are constant ({where})")


@check("attention")
def attention(subject):
    """Scores that are far too large let each query read one key, and stop the gradient."""
    try:
        layers = attention_of(subject, subject.typical_ids())
    except ValueError:  # such as linear attention, which has no weights
        layers = []
    if not layers:
        return not_applicable("no attention that gives its weights")
    shares = {
        name: float(np.mean(np.max(weights[..., weights.shape[-2] // 2 :, :], -1) > SATURATED))
        for name, weights in layers
    }  # the first queries of a causal layer have few keys
    name = max(shares, key=lambda each: shares[each])
    if shares[name] > MAX_SATURATED:
        return failed(
            f"{shares[name]:.0%} of the queries of {name} read one key alone",
            "Divide the scores by the root of the width of a head, and look at what the queries "
            "and keys are normalized by.",
        )
    return held(f"at most {shares[name]:.0%} of a layer's queries read one key alone ({name})")
