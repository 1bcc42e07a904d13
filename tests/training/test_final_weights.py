"""Which weights a training ends with."""

import pathlib

import pytest

from keras_transformer.training.final_weights import Candidate, candidates, choose_weights
from keras_transformer.training.translation_task import TranslationTask


class FakeCheckpoints:
    """Checkpoints of the steps 1 to `last`; `damaged` ones are not whole."""

    directory = pathlib.Path("run/checkpoints")

    def __init__(self, last, best, damaged=()):
        self.last, self._best, self.damaged = last, best, damaged

    def validated(self, write):
        return [step for step in range(1, self.last + 1) if step not in self.damaged]

    def best(self):
        return self._best


def sizes(found):
    return [(candidate.checkpoint, candidate.paths) for candidate in found]


def test_the_best_checkpoint_and_the_means_of_the_last_2_3_5_and_10_are_compared():
    found = candidates(FakeCheckpoints(last=12, best=4), keep_checkpoints=10)
    assert sizes(found) == [
        ("best", [4]),
        ("averaged", [11, 12]),
        ("averaged", [10, 11, 12]),
        ("averaged", [8, 9, 10, 11, 12]),
        ("averaged", list(range(3, 13))),
    ]
    assert [str(candidate) for candidate in found[:2]] == [
        "best checkpoint",
        "mean of 2 checkpoints",
    ]


@pytest.mark.parametrize(
    "last, keep, expected",
    [(12, 4, [2, 3, 4]), (12, 1, []), (12, 12, [2, 3, 5, 10, 12]), (3, 10, [2, 3]), (1, 10, [])],
)
def test_no_more_checkpoints_are_averaged_than_are_kept_and_there(last, keep, expected):
    means = candidates(FakeCheckpoints(last, best=1), keep)[1:]
    assert [len(mean.paths) for mean in means] == expected


def test_a_damaged_best_checkpoint_is_replaced_by_the_last():
    found = candidates(FakeCheckpoints(last=3, best=2, damaged=[2]), keep_checkpoints=2)
    assert sizes(found) == [("last", [3]), ("averaged", [1, 3])]
    with pytest.raises(ValueError, match="all are damaged"):
        candidates(FakeCheckpoints(last=1, best=1, damaged=[1]), keep_checkpoints=2)


@pytest.mark.parametrize(
    "bleus, expected, expected_mean",
    [
        ([30.0, 29.0, 31.0], 2, 2),
        ([30.0, 29.0, 28.0], 0, 1),
        ([30.0, 29.0, 29.9], 2, 2),  # the best of many single ones is partly luck
        ([30.0, 29.0, 29.8], 0, 2),
        ([0.0, 0.04, 0.9], 0, 1),  # only smoothing: the lowest loss is the best
        ([30.0, 30.02, 30.04], 1, 1),
        ([5.0], 0, None),
    ],
)
def test_validation_chooses(bleus, expected, expected_mean):
    names = ["best", "averaged", "averaged"]
    found = [Candidate(name, [i]) for i, name in enumerate(names[: len(bleus)])]
    loaded, records = [], []

    def validate():
        (number,) = loaded[-1]
        return {"val_bleu": bleus[number], "val_loss": float(number)}

    rank = TranslationTask().rank
    best, mean, metrics = choose_weights(found, loaded.append, validate, records.append, rank)
    assert best is found[expected]
    assert mean is (None if expected_mean is None else found[expected_mean])
    assert metrics == {"val_bleu": bleus[expected], "val_loss": float(expected)}
    assert [record["val_bleu"] for record in records] == bleus
    assert records[0]["weights"] == "best checkpoint"
