"""Windows of a text: shifted by one, each token once, drawn anew in each epoch."""

import numpy as np
import pytest

from keras_transformer.data import TextWindows

TEXT = np.arange(4, 61)  # 57 tokens, all different


def epoch_of(windows, epoch=0):
    return list(windows.arrays(repeat=False, epoch=epoch))


def test_a_label_is_the_token_after_its_input():
    windows = TextWindows(TEXT, length=5, batch_size=3)
    batches = epoch_of(windows)
    assert len(batches) == len(windows) == 3  # 10 windows are certain to fit; one is left out
    for inputs, labels, weights in batches:
        assert inputs.shape == labels.shape == weights.shape == (3, 5)
        assert (inputs.dtype, labels.dtype, weights.dtype) == ("int32", "int32", "float32")
        np.testing.assert_array_equal(labels, inputs + 1)
        np.testing.assert_allclose(weights, 1 / 15)


def test_an_epoch_has_a_token_once_and_another_epoch_has_other_windows():
    windows = TextWindows(TEXT, length=5, batch_size=3)
    labels = [np.concatenate([batch[1] for batch in epoch_of(windows, e)]) for e in range(30)]
    assert all(len(np.unique(each)) == each.size for each in labels)
    assert set(np.concatenate(labels).ravel()) == set(TEXT[1:].tolist())  # none is never drawn
    assert not np.array_equal(labels[0], labels[1])
    again = TextWindows(TEXT, length=5, batch_size=3)
    np.testing.assert_array_equal(epoch_of(again, 1)[0][1], labels[1][:3])
    other = TextWindows(TEXT, length=5, batch_size=3, seed=2)
    assert not np.array_equal(epoch_of(other)[0][1], labels[0][:3])


def test_epochs_follow_one_another():
    windows = TextWindows(TEXT, length=5, batch_size=3)
    batches = windows.arrays(epoch=4)
    expected = [*epoch_of(windows, 4), *epoch_of(windows, 5)]
    for batch, (inputs, *_) in zip(batches, expected, strict=False):
        np.testing.assert_array_equal(batch[0], inputs)


@pytest.mark.parametrize("stride", [None, 5, 3, 1])
@pytest.mark.parametrize("num_tokens", [2, 5, 6, 7, 21, 57])
def test_validation_predicts_every_token_once(num_tokens, stride):
    text = TEXT[:num_tokens]
    windows = TextWindows(text, length=5, batch_size=4, shuffle=False, stride=stride)
    batches = epoch_of(windows)
    assert len(batches) == len(windows)
    predicted = []
    for inputs, labels, weights in batches:
        counts = labels != 0
        np.testing.assert_array_equal(labels[counts], inputs[counts] + 1)
        np.testing.assert_allclose(weights, counts / counts.sum(), rtol=1e-6)
        assert counts.any(axis=1).all()
        context = np.argmax(counts, axis=1)  # tokens before the first that is predicted, less one
        assert all(context[inputs[:, 0] != text[0]] == 5 - (stride or 5))
        predicted += labels[counts].tolist()
    assert predicted == text[1:].tolist()


@pytest.mark.parametrize("num_tokens", [6, 9, 10, 11])
def test_a_text_of_about_one_window(num_tokens):
    windows = TextWindows(TEXT[:num_tokens], length=5, batch_size=3)
    assert windows.num_windows == len(windows) == 1
    drawn = {int(epoch_of(windows, epoch)[0][0][0, 0]) for epoch in range(60)}
    assert drawn == set(TEXT[: num_tokens - 5].tolist())


def test_as_tf_data():
    pytest.importorskip("tensorflow")
    windows = TextWindows(TEXT, length=5, batch_size=3)
    dataset = windows.dataset(repeat=False, epoch=2)
    assert int(dataset.cardinality()) == 3
    for batch, expected in zip(dataset, epoch_of(windows, 2), strict=True):
        for tensor, array in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(tensor, array)
    assert int(windows.dataset().cardinality()) == -1  # without end


@pytest.mark.parametrize(
    "ids, options, message",
    [
        (TEXT[:5], dict(length=5), "at least 6 ids, a window .* Received: 5, .*smaller length"),
        (TEXT[:0], dict(length=5), "at least 6 ids"),
        (TEXT - 5, dict(length=5), "Received ids from -1 to 55"),
        (TEXT + 2**40, dict(length=5), "fit into int32"),
        (TEXT, dict(length=5, seed=None), "seed=None"),
        (TEXT, dict(length=5, seed=-1), "seed=-1"),
        (TEXT[:1], dict(length=5, shuffle=False), "at least 2 ids"),
        (TEXT[None], dict(length=5), "ids.shape=\\(1, 57\\)"),
        (TEXT / 2, dict(length=5), "ids.dtype=float64"),
        (TEXT, dict(length=0), "length=0"),
        (TEXT, dict(length=5, batch_size=0), "batch_size=0"),
        (TEXT, dict(length=5, shuffle=False, stride=6), "stride=6, length=5"),
        (TEXT, dict(length=5, stride=5), "shuffle=True"),
    ],
)
def test_errors(ids, options, message):
    with pytest.raises(ValueError, match=message):
        TextWindows(ids, **options)


def test_texts_are_encoded_each_with_its_end(tokenizer):
    texts = ["A dog runs.", "", "Water!"]
    windows = TextWindows.from_texts(texts, tokenizer, 8, shuffle=False)
    expected = [i for ids in tokenizer.encode(texts).to_list() for i in (*ids, 3)]
    assert windows.ids.tolist() == expected and windows.length == 8 and not windows.shuffle
    for nothing in ("A dog runs.", []):
        with pytest.raises(ValueError, match="Expected a list of texts. Received: texts="):
            TextWindows.from_texts(nothing, tokenizer, 8)
