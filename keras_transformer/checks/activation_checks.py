"""What happens within a model: units that are dead, and attention that has chosen."""

import collections
import contextlib

import keras
import numpy as np

from keras_transformer.checks.subject import as_array
from keras_transformer.checks.verdicts import check, failed, held, not_applicable
from keras_transformer.layers.nested import nested_layers
from keras_transformer.layers.token_embedding import TokenEmbedding

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
    for path, rows in _outputs_of(subject, subject.typical_ids()).items():
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
        layers = _attention_of(subject, subject.typical_ids())
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


@contextlib.contextmanager
def _recorded(layers, note, **options):
    """Calls `note(layer, output)` with what each layer returns, until the block ends.

    Args:
        options: arguments that each call of these layers gets, too.
    """

    def replacement(layer, call):
        def replaced(*arguments, **given):
            output = call(*arguments, **given, **options)
            note(layer, output)
            return output[0] if options else output

        return replaced

    layers = [layer for layer in layers if "call" not in vars(layer)]
    for layer in layers:
        object.__setattr__(layer, "call", replacement(layer, layer.call))
    try:
        yield
    finally:
        for layer in layers:
            object.__delattr__(layer, "call")


def _outputs_of(subject, ids):
    """Returns what each innermost layer returns, as rows `(N, D)` of all its calls, by path.

    Embeddings are left out: those of segments or types are rightly the same everywhere. On JAX, so
    is what is within a loop, which has no values.
    """
    found = collections.defaultdict(list)

    def note(layer, output):
        for value in keras.tree.flatten(output):
            dtype = keras.backend.standardize_dtype(getattr(value, "dtype", "int32"))
            is_traced = "Tracer" in type(value).__name__
            if "float" in dtype and len(value.shape) > 1 and not is_traced:
                array = as_array(value)
                found[layer.path or layer.name].append(array.reshape(-1, array.shape[-1]))

    innermost = [
        layer
        for layer in subject.layers
        if len(nested_layers(layer)) == 1
        and not isinstance(layer, (keras.layers.Embedding, TokenEmbedding))
    ]
    with _recorded(innermost, note):
        subject.logits_tensor(**ids)
    return {
        path: np.concatenate([each for each in rows if each.shape[1] == rows[0].shape[1]])
        for path, rows in found.items()
    }


def _attention_of(subject, ids):
    """Returns pairs of a name and the weights `(B, H, T, S)` of the attention, of all layers."""
    found = []
    theirs = [
        layer for layer in subject.layers if isinstance(layer, keras.layers.MultiHeadAttention)
    ]
    with _recorded(
        theirs,
        lambda layer, output: found.append((layer.path, output[1])),
        return_attention_scores=True,
    ):
        if theirs:
            subject.logits_tensor(**ids)
        elif getattr(subject.model, "id_ranges", None):
            _, layers = subject.model(subject.inputs(**ids), return_attention_weights=True)
            for name, weights in layers.items():
                found += [(f"{name} {i + 1}", each) for i, each in enumerate(weights)]
    return [(name, as_array(weights)) for name, weights in found]
