"""Generated pictures of coloured shapes, with captions: "a red circle above a blue square".

A picture shows one thing, or a big one and a small one. A caption with two things begins with the
big one, so each picture has exactly one right caption.
"""

import itertools
from typing import NamedTuple

import numpy as np

from keras_transformer.errors import InputError, check_positive_integers
from keras_transformer.special_ids import END_ID, PAD_ID, UNKNOWN_ID, shift_right

COLOURS = {
    "red": (0.9, 0.1, 0.1),
    "green": (0.1, 0.7, 0.1),
    "blue": (0.15, 0.25, 0.95),
    "yellow": (0.95, 0.9, 0.1),
    "purple": (0.6, 0.1, 0.75),
    "white": (1.0, 1.0, 1.0),
}
SHAPES = ("circle", "square", "triangle", "cross")
RELATIONS = {
    "above": (0, 1),
    "below": (0, -1),
    "left of": (1, 0),
    "right of": (-1, 0),
    "around": (0, 0),
}
"""From a relation to the direction from the big thing to the small one, to the right and down."""

SIZE = 32
"""Height and width of a picture in pixels."""

SPECIAL = ("", "?", "", "")  # padding, unknown, start and end, as in `special_ids`
WORDS = (*SPECIAL, "a", *COLOURS, *SHAPES, "above", "below", "left", "right", "of", "around")
"""The vocabulary: the id of a word is its place here."""

_BIG, _SMALL = (7.0, 8.0), (3.5, 4.2)  # from the least to the most pixels of a radius
_MARGIN = 2  # pixels between the things of a picture
_SAMPLES = 3  # samples a pixel in each direction, for smooth edges


class Pictures(NamedTuple):
    """Pictures with their captions."""

    images: np.ndarray
    """`(N, SIZE, SIZE, 3)` float32, from 0 to 1."""
    captions: list[str]


class PictureSplits(NamedTuple):
    """Three sets of pictures. Two things that a held-out picture shows are together in no other."""

    train: Pictures
    valid: Pictures
    test: Pictures


def picture_corpus(num_train=8000, num_held_out=500, seed=1):
    """Returns pictures with captions; a seed gives the same ones on every machine.

    A fifth of all pairs of things, such as a red circle and a blue square, is held out: half of it
    for validation, half for the test. No training picture shows such a pair, in any relation. With
    hundreds of training pictures or more, each thing and each relation is among them, so held-out
    captions test what a model composes.

    Args:
        num_train: number of training pictures; one in ten shows one thing alone.
        num_held_out: number of validation pictures and of test pictures; all show two things.
        seed: int.
    Returns:
        `PictureSplits`.
    Raises:
        ValueError: a number below 1.
    """
    check_positive_integers(num_train=num_train, num_held_out=num_held_out)
    rng = np.random.default_rng(seed)
    things = list(itertools.product(COLOURS, SHAPES))
    pairs = list(itertools.combinations(things, 2))
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    tenth = len(pairs) // 10
    valid, test, train = pairs[:tenth], pairs[tenth : 2 * tenth], pairs[2 * tenth :]

    def with_two(pairs):
        pair = pairs[rng.integers(len(pairs))]
        big, small = pair if rng.random() < 0.5 else pair[::-1]
        relations = list(RELATIONS)
        if big[0] == small[0]:
            relations.remove("around")  # the small one could not be seen
        return _two_things(big, relations[rng.integers(len(relations))], small, rng)

    def with_one_or_two():
        if rng.random() < 0.1:
            return _one_thing(things[rng.integers(len(things))], rng)
        return with_two(train)

    return PictureSplits(
        _pictures([with_one_or_two() for _ in range(num_train)]),
        _pictures([with_two(valid) for _ in range(num_held_out)]),
        _pictures([with_two(test) for _ in range(num_held_out)]),
    )


def caption_ids(captions):
    """Returns `(N, T)` int32: the ids of the words, the end token, padding. See `WORDS`."""
    if isinstance(captions, str):
        raise InputError(f"Expected a list of captions. Received: {captions=}, a single one.")
    id_of = {word: i for i, word in enumerate(WORDS) if i >= len(SPECIAL)}
    rows = [[id_of.get(word, UNKNOWN_ID) for word in caption.split()] for caption in captions]
    ids = np.full((len(rows), 1 + max(map(len, rows), default=0)), PAD_ID, "int32")
    for row, row_ids in zip(ids, rows, strict=True):
        row[: len(row_ids) + 1] = [*row_ids, END_ID]
    return ids


