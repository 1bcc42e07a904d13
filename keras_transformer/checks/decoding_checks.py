"""What a search with a model does, step by step."""

import numpy as np
from keras import ops

from keras_transformer.checks.model_checks import difference
from keras_transformer.checks.subject import as_array
from keras_transformer.checks.verdicts import check, failed, held, not_applicable
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.search import search_arguments


@check("steps")
def steps(subject):
    """Step by step, with what is kept between steps, a model has the logits of the whole pass."""
    ids = subject.random_ids()
    if hasattr(subject.model, "start_decoding"):
        logits = _logits_of_steps(subject, ids)
    elif hasattr(subject.model, "generate_step"):
        try:
            logits = _logits_of_keras_hub(subject, ids)
        except _NoSuchInput as error:
            return not_applicable(f"generate_step asks for {error}, which the model does not")
    else:
        return not_applicable("the model has neither start_decoding nor KerasHub's generate_step")
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


def _logits_of_steps(subject, ids):
    """Returns the logits `(B, V)` of each step; sets the first tokens to those of the model."""
    target = ids["target"]
    start = _start(subject, ids, target.shape[1])
    target[:, 0] = ops.convert_to_numpy(start.prompts)[:, 0]
    logits, state = [], start.state
    for t in range(target.shape[1]):
        column = ops.convert_to_tensor(target[:, t : t + 1])
        found, state = start.step_fn(column, ops.convert_to_tensor(t, "int32"), state)
        logits.append(as_array(found)[:, 0])
    return logits


def _logits_of_keras_hub(subject, ids):
    """Returns the same of a task of KerasHub: its sampler chooses the tokens, so one of ours does.

    The prompt has the first tokens alone, so that each step has to write into the cache.
    """
    target, logits = ids["target"], []

    def sampler(next, prompt, cache, **_):
        for t in range(target.shape[1]):
            index = ops.convert_to_tensor(t + 1, "int32")  # of the token that is predicted
            found, _, cache = next(ops.convert_to_tensor(target), cache, index)
            logits.append(as_array(found))
        return prompt

    first = np.where(np.arange(target.shape[1]) == 0, target, subject.pad_id).astype("int32")
    inputs = subject.inputs(**{**ids, "target": first})
    theirs, subject.model.sampler = getattr(subject.model, "sampler", None), sampler
    try:
        subject.model.generate_step(_Inputs(inputs) if isinstance(inputs, dict) else inputs)
    finally:
        subject.model.sampler = theirs
    return logits


class _NoSuchInput(KeyError):
    """`generate_step` asks for an input, such as an image, that the subject does not fill."""


class _Inputs(dict):
    def __missing__(self, key):
        raise _NoSuchInput(key)


@check("beam of one")
def beam_of_one(subject):
    """A beam search with one hypothesis is greedy search."""
    if not hasattr(subject.model, "start_decoding"):
        return not_applicable("the model has no start_decoding")
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
