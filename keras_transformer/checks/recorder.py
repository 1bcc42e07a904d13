"""What layers return within a call of a model."""

import collections
import contextlib

import keras
import numpy as np

from keras_transformer.checks.subject import as_array
from keras_transformer.layers.nested import nested_layers
from keras_transformer.layers.token_embedding import TokenEmbedding


@contextlib.contextmanager
def recorded(layers, note, **options):
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


def outputs_of(subject, ids):
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
    with recorded(innermost, note):
        subject.logits_tensor(**ids)
    return {
        path: np.concatenate([each for each in rows if each.shape[1] == rows[0].shape[1]])
        for path, rows in found.items()
    }


def attention_of(subject, ids):
    """Returns pairs of a name and the weights `(B, H, T, S)` of the attention, of all layers."""
    found = []
    theirs = [
        layer for layer in subject.layers if isinstance(layer, keras.layers.MultiHeadAttention)
    ]
    with recorded(
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
