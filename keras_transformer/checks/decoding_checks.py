"""What a search with a model does, step by step."""

import numpy as np
from keras import ops

from keras_transformer.checks.model_checks import difference
from keras_transformer.checks.verdicts import check, failed, held, not_applicable
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.search import search_arguments

NO_STEPS = "the model has no start_decoding"


@check("steps")
def steps(subject):
    """Step by step, with what is kept between steps, a model has the logits of the whole pass."""
    if not hasattr(subject.model, "start_decoding"):
        return not_applicable(NO_STEPS)
    ids = subject.random_ids()
    target = ids["target"]
    start = _start(subject, ids, target.shape[1])
    target[:, 0] = ops.convert_to_numpy(start.prompts)[:, 0]
    logits, state = [], start.state
    for t in range(target.shape[1]):
        column = ops.convert_to_tensor(target[:, t : t + 1])
        found, state = start.step_fn(column, ops.convert_to_tensor(t, "int32"), state)
        logits.append(ops.convert_to_numpy(found)[:, 0])
    each = [
        difference(a, b) for a, b in zip(logits, subject.logits(**ids).swapaxes(0, 1), strict=True)
    ]
    worst = int(np.argmax(each))
    if each[worst] > subject.tolerance:
        return failed(
            f"step {worst} has logits that differ by {each[worst]:.1e} from the whole pass",
            "Look at the positions of a step, at what the cache keeps, and at masks.",
        )
    return held(f"largest difference {each[worst]:.1e} in {len(each)} steps")


@check("beam of one")
def beam_of_one(subject):
    """A beam search with one hypothesis is greedy search."""
    if not hasattr(subject.model, "start_decoding"):
        return not_applicable(NO_STEPS)
    ids = subject.random_ids()
    start = _start(subject, ids, 2 * ids["target"].shape[1])
    options = search_arguments(subject.model, DecodingConfig(), ())
    found = [
        ops.convert_to_numpy(each.ids)
        for each in (greedy_search(*start, **options), beam_search(*start, 1, n_best=1, **options))
    ]
    equal = float(np.mean(np.all(found[0] == found[1], axis=-1)))
    if equal < 1:
        return failed(
            f"{1 - equal:.0%} of the outputs differ",
            "The step function depends on what other hypotheses do, or keeps a state of its own.",
        )
    return held(f"{len(found[0])} outputs")


def _start(subject, ids, max_length):
    """Returns the `DecodingStart` of random sources, or of prompts of one token."""
    inputs = ids["source"] if subject.has_source else ids["target"][:, :1]
    return subject.model.start_decoding(ops.convert_to_tensor(inputs), max_length)
