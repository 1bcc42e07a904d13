"""The generated pictures: captions say what is drawn, and held-out pairs are new."""

import numpy as np
import pytest

from keras_transformer.quickstart import pictures
from keras_transformer.quickstart.pictures import (
    COLOURS,
    RELATIONS,
    SHAPES,
    SIZE,
    WORDS,
    caption_examples,
    caption_ids,
    caption_words,
    picture_corpus,
)


@pytest.fixture(scope="module")
def corpus():
    return picture_corpus(num_train=1500, num_held_out=60, seed=2)


# from the first thing to the second, to the right and down
DIRECTIONS = {"above": (0, 1), "below": (0, -1), "left of": (1, 0), "right of": (-1, 0)}


def things_of(caption):
    """Returns `[(colour, shape), ...]` and the relation, or None, of a caption."""
    words = caption.split()
    assert words[0] == "a" and words[1] in COLOURS and words[2] in SHAPES
    if len(words) == 3:
        return [tuple(words[1:3])], None
    assert words[-3] == "a" and words[-2] in COLOURS and words[-1] in SHAPES
    relation = " ".join(words[3:-3])
    assert relation in RELATIONS
    return [tuple(words[1:3]), tuple(words[-2:])], relation


def test_sizes_and_values(corpus):
    for split, number in zip(corpus, (1500, 60, 60), strict=True):
        assert split.images.shape == (number, SIZE, SIZE, 3) and len(split.captions) == number
        assert split.images.dtype == "float32"
        assert split.images.min() >= 0 and split.images.max() <= 1


def test_a_seed_gives_the_same_pictures():
    first, again, other = (picture_corpus(5, 5, seed) for seed in (1, 1, 2))
    assert first.train.captions == again.train.captions
    np.testing.assert_array_equal(first.test.images, again.test.images)
    assert first.train.captions != other.train.captions


def test_held_out_pairs_are_new_but_their_parts_are_not(corpus):
    pairs, relations, things = [], set(), set()
    for split in corpus:
        found = [things_of(caption) for caption in split.captions]
        pairs.append({frozenset(pair) for pair, _ in found if len(pair) == 2})
        relations.add(frozenset(relation for _, relation in found if relation))
        things.add(frozenset(thing for pair, _ in found for thing in pair))
    train, valid, test = pairs
    assert not train & valid and not train & test and not valid & test
    assert frozenset(RELATIONS) in relations and len(max(things, key=len)) == 24
    single = [caption for caption in corpus.train.captions if len(caption.split()) == 3]
    assert 0.05 < len(single) / 1500 < 0.15
    assert all(len(things_of(c)[0]) == 2 for c in corpus.valid.captions + corpus.test.captions)


def centre_and_size(image, colour):
    """The centre `(x, y)` and the number of the pixels of a colour."""
    near = np.abs(image - np.array(COLOURS[colour])).max(axis=-1) < 0.1
    rows, columns = np.nonzero(near)
    return np.array([columns.mean(), rows.mean()]), len(rows)


def test_captions_say_what_is_drawn(corpus):
    """Seen by colours: the first thing is the bigger one, and lies where the relation says."""
    number = 0
    for image, caption in zip(corpus.train.images, corpus.train.captions, strict=True):
        things, relation = things_of(caption)
        if relation is None or things[0][0] == things[1][0]:
            continue
        number += 1
        (first, size), (second, small) = (centre_and_size(image, colour) for colour, _ in things)
        if relation == "around":
            assert np.abs(second - first).max() < 5, caption
            continue
        assert size > small, caption
        offset, direction = second - first, np.array(DIRECTIONS[relation])
        assert offset @ direction > 9 and abs(offset @ direction[::-1]) < 6, caption
    assert number > 800


def test_shapes_differ():
    """By the share of the square around them that they fill: 0.79, 0.72, 0.43 and 0.51."""
    rng = np.random.default_rng(1)
    shares = {}
    for shape in SHAPES:
        image = np.zeros((SIZE, SIZE, 3), "float32")
        pictures._draw(image, ("white", shape), (16, 16), 8)
        shares[shape] = image[..., 0].sum() / 256
    assert shares["circle"] == pytest.approx(np.pi / 4, abs=0.02)
    assert shares["square"] == pytest.approx(0.85**2, abs=0.03)
    assert shares["triangle"] == pytest.approx(1.85**2 / 8, abs=0.02)
    assert shares["cross"] == pytest.approx(2 * 0.3 - 0.3**2, abs=0.02)
    image, caption = pictures._one_thing(("red", "cross"), rng)
    assert caption == "a red cross" and image[..., 0].max() > 0.85


def test_words_and_ids():
    captions = ["a red circle left of a blue square", "a white cross"]
    ids = pictures.caption_ids(captions)
    assert ids.shape == (2, 9) and ids[1, 3:].tolist() == [3, 0, 0, 0, 0, 0]
    assert [" ".join(pictures.caption_words(row)) for row in ids] == captions
    assert pictures.caption_ids(["a dog"])[0].tolist() == [4, 1, 3]
    assert len(set(pictures.WORDS[4:])) == len(pictures.WORDS) - 4 and "" not in pictures.WORDS[4:]


def test_examples_are_what_fit_takes(corpus):
    inputs, labels, weights = pictures.caption_examples(corpus.test, batch_size=20)
    np.testing.assert_array_equal(inputs["images"], corpus.test.images)
    np.testing.assert_array_equal(inputs["target_ids"][:, 0], 2)
    for row, label, weight in zip(inputs["target_ids"], labels, weights, strict=True):
        length = np.count_nonzero(label)
        np.testing.assert_array_equal(row[1:length], label[: length - 1])
        assert label[length - 1] == 3 and not row[length:].any() and not weight[length:].any()
    np.testing.assert_allclose(weights.sum(axis=1), 1 / 20, rtol=1e-6)


def test_other_ids_captions_and_batches_are_refused():
    with pytest.raises(ValueError, match="Expected ids from 0 to .* Received: ids="):
        caption_words([4, len(WORDS)])
    with pytest.raises(ValueError, match="Expected ids from 0 to .* Received: ids="):
        caption_words([4, -1])
    with pytest.raises(ValueError, match="Expected a list of captions. Received: captions='a dog'"):
        caption_ids("a dog")
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        caption_examples(picture_corpus(1, 1).train, 0)


@pytest.mark.parametrize("numbers", [(0, 5), (5, 0)])
def test_too_few_pictures_are_refused(numbers):
    with pytest.raises(ValueError, match="a whole number of at least 1.*num_train=[05]"):
        picture_corpus(*numbers)
