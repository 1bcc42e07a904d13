"""Each dropout of the model: where it stands, its rate, and that it acts in training alone.

The paper has it on the two embeddings and on the output of each sublayer. Further ones, which are
off unless asked for, stand on whole tokens, on attention weights and within feed-forward networks.
"""

import contextlib

import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.layers import Dropout, WordDropout
from keras_transformer.layers.nested import nested_layers
from tests.models.conftest import logits_of

RATES = {"dropout": 0.37, "attention_dropout": 0.29, "ff_dropout": 0.21, "word_dropout": 0.13}
SUBLAYERS = {
    "encoder": ["self_attention", "feed_forward"],
    "decoder": ["self_attention", "cross_attention", "feed_forward"],
}


def places(model):
    """Returns the model's dropouts: dict from stack, block and sublayer, and argument."""
    found = {}
    for name, sublayers in SUBLAYERS.items():
        stack = getattr(model, name)
        found[name, "word_dropout"] = stack.token_dropout
        found[name, "dropout"] = stack.embedding_dropout
        for i, block in enumerate(stack.blocks):
            for part in sublayers:
                sublayer = getattr(block, part)
                if part == "feed_forward":
                    found[name, i, part, "ff_dropout"] = sublayer.inner_dropout
                else:
                    found[name, i, part, "attention_dropout"] = sublayer.attention.weights_dropout
                found[name, i, part, "dropout"] = getattr(block, f"{part}_residual").output_dropout
    return found


PLACES = [(stack, kind) for stack in SUBLAYERS for kind in ("word_dropout", "dropout")]
PLACES += [
    (stack, 0, part, kind)
    for stack, parts in SUBLAYERS.items()
    for part in parts
    for kind in ("ff_dropout" if part == "feed_forward" else "attention_dropout", "dropout")
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


NORMS = pytest.mark.parametrize(
    "model", [False, True], ids=["post-norm", "pre-norm"], indirect=True
)


@pytest.fixture(scope="module")
def model(request, make_model):
    """A model of one block on each side, no two of whose layers share weights."""
    return make_model(
        num_decoder_layers=1,
        **RATES,
        normalize_first=request.param,
        positions="learned",
        max_length=13,
        share_embeddings=False,
        tie_output=False,
    )


@contextlib.contextmanager
def only(model, place):
    """Lets one dropout drop everything, and the others nothing, for a while."""
    for other, layer in places(model).items():
        layer.rate = 0.999 if other == place else 0.0
    yield
    for other, layer in places(model).items():
        layer.rate = RATES[other[-1]]


@contextlib.contextmanager
def zeros_for_weights(layers):
    before = [layer.get_weights() for layer in layers]
    for layer, weights in zip(layers, before, strict=True):
        layer.set_weights([np.zeros_like(weight) for weight in weights])
    yield
    for layer, weights in zip(layers, before, strict=True):
        layer.set_weights(weights)


@NORMS
def test_the_model_has_these_and_no_others(model, batch, calls):
    layers = [layer for layer in nested_layers(model) if "dropout" in type(layer).__name__.lower()]
    assert {id(layer) for layer in layers} == {id(layer) for layer in places(model).values()}
    assert set(places(model)) == set(PLACES) and len(layers) == len(PLACES)
    assert {type(layer) for layer in layers} == {Dropout, WordDropout}
    logits_of(model, batch, training=True)
    expected = []
    for length, attended in ((7, [7]), (5, [5, 7])):
        output = (2, length, model.d_model), RATES["dropout"]
        expected += [((2, length, 1), RATES["word_dropout"]), output]
        for keys in attended:
            weights = 2, model.num_heads, length, keys
            expected += [(weights, RATES["attention_dropout"]), output]
        expected += [((2, length, model.ff_dim), RATES["ff_dropout"]), output]
    assert calls == expected


def test_without_their_arguments_there_are_none(make_model, batch, calls):
    model = make_model(dropout=0.0, num_decoder_layers=1)
    logits_of(model, batch, training=True)
    assert calls == []
    for kind in ("attention_dropout", "ff_dropout", "word_dropout"):
        assert getattr(model, kind) == 0.0
        with pytest.raises(ValueError, match=f"Received: {kind}=1.5"):
            make_model(**{kind: 1.5})


@pytest.mark.parametrize("attention", ["local", "block", "strided"])
def test_the_weights_of_sparse_attention_are_dropped(make_model, batch, calls, attention):
    rates = dict(dropout=0.0, attention_dropout=0.999)
    model = make_model(**rates, attention=attention, num_decoder_layers=1)
    dropped = logits_of(model, batch, training=True)
    blocks = [*model.encoder.blocks, *model.decoder.blocks]
    assert len(calls) == len(model.encoder.blocks) + 2 * len(model.decoder.blocks)
    made_by = [block.self_attention.value_projection for block in blocks]
    made_by += [block.cross_attention.value_projection for block in model.decoder.blocks]
    with zeros_for_weights(made_by):
        expected = logits_of(model, batch, training=False)
    np.testing.assert_allclose(dropped, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["attention", "cross_attention"])
@pytest.mark.parametrize("name", ["linear", "performer"])
def test_linear_attention_has_no_weights_to_drop(make_model, kind, name):
    with pytest.raises(ValueError, match=f"attention_dropout=0.1, attention='{name}'"):
        make_model(attention_dropout=0.1, **{kind: name})


@NORMS
def test_outside_of_training_none_acts(model, batch, calls):
    logits_of(model, batch, training=False)
    model(batch, return_attention_weights=True)
    model.encode(batch["source_ids"])
    assert calls == []


@pytest.mark.parametrize(
    "model, place",
    # only that on the output of a sublayer depends on where the normalization stands
    [
        (norm, place)
        for norm in (False, True)
        for place in PLACES
        if not norm or (len(place) == 4 and place[-1] == "dropout")
    ],
    ids=lambda value: (
        " ".join(map(str, value)) if isinstance(value, tuple) else f"pre-norm {value}"
    ),
    indirect=["model"],
)
def test_one_that_drops_all_takes_away_what_it_stands_on(model, batch, calls, place):
    """As if the weights that make it were zeros: those of a table, or of a sublayer's last layer.

    That of whole tokens stands before the positions, an embedding's behind them, a sublayer's
    before the residual connection.
    """
    with only(model, place):
        dropped = logits_of(model, batch, training=True)
    assert len(calls) == 1

    name, *sublayer, kind = place
    stack = getattr(model, name)
    if kind == "word_dropout":
        made_by = [stack.embedding]
    elif not sublayer:
        made_by = [stack.embedding, stack.position_layer]
    else:
        block, part = sublayer
        sublayer = getattr(stack.blocks[block], part)
        if part == "feed_forward":
            made_by = [sublayer.inner if kind == "ff_dropout" else sublayer.outer]
        elif kind == "attention_dropout":
            made_by = [sublayer.value_projection]
        else:
            made_by = [sublayer.output_projection]
    with zeros_for_weights(made_by):
        expected = logits_of(model, batch, training=False)
    np.testing.assert_allclose(dropped, expected, rtol=1e-5, atol=1e-5)
