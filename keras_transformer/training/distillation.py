"""Distillation: a model learns what other models predict (Hinton et al., 2015).

Shapes: B batch, T target length, K labels of each token that are kept.
"""

import shlex

import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.data.batch_plan import plan_static_batches, static_shapes
from keras_transformer.data.soft_labels import SoftLabels
from keras_transformer.decoding.candidates import largest
from keras_transformer.errors import InputError
from keras_transformer.models.from_config import check_model_settings
from keras_transformer.runs.load import check_same_tokenizers, load_ensemble, weights_path
from keras_transformer.runs.run import Run
from keras_transformer.special_ids import PAD_ID, START_ID, shift_right

NUM_LABELS = 8  # of each token; a label of less probability is hardly ever drawn
BATCH_TOKENS = 4096  # at most, with a small vocabulary
BATCH_PROBABILITIES = 2**25  # of all tokens of a batch: 128 MiB


def teachers_of(training):
    """Returns the paths of the runs that `training.distill_from` names: list of str."""
    try:
        return shlex.split(training.distill_from or "")
    except ValueError as error:
        raise InputError(
            "Expected the paths of runs, separated by spaces, and a path with a space in quotes. "
            f"Received: training.distill_from={training.distill_from} ({error})."
        ) from None


def check_teachers(paths, init_from, max_length):
    """Checks that runs can teach, and that all runs have one tokenizer.

    Args:
        paths: the runs that teach.
        init_from: the run from whose weights the training begins, or None.
        max_length: maximum tokens per sentence of the training text.
    Raises:
        InputError: one cannot teach, or the tokenizers differ.
    """
    for run in map(Run, paths):
        weights_path(run)
        config = run.load_config()
        try:  # its learned positions may be too few for the text
            check_model_settings(config.merged({"data": {"max_length": max_length}}))
        except ValueError as error:
            raise InputError(f"{error} (the run {run.path}, in distill_from)") from None
    check_same_tokenizers([*paths, *filter(None, [init_from])])


def predicted_labels(paths, share, batches, write):
    """Returns the `SoftLabels` of the mean prediction of runs for the text of some batches.

    Args:
        paths: the runs.
        share: see `SoftLabels`.
        batches: `TranslationBatches`; its tokenizers are those of the runs.
        write: called with each line of the report.
    """
    write(f"teachers    {len(paths)} predict the labels of the training text")
    model = load_ensemble(paths)[0]
    vocab_size = model.output_vocab_size
    num_labels = min(NUM_LABELS, vocab_size - 2)
    predict = backend.compile_function(lambda *ids: _best(model, num_labels, *ids), model.variables)
    source, target = batches.rows
    ids = np.zeros((len(target.ids), num_labels), "int32")
    probabilities = np.zeros(ids.shape, "float32")
    batch_tokens = min(BATCH_PROBABILITIES // vocab_size, BATCH_TOKENS)
    batch_tokens = max(batch_tokens, batches.max_length)
    longer = np.maximum(source.lengths, target.lengths)
    shapes = static_shapes(batch_tokens, longer, int(longer.max()))
    plan = plan_static_batches(source.lengths, target.lengths, shapes)
    for pairs, (num_rows, length) in plan:
        rows = [side.padded(pairs, num_rows, length) for side in (source, target)]
        is_real = rows[1] != PAD_ID
        found = predict(*map(ops.convert_to_tensor, rows))
        places = target.places(pairs)
        ids[places], probabilities[places] = (ops.convert_to_numpy(x)[is_real] for x in found)
    agree = np.mean(ids[:, 0] == target.ids)
    write(f"            they prefer the label of the text for {agree:.1%} of the tokens")
    return SoftLabels.of(ids, probabilities, share)


def _best(model, num_labels, source_ids, labels):
    """Returns the best labels and their probabilities, `(B, T, K)`."""
    inputs = {"source_ids": source_ids, "target_ids": shift_right(labels, ops)}
    probabilities = ops.softmax(model(inputs, training=False))
    flat = ops.reshape(probabilities, (-1, probabilities.shape[-1]))
    is_label = np.isin(np.arange(flat.shape[-1]), (PAD_ID, START_ID), invert=True)
    best, ids = largest(flat * ops.convert_to_tensor(is_label.astype("float32")), num_labels)
    return tuple(ops.reshape(x, (*ops.shape(labels), -1)) for x in (ids, best))