def caption_words(ids):
    """Returns the words of a row of ids, up to the end token."""
    ids = [int(i) for i in ids]
    if ids and not 0 <= min(ids) <= max(ids) < len(WORDS):
        raise InputError(f"Expected ids from 0 to {len(WORDS) - 1}. Received: {ids=}.")
    end = ids.index(END_ID) if END_ID in ids else len(ids)
    return [WORDS[i] for i in ids[:end] if i != PAD_ID]


def caption_examples(pictures, batch_size):
    """Returns `(inputs, labels, weights)`, which `model.fit` takes, of `Pictures`.

    Args:
        pictures: `Pictures`.
        batch_size: B of `fit`; give `fit` the same one, whose default is 32.
    Returns:
        The inputs of `ImageCaptioner`; the labels `(N, T)`; and their weights `(N, T)` float32:
        1 / (T' batch_size) for each of the T' tokens of a caption, and 0 for padding. The sum that
        is `training.TokenCrossEntropy` is then the mean loss of a batch.
    Raises:
        ValueError: batch_size below 1.
    """
    check_positive_integers(batch_size=batch_size)
    labels = caption_ids(pictures.captions)
    is_real = (labels != PAD_ID).astype("float32")
    inputs = {"images": pictures.images, "target_ids": shift_right(labels, np)}
    return inputs, labels, is_real / is_real.sum(axis=1, keepdims=True) / batch_size


def _pictures(examples):
    images, captions = zip(*examples, strict=True)
    return Pictures(np.stack(images), list(captions))


def _one_thing(thing, rng):
    radius = rng.uniform(*(_BIG if rng.random() < 0.5 else _SMALL))
    image = _background(rng)
    _draw(image, thing, rng.uniform(radius, SIZE - radius, size=2), radius)
    return image, f"a {' '.join(thing)}"


def _two_things(big, relation, small, rng):
    """Draws two things, the second in the relation's direction of the first, a little aslant."""
    radii = np.array([rng.uniform(*_BIG), rng.uniform(*_SMALL)])
    direction = np.array(RELATIONS[relation])
    if direction.any():
        distance = radii.sum() + _MARGIN + rng.uniform(0, 2)
        offset = direction * distance + direction[::-1] * rng.uniform(-3, 3)
    else:
        offset = np.zeros(2)
    # the first centre is drawn so that both things lie within the picture
    lowest = np.maximum(radii[0], radii[1] - offset)
    highest = np.minimum(SIZE - radii[0], SIZE - radii[1] - offset)
    centre = rng.uniform(lowest, highest)
    image = _background(rng)
    _draw(image, big, centre, radii[0])
    _draw(image, small, centre + offset, radii[1])
    return image, f"a {' '.join(big)} {relation} a {' '.join(small)}"


def _background(rng):
    noise = rng.normal(scale=0.02, size=(SIZE, SIZE, 3))
    return np.clip(rng.uniform(0.0, 0.3) + noise, 0.0, 1.0).astype("float32")


def _draw(image, thing, centre, radius):
    """Draws a thing into an image, with the centre `(x, y)` and a radius in pixels."""
    colour, shape = thing
    points = (np.arange(SIZE * _SAMPLES) + 0.5) / _SAMPLES
    x, y = (points[None] - centre[0]) / radius, (points[:, None] - centre[1]) / radius
    inside = _inside(shape, x, y).reshape(SIZE, _SAMPLES, SIZE, _SAMPLES)
    share = inside.mean(axis=(1, 3), dtype="float32")[..., None]  # of each pixel
    image[:] = image * (1 - share) + np.array(COLOURS[colour], "float32") * share


def _inside(shape, x, y):
    """Whether points are in a shape around the origin, of radius 1; y points down."""
    if shape == "circle":
        return x * x + y * y <= 1
    if shape == "square":
        return np.maximum(abs(x), abs(y)) <= 0.85
    if shape == "triangle":
        return (y <= 0.85) & (2 * abs(x) <= y + 1)
    return (np.minimum(abs(x), abs(y)) <= 0.3) & (np.maximum(abs(x), abs(y)) <= 1)  # a cross
