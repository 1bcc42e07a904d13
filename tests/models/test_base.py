"""Models create their weights when they are made, and refuse ids outside their vocabulary."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    Ensemble,
    Gpt,
    ImageCaptioner,
    RnnSeq2Seq,
    Transformer,
    VisionTransformer,
)

SIZES = dict(num_layers=1, d_model=12, num_heads=3)
IDS = np.array([[5, 6, 3]])
PAIR = {"source_ids": IDS, "target_ids": np.array([[2, 7]])}


IMAGES = dict(image_size=8, patch_size=4, ff_dim=17, **SIZES)


def bert():
    return Bert(20, ff_dim=17, max_length=9, **SIZES)


@pytest.mark.parametrize(
    "model_class, arguments",
    [
        (Transformer, lambda: dict(source_vocab_size=20, ff_dim=17, output_bias=True, **SIZES)),
        (RnnSeq2Seq, lambda: dict(source_vocab_size=20, d_model=12, units=7, tie_output=False)),
        (Gpt, lambda: dict(vocab_size=20, **SIZES)),
        (BertClassifier, lambda: dict(bert=bert(), num_classes=2)),
        (BertPretraining, lambda: dict(bert=bert(), next_sentence=True)),
        (VisionTransformer, lambda: dict(num_classes=5, **IMAGES)),
        (ImageCaptioner, lambda: dict(vocab_size=20, **IMAGES)),
        (Ensemble, lambda: dict(members=[RnnSeq2Seq(20, d_model=12, units=n) for n in (6, 7)])),
    ],
)
def test_a_model_has_its_weights_when_it_is_made(model_class, arguments):
    """A user's subclass may have more layers: its weights come later, the same for a seed."""
    model, other = (
        (keras.utils.set_random_seed(5), each(**arguments()))[1]
        for each in (model_class, type("Extended", (model_class,), {}))
    )
    lines = []
    model.summary(print_fn=lines.append)
    assert f"Total params: {model.count_params():,} (" in "".join(lines)
    assert model.built and not other.built
    other.build()
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs))
    copy = model_class.from_config(model.get_config())
    assert [w.shape for w in copy.weights] == [w.shape for w in model.weights]


def test_a_part_of_a_users_model_may_be_called_before_it():
    class Extended(Transformer):
        """As one whose constructor goes on."""

    model = Extended(20, ff_dim=17, **SIZES)
    first = ops.convert_to_numpy(model.encode(IDS))
    model(PAIR)
    np.testing.assert_array_equal(ops.convert_to_numpy(model.encode(IDS)), first)


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


def test_ids_outside_the_vocabulary_are_refused_in_validation_data():
    model, bad = Transformer(20, ff_dim=17, **SIZES), {**PAIR, "target_ids": np.array([[2, 20]])}
    model.compile(loss="sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="Expected target_ids from 0 to 19"):
        model.fit(PAIR, np.array([[7, 3]]), validation_data=(bad, np.array([[7, 3]])))


def test_padding_of_another_id_is_in_the_vocabulary():
    model = Gpt(20, pad_id=-1, end_id=None, **SIZES)
    assert model(np.array([[19, -1]])).shape == (1, 2, 20)
    with pytest.raises(ValueError, match="from -1 to 19, .* Received: inputs from -2 to 5"):
        model(np.array([[5, -2]]))
