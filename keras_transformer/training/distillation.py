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
from keras_transformer.runs.run import Run, checksum_of_tokenizers, load_run
from keras_transformer.special_ids import PAD_ID
from keras_transformer.teacher_forcing import shift_right

NUM_LABELS = 8  # of each token; together they have nearly all of the probability
BATCH_TOKENS = 4096


def teachers_of(training):
    """Returns the paths of the runs that `training.distill_from` names: list of str."""
    try:
        return shlex.split(training.distill_from or "")
    except ValueError as error:
        raise InputError(
            "Expected the paths of runs, separated by spaces, and a path with a space in quotes. "
            f"Received: training.distill_from={training.distill_from} ({error})."
        ) from None


def check_teachers(paths, students):
    """Checks that runs can teach, and that they and the students have one tokenizer.

    Args:
        paths: the runs that teach.
        students: paths of runs that learn, or from whose weights a run that learns begins.
    Raises:
        InputError: one cannot teach, or the tokenizers differ.
    """
    for path in paths:
        Run(path).weights_path()
    runs = [Run(path) for path in (*paths, *students)]
    checksums = {checksum_of_tokenizers(run.load_tokenizers(run.load_config())) for run in runs}
    if len(checksums) > 1:
        raise InputError(
            "Expected runs with the same tokenizer, so that they predict the same tokens. "
            f"Received: {', '.join(str(run.path) for run in runs)}, whose tokenizers differ. Train "
            "them with one tokenizer: --set tokenizer.model=FILE."
        )


def distill(batches, paths, share, write):
    """Lets `TranslationBatches` draw labels from the mean prediction of other runs.

    Args:
        batches: `TranslationBatches`; its tokenizers are those of the runs.
        paths: the runs.
        share: probability with which a label is drawn.
        write: called with a line of the report.
    """
    models = [load_run(path)[0] for path in paths]
    variables = [variable for model in models for variable in model.variables]
    num_labels = min(NUM_LABELS, models[0].output_vocab_size)
    predict = backend.compile_function(
        lambda *ids: _most_probable(models, num_labels, *ids), variables
    )
    source, target = batches.rows
    labels = np.zeros((len(target.ids), num_labels), "int32")
    probabilities = np.zeros(labels.shape, "float32")
    shapes = static_shapes(max(BATCH_TOKENS, batches.max_length), batches.max_length)
    for pairs, (num_rows, length) in plan_static_batches(source.lengths, target.lengths, shapes):
        rows = [side.padded(pairs, num_rows, length) for side in (source, target)]
        is_real = rows[1] != PAD_ID
        found = predict(*map(ops.convert_to_tensor, rows))
        places = target.places(pairs)
        labels[places], probabilities[places] = (ops.convert_to_numpy(x)[is_real] for x in found)
    batches.soft_labels = SoftLabels(labels, probabilities, share)
    agree = np.mean(labels[:, 0] == target.ids)
    write(f"teachers    {len(models)}; the label they prefer is the text's in {agree:.1%} of cases")


def _most_probable(models, num_labels, source_ids, labels):
    """Returns the best labels and their probabilities, `(B, T, K)`, by the mean of the models."""
    inputs = {"source_ids": source_ids, "target_ids": shift_right(labels, ops)}
    predictions = [ops.softmax(model(inputs, training=False)) for model in models]
    probabilities = sum(predictions) / len(models)
    flat = ops.reshape(probabilities, (-1, probabilities.shape[-1]))
    best, ids = largest(flat, num_labels)
    return tuple(ops.reshape(x, (*ops.shape(labels), -1)) for x in (ids, best))
