"""The final weights of a training: those of one checkpoint, or the mean of several, whichever
validation finds better. A mean gains where the curve has become flat, and loses where it rises."""

import dataclasses

NUM_AVERAGED = (2, 3, 5, 10)
"""How many of the last checkpoints are averaged, each number in turn."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Weights to choose from."""

    checkpoint: str
    """What the command line calls them: "best", "last" or "averaged"."""
    paths: list
    """Checkpoints whose mean they are."""

    def __str__(self):
        if self.checkpoint == "averaged":
            return f"mean of {len(self.paths)} checkpoints"
        return f"{self.checkpoint} checkpoint"


def candidates(checkpoints, keep_checkpoints, write=print):
    """Returns the best checkpoint, and the means of the last ones, as a list of `Candidate`.

    Args:
        checkpoints: `Checkpoints`.
        keep_checkpoints: int, the largest number of checkpoints to average.
        write: called with a line for each checkpoint that is damaged and therefore left out.
    Raises:
        ValueError: no whole checkpoint is left.
    """
    whole, best = checkpoints.validated(write), checkpoints.best()
    if not whole:
        raise ValueError(
            f"Expected a whole checkpoint. Received: {checkpoints.directory}, where all are "
            "damaged. Train anew, in another directory."
        )
    found = [Candidate("best", [best]) if best in whole else Candidate("last", whole[-1:])]
    largest = min(keep_checkpoints, len(whole))
    for number in sorted({*NUM_AVERAGED, keep_checkpoints} - {1}):
        if number <= largest:
            found.append(Candidate("averaged", whole[-number:]))
    return found


def choose_weights(candidates, load, validate, record):
    """Returns the best `Candidate`, the best one that is a mean (or None), and the best's metrics.

    Args:
        candidates: list of `Candidate`.
        load: called with the paths of each, gives the model these weights.
        validate: returns the model's metrics, a dict with `val_bleu`.
        record: called with each candidate's name and metrics, a dict.
    """
    metrics = []
    for candidate in candidates:
        load(candidate.paths)
        metrics.append(validate())
        record({"weights": str(candidate), **metrics[-1]})
    scored = list(zip(candidates, metrics, strict=True))
    best, best_metrics = max(scored, key=_bleu)  # the first of equals: the single checkpoint
    means = [each for each in scored if each[0].checkpoint == "averaged"]
    best_mean = max(means, key=_bleu)[0] if means else None
    return best, best_mean, best_metrics


def _bleu(scored):
    return scored[1]["val_bleu"]
