"""Attention layers by name, as a configuration gives them."""

import pytest

from keras_transformer.layers import LinearAttention, LocalAttention, PositiveRandomFeatures
from keras_transformer.layers.attention.from_config import (
    ATTENTIONS,
    CROSS_ATTENTIONS,
    attention_from_config,
)


def test_each_name_makes_a_new_layer():
    for name in ATTENTIONS:
        layer = attention_from_config(name, dtype="mixed_bfloat16")
        assert layer is not attention_from_config(name)
        assert layer.compute_dtype == "bfloat16"
        assert hasattr(layer, "decode_step")
        assert hasattr(layer, "attend_to_memory") or name == "ssru"
    assert set(CROSS_ATTENTIONS) < set(ATTENTIONS)


def test_arguments_reach_the_layer():
    given = {"name": "local", "window": 3}
    layer = attention_from_config(given, alibi=True)
    assert isinstance(layer, LocalAttention) and layer.window == 3 and layer.alibi
    assert given == {"name": "local", "window": 3}
    layer = attention_from_config({"name": "performer", "num_features": 9, "chunk_size": 4})
    assert isinstance(layer, LinearAttention) and layer.chunk_size == 4
    assert isinstance(layer.feature_map, PositiveRandomFeatures)
    assert layer.feature_map.num_features == 9


@pytest.mark.parametrize(
    "attention, received",
    [
        ("sparse", "attention='sparse'"),
        (3, "attention=3"),
        ({"window": 3}, r"attention=\{'window': 3\}"),
        ({"name": ["local"]}, "attention="),
        ({"name": "local", "stride": 3}, "stride"),
        ({"name": "local", "window": 0}, "window=0"),
        ({"name": "local", "window": "wide"}, "wide"),
        ({"name": "local", "window": 2.5}, "window=2.5"),
        ({"name": "local", "window": True}, "window=True"),
        ({"name": "linear", "feature_map": "elu"}, "feature_map='elu'"),
        ({"name": "dense", "dropout": 0}, "dropout"),
    ],
)
def test_what_it_does_not_know_is_refused(attention, received):
    with pytest.raises(ValueError, match=f"Received: .*{received}"):
        attention_from_config(attention)
