"""Models create their weights themselves, also where a part of them has some already."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.models import Bert, BertClassifier, Gpt, RnnSeq2Seq, Transformer

SIZES = dict(num_layers=1, d_model=12, num_heads=3)
IDS = np.array([[5, 6, 3]])
PAIR = {"source_ids": IDS, "target_ids": np.array([[2, 7]])}


@pytest.mark.parametrize(
    "make, call_part, inputs",
    [
        (lambda: Transformer(20, ff_dim=17, **SIZES), lambda model: model.encode(IDS), PAIR),
        (
            lambda: RnnSeq2Seq(20, d_model=12, units=7),
            lambda model: model.encoder(IDS),
            PAIR,
        ),
        (lambda: Gpt(20, **SIZES), lambda model: model.decoder(IDS), IDS),
        (lambda: Bert(20, ff_dim=17, max_length=9, **SIZES), lambda model: model.encoder(IDS), IDS),
    ],
    ids=["transformer", "rnn", "gpt", "bert"],
)
def test_a_part_may_be_called_before_its_model(make, call_part, inputs, tmp_path):
    model, other = make(), make()
    call_part(model)
    first = ops.convert_to_numpy(call_part(model)[0])
    other.build()
    model(inputs)
    assert model.built and len(model.weights) == len(other.weights)
    np.testing.assert_array_equal(ops.convert_to_numpy(call_part(model)[0]), first)
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs))


@pytest.mark.parametrize(
    "make, inputs",
    [
        (lambda: Transformer(20, 9, ff_dim=17, **SIZES), PAIR),
        (lambda: RnnSeq2Seq(20, 9, d_model=12, units=7), PAIR),
        (lambda: Gpt(20, **SIZES), {"inputs": IDS}),
        (
            lambda: BertClassifier(Bert(20, ff_dim=17, max_length=9, **SIZES), 2),
            {"ids": IDS, "segment_ids": 0 * IDS},
        ),
    ],
    ids=["transformer", "rnn", "gpt", "bert"],
)
def test_ids_outside_the_vocabulary_are_refused_in_arrays(make, inputs):
    model = make()
    for name in inputs:
        allowed = model.id_ranges[name]
        for wrong in (max(allowed.stop, 6), -7):
            bad = {**inputs, name: np.array([[wrong, 5]])}
            message = f"Expected {name} from 0 to {allowed.stop - 1}, .* from {min(wrong, 5)} to "
            with pytest.raises(ValueError, match=message):
                model(bad["inputs"] if "inputs" in bad else bad)
    with pytest.raises(ValueError, match=f"{name} that are whole numbers. Received: .* with 0.5"):
        bad = {**inputs, name: np.array([[1.0, 0.5]])}
        model(bad["inputs"] if "inputs" in bad else bad)
    assert not model.built  # it was refused before


@pytest.mark.parametrize(
    "name",
    ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"],
)
def test_ids_outside_the_vocabulary_are_refused_by_the_methods_of_keras(name):
    model = Gpt(20, **SIZES)
    model.compile(loss="mse")
    for wrong in (-7, 25):
        with pytest.raises(ValueError, match="Expected inputs from 0 to 19"):
            getattr(model, name)(np.array([[5, wrong]]))
    assert not model.built


def test_ids_outside_the_vocabulary_are_refused_in_validation_data():
    model, bad = Transformer(20, ff_dim=17, **SIZES), {**PAIR, "target_ids": np.array([[2, 20]])}
    model.compile(loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="Expected target_ids from 0 to 19"):
        model.fit(PAIR, np.array([[7, 3]]), validation_data=(bad, np.array([[7, 3]])))
    assert not model.built


def test_padding_of_another_id_is_in_the_vocabulary():
    model = Gpt(20, pad_id=-1, end_id=None, **SIZES)
    assert model(np.array([[19, -1]])).shape == (1, 2, 20)
    with pytest.raises(ValueError, match="from -1 to 19, .* Received: inputs from -2 to 5"):
        model(np.array([[5, -2]]))
