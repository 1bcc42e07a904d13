"""The final weights of a training: those of one checkpoint, or the mean of several.

Validation chooses. A mean is better when the score has stopped rising, and worse while it rises.
The single checkpoint has the best of many scores, which is partly luck, so it has to be clearly
better. While all scores are 0, the loss chooses.
"""

import dataclasses
import json
import shutil

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import check_space, replacing
from keras_transformer.files.checksums import checksum
from keras_transformer.runs.model_state import ADAPTER, bytes_of, write_weights

NUM_AVERAGED = (2, 3, 5, 10)
"""Numbers of last checkpoints that are averaged: each mean is a candidate."""

CLEARLY_BETTER = 1.005
"""Times the score of the best mean that the single checkpoint must exceed: 40.2 BLEU beside 40."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Weights to choose from."""

    checkpoint: str
    """Their name on the command line: "best", "last" or "averaged"."""
    paths: list
    """The checkpoints; the weights are their mean."""

    def __str__(self):
        if self.checkpoint == "averaged":
            return f"mean of {len(self.paths)} checkpoints"
        return f"{self.checkpoint} checkpoint"


def candidates(checkpoints, keep_checkpoints, write=print):
    """Returns a list of `Candidate`: the best checkpoint, and means of the last checkpoints.

    Args:
        checkpoints: `Checkpoints`.
        keep_checkpoints: int, the largest number of checkpoints to average.
        write: called with a line for each checkpoint that is left out because it is damaged.
    Raises:
        InputError: all checkpoints are damaged.
    """
    whole, best = checkpoints.validated(write), checkpoints.best()
    if not whole:
        raise InputError(
            f"Expected an undamaged checkpoint. Received: {checkpoints.directory}, where all are "
            "damaged. Start a new training in another directory."
        )
    found = [Candidate("best", [best]) if best in whole else Candidate("last", whole[-1:])]
    largest = min(keep_checkpoints, len(whole))
    for number in sorted({*NUM_AVERAGED, keep_checkpoints} - {1}):
        if number <= largest:
            found.append(Candidate("averaged", whole[-number:]))
    return found


def choose_weights(candidates, load, validate, record, rank):
    """Returns the best `Candidate`, the best mean of several (or None), and the best one's metrics.

    Args:
        candidates: list of `Candidate`: a single checkpoint, and means.
        load: function that gives the model the mean weights of some paths.
        validate: returns the model's metrics, a dict.
        record: called with each candidate's name and metrics, a dict.
        rank: returns `(score, -loss)` of a candidate's metrics; the highest is the best.
    """

    def rank_of(scored):
        return rank(scored[1])

    metrics = []
    for candidate in candidates:
        load(candidate.paths)
        metrics.append(validate())
        record({"weights": str(candidate), **metrics[-1]})
    scored = list(zip(candidates, metrics, strict=True))
    single, *means = scored
    if not means:
        return single[0], None, single[1]
    best_mean = max(means, key=rank_of)
    score, negative_loss = rank_of(best_mean)
    clearly_better = CLEARLY_BETTER * score, negative_loss
    best = single if rank_of(single) > clearly_better else best_mean
    return best[0], best_mean[0], best[1]


def save_final_weights(run, model, saver, best, best_mean, metrics):
    """Writes the averaged weights, which the model gets too, the adapter and `finished.json`.

    Args:
        saver: the `SaveAndStop` that has ended the training.
        best, best_mean, metrics: what `choose_weights` has returned.
    """
    finished = {
        "step": saver.state.step,
        "limit": saver.limit,
        "value": getattr(saver.config, saver.limit),
        "reason": saver.reason,
        "checkpoint": best.checkpoint,
        "metrics": metrics,
    }
    if best_mean is not None:
        run.checkpoints.load_mean(model, best_mean.paths)
        with replacing(run.averaged_path) as partial:
            check_space(run.path, bytes_of(model.weights))
            write_weights(model, partial)
        finished["num_averaged"] = len(best_mean.paths)
        finished["averaged_checksum"] = checksum(run.averaged_path)
    if saver.config.lora_rank:
        with replacing(run.adapter_path) as partial:
            shutil.copyfile(best.paths[0] / ADAPTER, partial)
    with replacing(run.finished_path) as partial:
        partial.write_text(json.dumps(finished, indent=2))
