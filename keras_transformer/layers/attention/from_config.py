"""The attention layers by the names that a model's config uses."""

from keras_transformer.errors import InputError
from keras_transformer.layers.attention.feature_maps import PositiveRandomFeatures
from keras_transformer.layers.attention.linear import LinearAttention
from keras_transformer.layers.attention.scaled_dot_product import ScaledDotProductAttention
from keras_transformer.layers.attention.sparse import (
    BlockAttention,
    LocalAttention,
    StridedAttention,
)
from keras_transformer.layers.attention.ssru import Ssru


def _performer(num_features=256, seed=None, **options):
    return LinearAttention(PositiveRandomFeatures(num_features, seed, name="features"), **options)


def _ssru(name=None, **options):
    return Ssru(name=name and "self_attention", **options)  # it is the whole of it


ATTENTIONS = {
    "dense": ScaledDotProductAttention,
    "local": LocalAttention,
    "block": BlockAttention,
    "strided": StridedAttention,
    "linear": LinearAttention,
    "performer": _performer,
    "ssru": _ssru,
}

CROSS_ATTENTIONS = ("dense", "linear", "performer")
"""Those that do not use the distance between query and key."""


def attention_from_config(attention, dropout=0.0, **options):
    """Returns a new layer that attends within heads, or an `Ssru`, which has none.

    Args:
        attention: a name in `ATTENTIONS`, or a dict of a name and the layer's arguments, which are
            whole numbers, such as {"name": "local", "window": 8}.
        dropout: rate on its weights.
        options: further arguments of the layer.
    Raises:
        ValueError: unknown name, an argument that the layer does not have, a value that is not a
            whole number, or dropout for a layer without weights.
    """
    arguments = dict(attention) if isinstance(attention, dict) else {"name": attention}
    name = arguments.pop("name", None)
    if not isinstance(name, str) or name not in ATTENTIONS:
        raise InputError(
            f"attention must be one of {', '.join(ATTENTIONS)}, or a mapping with such a name and "
            f"the layer's arguments. Received: attention={attention!r}."
        )
    for argument, value in arguments.items():
        if argument == "alibi":
            raise InputError(
                "Expected ALiBi as the positions of the model. Received: "
                f"attention={attention!r}. Leave alibi out of it, and write positions: alibi."
            )
        if argument == "dropout":
            raise InputError(
                "Expected the dropout on attention weights as attention_dropout of the model. "
                f"Received: attention={attention!r}. Leave dropout out of it."
            )
        if isinstance(value, bool) or not isinstance(value, int | None):
            raise InputError(
                f"Expected whole numbers as arguments of the attention layer {name!r}. "
                f"Received: {argument}={value!r}."
            )
    if dropout:
        if name in ("linear", "performer", "ssru"):
            raise InputError(
                "Expected attention with weights, some of which can be dropped. Received: "
                f"attention_dropout={dropout}, attention={attention!r}, which computes none. "
                "Set attention_dropout to 0, or choose dense attention."
            )
        options["dropout"] = dropout
    try:
        return ATTENTIONS[name](**arguments, **options)
    except (TypeError, ValueError) as error:
        if "Received" in str(error):  # the layer's own message
            raise
        raise InputError(
            f"Expected arguments of the attention layer {name!r}. Received: {attention!r}. "
            f"The layer says: {error}."
        ) from None
