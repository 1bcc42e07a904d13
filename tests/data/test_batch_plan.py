import itertools

import numpy as np
import pytest

from keras_transformer.data.batch_plan import (
    drawn_pairs,
    plan_batches,
    plan_static_batches,
    static_shapes,
)


def lengths(num_pairs, seed=0, longest=61):
    """Lengths like those of sentences: skewed, and alike on both sides."""
    rng = np.random.default_rng(seed)
    source = np.minimum(1 + rng.gamma(4.0, 4.0, num_pairs), longest).astype(int)
    target = np.clip(source + rng.integers(-5, 8, num_pairs), 1, longest)
    return source, target


def cost(pairs, source, target):
    return len(pairs) * max(source[pairs].max(), target[pairs].max())


def assert_each_once(batches, num_pairs):
    assert sorted(np.concatenate(batches)) == list(range(num_pairs))


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("num_pairs", [1, 2, 3, 23, 1999])
@pytest.mark.parametrize("batch_tokens", [61, 67, 500, 4001])
def test_each_pair_once_and_no_batch_above_the_budget(num_pairs, batch_tokens, shuffled):
    for seed in range(7):
        source, target = lengths(num_pairs, seed)
        rng = np.random.default_rng(seed) if shuffled else None
        batches = plan_batches(source, target, batch_tokens, rng)
        assert_each_once(batches, num_pairs)
        assert max(cost(pairs, source, target) for pairs in batches) <= batch_tokens


def test_no_batch_is_small():
    for seed in range(50):
        source, target = lengths(1999, seed)
        batches = plan_batches(source, target, 2003, np.random.default_rng(seed))
        # A batch holds shorter pairs than its longest too: a tenth for that.
        assert min(cost(pairs, source, target) for pairs in batches) > 0.4 * 2003


@pytest.mark.parametrize("batch_tokens", [4096, 8192])
def test_little_is_padding(batch_tokens):
    source, target = lengths(29_000)
    batches = plan_batches(source, target, batch_tokens, np.random.default_rng(1))
    for side in source, target:
        padded = sum(len(pairs) * side[pairs].max() for pairs in batches)
        assert side.sum() / padded > 0.9


def test_batches_differ_from_draw_to_draw():
    source, target = lengths(1999)

    def batches(seed):
        plan = plan_batches(source, target, 500, np.random.default_rng(seed))
        return [frozenset(pairs.tolist()) for pairs in plan]

    assert batches(1) == batches(1)
    assert len(set(batches(1)) & set(batches(2))) < 0.2 * len(batches(1))


def test_the_cuts_move_from_draw_to_draw():
    """Also of pairs that are all as long, which would otherwise be cut alike."""
    same = np.full(95, 10)
    sizes = {
        tuple(sorted(len(pairs) for pairs in plan_batches(same, same, 100, rng)))
        for rng in map(np.random.default_rng, range(20))
    }
    assert len(sizes) > 3


def test_without_randomness_the_longest_come_first():
    source, target = lengths(1999)
    batches = plan_batches(source, target, 500)
    longest = [np.maximum(source, target)[pairs].max() for pairs in batches]
    assert longest == sorted(longest, reverse=True)


def test_batches_are_shuffled():
    source, target = lengths(1999)
    batches = plan_batches(source, target, 500, np.random.default_rng(1))
    longest = [np.maximum(source, target)[pairs].max() for pairs in batches]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5


@pytest.mark.parametrize(
    ("batch_tokens", "max_length"), [(8192, 128), (4096, 61), (50, 50), (9, 3)]
)
def test_static_shapes_are_few_and_reach_every_length(batch_tokens, max_length):
    shapes = static_shapes(batch_tokens, np.maximum(*lengths(99)), max_length)
    assert len(shapes) <= 5
    assert max(length for _, length in shapes) == max_length
    assert all(0 < rows * length <= batch_tokens for rows, length in shapes)
    assert all(length % 8 == 0 for _, length in shapes if length != max_length)


@pytest.mark.parametrize("num_shapes", [1, 2, 3, 5, 9])
def test_static_shapes_pad_least_of_all_choices(num_shapes):
    longer = np.maximum(*lengths(300))

    def positions(chosen):
        return sum(min(length for length in chosen if length >= one) for one in longer)

    others = range(8, 61, 8)
    expected = min(
        positions([*chosen, 61])
        for number in range(num_shapes)
        for chosen in itertools.combinations(others, number)
    )
    found = [length for _, length in static_shapes(997, longer, 61, num_shapes)]
    assert len(found) <= num_shapes
    assert positions(found) == expected


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("num_pairs", [1, 2, 23, 1999])
def test_static_batches_fit_their_shapes(num_pairs, shuffled):
    shapes = static_shapes(997, np.maximum(*lengths(num_pairs)), 61)
    for seed in range(11):
        source, target = lengths(num_pairs, seed)
        rng = np.random.default_rng(seed) if shuffled else None
        plan = plan_static_batches(source, target, shapes, rng)
        assert_each_once([pairs for pairs, _ in plan], num_pairs)
        for pairs, (rows, length) in plan:
            assert (rows, length) in shapes
            assert len(pairs) <= rows
            assert np.maximum(source, target)[pairs].max() <= length
        full = [len(pairs) == rows for pairs, (rows, _) in plan]
        assert full.count(False) <= 2
        if len(plan) > 2:
            assert min(len(pairs) / rows for pairs, (rows, _) in plan) > 0.4


@pytest.mark.parametrize("weights", [(1, 2.5), (0.3, 1), (7.25, 0.01)])
def test_an_epoch_has_each_pair_as_often_as_its_weight_says(weights):
    part_of = np.array([0, 1] * 20 + [1] * 60)
    counts = np.zeros(len(part_of), int)
    for epoch in range(11):
        drawn = drawn_pairs(part_of, weights, 5, epoch)
        assert (np.diff(drawn) >= 0).all()
        np.testing.assert_array_equal(drawn, drawn_pairs(part_of, weights, 5, epoch))
        counts += np.bincount(drawn, minlength=len(counts))
        for number, weight in enumerate(weights):
            of_part = counts[part_of == number]
            assert sum(of_part) == round((epoch + 1) * weight * len(of_part))
            assert max(of_part) - min(of_part) <= 1  # nothing twice before all the rest
    one, other = (drawn_pairs(part_of, (0.5, 0.5), seed, 0) for seed in (5, 6))
    assert (one != other).any()
