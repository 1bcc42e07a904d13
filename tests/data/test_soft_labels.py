import itertools

import numpy as np
import pytest

from keras_transformer.data import TranslationBatches
from keras_transformer.data.soft_labels import SoftLabels

LABELS = np.array([9, 9, 9], "int32")
IDS = np.array([[9, 5, 6], [7, 9, 8], [4, 9, 6]], "int32")
PROBABILITIES = np.array([[0.4, 0.3, 0.1], [0.9, 0.0, 0.0], [0.2, 0.2, 0.2]])


@pytest.mark.parametrize("share", [0.3, 0.999999])
def test_labels_are_drawn_as_often_as_they_are_probable(share):
    soft, rng, draws = SoftLabels.of(IDS, PROBABILITIES, share), np.random.default_rng(3), 20_000
    drawn = np.stack([soft.draw(LABELS, rng) for _ in range(draws)])
    assert drawn.dtype == np.int32
    for token in range(3):
        expected = dict.fromkeys([*IDS[token], 9], 0.0)
        for label, probability in zip(IDS[token], PROBABILITIES[token], strict=True):
            expected[label] += share * probability / PROBABILITIES[token].sum()
        expected[9] += 1 - share
        for label, probability in expected.items():
            deviation = (probability * (1 - probability) / draws) ** 0.5
            assert abs(np.mean(drawn[:, token] == label) - probability) <= 5 * deviation
        assert set(drawn[:, token]) <= expected.keys()


def test_only_the_labels_of_batches_change(corpus, tokenizer):
    """The decoder still reads the text, and the weights are those of the text."""
    own, drawn = (TranslationBatches(corpus, tokenizer, batch_tokens=96, seed=4) for _ in range(2))
    num_tokens = len(drawn.rows[1].ids)
    ids = np.tile(np.array([[101, 102]], "int32"), (num_tokens, 1))
    drawn.soft_labels = SoftLabels.of(ids, np.ones(ids.shape), share=0.5)
    seen = []
    for epoch in range(2):
        labels_of_epoch = []
        pairs = zip(own.arrays(False, epoch), drawn.arrays(False, epoch), strict=True)
        for (inputs, labels, weights), (other_inputs, other_labels, other_weights) in pairs:
            for name, array in inputs.items():
                np.testing.assert_array_equal(other_inputs[name], array)
            np.testing.assert_array_equal(other_weights, weights)
            np.testing.assert_array_equal(other_labels == 0, labels == 0)
            assert np.isin(other_labels[other_labels != labels], [101, 102]).all()
            labels_of_epoch.append(other_labels[other_labels != 0])
        share = np.mean(np.concatenate(labels_of_epoch) > 100)
        assert 0.3 < share < 0.7
        seen.append(labels_of_epoch)
        # from the middle of an epoch on, as after an interruption, the same labels come
        for (_, labels, _), expected in zip(
            drawn.arrays(False, epoch, 1), itertools.islice(labels_of_epoch, 1, None), strict=True
        ):
            np.testing.assert_array_equal(labels[labels != 0], expected)
    assert sorted(np.concatenate(seen[0])) != sorted(np.concatenate(seen[1]))


def test_saved_labels_are_the_same(tmp_path):
    rng = np.random.default_rng(2)
    ids, probabilities = np.tile(np.arange(4, 12), (500, 1)), rng.random((500, 8)) ** 4
    soft = SoftLabels.of(ids.astype("int32"), probabilities, 0.5)
    soft.save(tmp_path / "labels.npz")
    loaded = SoftLabels.load(tmp_path / "labels.npz", num_tokens=500, share=0.5)
    np.testing.assert_array_equal(loaded.ids, soft.ids)
    np.testing.assert_array_equal(loaded.cumulative, soft.cumulative)  # a resumed training is exact


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "labels.npz"
    SoftLabels.of(IDS, PROBABILITIES, 0.5).save(path)
    with pytest.raises(ValueError, match="labels of the 4 target tokens.* with 3. Use the text"):
        SoftLabels.load(path, num_tokens=4, share=0.5)
    whole = path.read_bytes()
    for content in (b"", whole[:60], whole[:-40]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="Received: .*labels.npz .*Remove it"):
            SoftLabels.load(path, num_tokens=3, share=0.5)
