"""Each dropout of the model: where it stands, its rate, and that it acts in training alone.

The model has it on the two embeddings and on the output of each sublayer, and nowhere else: none
on attention weights, none within the feed-forward network.
"""

import contextlib

import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.layers import Dropout

RATE = 0.37
SUBLAYERS = {
    "encoder": ["self_attention", "feed_forward"],
    "decoder": ["self_attention", "cross_attention", "feed_forward"],
}


def places(model):
    """Returns the model's dropouts: dict from (stack, "embedding" or block and sublayer)."""
    found = {(stack, "embedding"): getattr(model, stack).embedding_dropout for stack in SUBLAYERS}
    for stack, names in SUBLAYERS.items():
        for i, block in enumerate(getattr(model, stack).blocks):
            for name in names:
                found[stack, i, name] = getattr(block, f"{name}_residual").output_dropout
    return found


NUM_BLOCKS = {"encoder": 1, "decoder": 2}
PLACES = [(stack, "embedding") for stack in SUBLAYERS]
PLACES += [
    (stack, i, name)
    for stack, names in SUBLAYERS.items()
    for i in range(NUM_BLOCKS[stack])
    for name in names
]


@pytest.fixture
def calls(monkeypatch):
    """The `(shape, rate)` of each dropout that acts; one of rate 0.999 drops everything."""
    calls = []

    def dropout(x, rate, seed_generator):
        calls.append((tuple(x.shape), rate))
        return ops.zeros_like(x) if rate == 0.999 else x

    monkeypatch.setattr(backend, "dropout", dropout)
    return calls


@pytest.fixture(scope="module", params=[False, True], ids=["post-norm", "pre-norm"])
def model(request, make_model):
    """A model no two of whose layers share weights."""
    return make_model(
        num_layers=NUM_BLOCKS["encoder"],
        num_decoder_layers=NUM_BLOCKS["decoder"],
        dropout=RATE,
        normalize_first=request.param,
        positions="learned",
        max_length=13,
        share_embeddings=False,
        tie_output=False,
    )


def logits_of(model, batch, training):
    return ops.convert_to_numpy(model(batch, training=training))


@contextlib.contextmanager
def only(model, place):
    """Lets one dropout drop everything, and the others nothing, for a while."""
    for other, layer in places(model).items():
        layer.rate = 0.999 if other == place else 0.0
    yield
    for layer in places(model).values():
        layer.rate = RATE


@contextlib.contextmanager
def zeros_for_weights(layers):
    before = [layer.get_weights() for layer in layers]
    for layer, weights in zip(layers, before, strict=True):
        layer.set_weights([np.zeros_like(weight) for weight in weights])
    yield
    for layer, weights in zip(layers, before, strict=True):
        layer.set_weights(weights)


def test_the_model_has_these_and_no_others(model, batch, calls):
    layers = [
        layer for layer in model._flatten_layers() if "dropout" in type(layer).__name__.lower()
    ]
    assert {id(layer) for layer in layers} == {id(layer) for layer in places(model).values()}
    assert list(places(model)) == PLACES and len(layers) == len(PLACES)
    assert all(type(layer) is Dropout for layer in layers)
    logits_of(model, batch, training=True)
    source, target = (2, 7, model.d_model), (2, 5, model.d_model)
    assert calls == [(source, RATE)] * 3 + [(target, RATE)] * 7


def test_outside_of_training_none_acts(model, batch, calls):
    logits_of(model, batch, training=False)
    model(batch, return_attention_weights=True)
    model.encode(batch["source_ids"])
    assert calls == []


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " ".join(map(str, place)))
def test_one_that_drops_all_takes_away_what_it_stands_on(model, batch, calls, place):
    """As if the weights that make it were zeros: those of a table, or of a sublayer's last layer.

    An embedding's stands behind the positions, a sublayer's before the residual connection.
    """
    with only(model, place):
        dropped = logits_of(model, batch, training=True)
    assert len(calls) == 1

    name, *block, part = place
    stack = getattr(model, name)
    if part == "embedding":
        made_by = [stack.embedding, stack.position_layer]
    else:
        sublayer = getattr(stack.blocks[block[0]], part)
        made_by = [sublayer.outer if part == "feed_forward" else sublayer.output_projection]
    with zeros_for_weights(made_by):
        expected = logits_of(model, batch, training=False)
    np.testing.assert_allclose(dropped, expected, rtol=1e-5, atol=1e-5)
