"""Verifies an export: a fresh process must translate with it as the translator does here."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
from itertools import chain, pairwise
from typing import NamedTuple

import keras
import numpy as np

from keras_transformer.special_ids import END_ID
from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.translator import Translator

SERVING_SESSION = pathlib.Path(__file__).with_name("serving_session.py")
PACKAGE_PARENT = pathlib.Path(__file__).parents[2]
NEAR_TIE = 1e-5
"""Translations whose scores differ by less can change places when sums are rounded differently."""
SCORE_TOLERANCE = 1e-3
"""Maximum difference in the score of one translation, for instance between GPU and CPU."""
MAX_NEAR_TIES = 0.05
"""Maximum share of texts with near-ties: rounding causes few, a wrong tokenizer only these."""

BATCH_SIZE = 64
NUM_ALONE = 8
"""Texts of a batch that are also sent alone."""
SPECIAL_TEXTS = (
    b"",
    " \t\u3000\u00a0".encode(),
    "\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f!".encode(),
    "Straße мир 世界 שלום नमस्ते e\u0301".encode(),
    b"bytes that are \xff no UTF-8 \xc3(",
    b"two\nlines\x00 and \x07 controls",
)


class ExportError(RuntimeError):
    """An export that does not answer like what was exported."""


class Verification(NamedTuple):
    num_texts: int
    """Texts, or other inputs, sent to the fresh process."""
    num_near_ties: int
    """Texts that got another translation, whose score is the same up to `NEAR_TIE`; with products
    in int8, and of other exports than a translator's SavedModel, inputs that got another answer."""


class Tolerance(NamedTuple):
    """How far the translations of another program, or of products in int8, may differ."""

    other_texts: float
    """Maximum share of texts that are translated otherwise."""
    score: float
    """Maximum difference in the score of the same translation, as a share of 1 + the score."""


INT8_TOLERANCE = Tolerance(0.25, 0.01)
"""That with products in int8. A sum that is rounded differently may move an input of the next
product by a step, 1/127 of the largest of its row. Of random texts, which translate into nearly
anything, 1 of 86 then changed with a trained `tiny`, and 12 with random weights of `base` and a
beam of 4. A wrong weight or tokenizer changes nearly all."""


def verify(saved_model, translator, split_sentences=False, products="float32"):
    """Translates with a SavedModel in a fresh process and compares with `translator`.

    The texts are: a batch of 64 random ones from the tokenizer's vocabulary; a batch of empty,
    blank, emoji, mixed-script, invalid and too long ones; and single texts of both batches, which
    the translator has seen only in their batch, since a translation must not depend on its
    neighbours. Translations must be identical except for a few near-ties. With products in int8,
    a share of them may be others (`INT8_TOLERANCE`), and as many of those of single texts; copies,
    which need no product, are the same.

    Args:
        saved_model: path of a SavedModel with the signature `serving_default`.
        translator: `Translator` that was exported.
        split_sentences: whether the export translates sentence by sentence.
        products: "int8" or "float32", see `QuantizedWeights`.
    Returns:
        `Verification`.
    Raises:
        ExportError: the process fails, an answer differs, or there are too many near-ties, or too
            many other translations with products in int8.
    """
    max_tokens = translator.decoding.max_source_length
    prompts = prompts_for_verification(translator.tokenizer, max_tokens, BATCH_SIZE).tolist()
    batches = [prompts[-BATCH_SIZE:], prompts[:-BATCH_SIZE]]
    with _exact_float32():
        answers = [_expected(translator, batch, split_sentences) for batch in batches]
    for batch, batch_answers in zip(batches[:], answers[:], strict=True):
        batches += [[text] for text in batch[:NUM_ALONE]]
        answers += [[answer] for answer in batch_answers[:NUM_ALONE]]
    received = _translate_in_fresh_process(saved_model, batches)
    columns = map(chain.from_iterable, (batches, answers, received))
    rows = list(zip(*columns, strict=True))
    if products == "float32":
        return _verification([_is_near_tie(*row) for row in rows], MAX_NEAR_TIES)
    are_others = [_is_other_in_int8(*row) for row in rows]
    num_together = len(batches[0]) + len(batches[1])
    _verification(are_others[num_together:], INT8_TOLERANCE.other_texts)
    return _verification(are_others, INT8_TOLERANCE.other_texts)


def verify_greedy(program, path, translator, tolerance, settings=None):
    """Compares greedy translations of a program in a fresh process with those of `translator`.

    The texts are those of `verify`. The beam searches of other programs end by other rules.

    Args:
        program: path of a Python file. It reads a dict with `settings`, which have the `decoding`,
            and with `batches` of texts, and prints for each batch the list of translations, each
            `[text, score, truncated]`.
        path: the directory of the export, its argument.
        translator: `Translator` that was exported.
        tolerance: `Tolerance`.
        settings: dict of further settings, or None.
    Returns:
        `Verification`, whose `num_near_ties` are the texts that are translated otherwise.
    Raises:
        ExportError: the process fails, a score differs, or too many translations do.
    """
    search = dataclasses.replace(translator.decoding, beam_size=1)
    tokenizers = translator.tokenizer, translator.target_tokenizer
    greedy = Translator(translator.model, *tokenizers, search, translator.batch_size)
    prompts = prompts_for_verification(tokenizers[0], search.max_source_length, BATCH_SIZE)
    texts = [text.decode("utf-8", "replace") for text in prompts]
    with _exact_float32():
        expected = [best for (best,) in greedy.translate(texts)]
    expected += expected[:NUM_ALONE]
    request = {
        "settings": {"decoding": dataclasses.asdict(search), **(settings or {})},
        "batches": [texts, *([text] for text in texts[:NUM_ALONE])],
    }
    received = chain.from_iterable(_answer_of_fresh_process(program, path, request))
    rows = zip(texts + texts[:NUM_ALONE], expected, received, strict=True)
    are_others = [_is_other(*row, tolerance) for row in rows]
    return _verification(are_others, tolerance.other_texts)


def verify_function(saved_model, function, rows):
    """Runs a SavedModel's `serving_default` in a fresh process and compares with `function`.

    The first rows are also sent alone: an answer must not depend on its neighbours. In a long
    text, one sum that is rounded differently can change a token and with it all that follow, so
    a few rows may differ (`MAX_NEAR_TIES`).

    Args:
        saved_model: path of a SavedModel.
        function: the function of an array that was exported; returns a dict of tensors `(B, ...)`.
        rows: NumPy array `(B, ...)`.
    Returns:
        `Verification`.
    Raises:
        ExportError: the process fails, or too many answers differ.
    """
    import tensorflow as tf

    with _exact_float32():
        outputs = {name: tensor.numpy() for name, tensor in function(tf.constant(rows)).items()}
    alone = [rows[i : i + 1] for i in range(min(NUM_ALONE, len(rows)))]
    answers = _run_in_fresh_process(saved_model, [rows, *alone])
    num_rows, is_different = len(rows) + len(alone), False
    for name, expected in outputs.items():
        expected = np.concatenate([expected, expected[: len(alone)]])
        received = np.concatenate([answer[name] for answer in answers])
        if expected.dtype == np.float32:
            differs = ~(np.abs(received - expected) < SCORE_TOLERANCE)  # also if one is NaN
        else:
            differs = received != expected
        is_different |= differs.reshape(num_rows, -1).any(axis=1)
    return _verification(is_different, MAX_NEAR_TIES)


def _verification(are_different, most):
    """Returns the `Verification` of a list of bool; raises if more than a share `most` is True."""
    number, num_different = len(are_different), int(sum(are_different))
    if num_different > most * number:
        raise ExportError(
            "The export must answer as the model does here. Expected: other answers for at most "
            f"{most:.0%} of the inputs. Received: {num_different} of {number}."
        )
    return Verification(num_texts=number, num_near_ties=num_different)


def prompts_for_verification(tokenizer, max_tokens, number=16):
    """Returns an array of texts: the special ones, one of more than `max_tokens`, random ones."""
    sentences = random_sentences(tokenizer, number)
    too_long = b" ".join(sentences * (1 + max_tokens // number))
    return np.array([*SPECIAL_TEXTS, too_long, *sentences], object)


def random_sentences(tokenizer, number):
    """Returns texts of 1 to 23 random tokens each, which suit a tokenizer of any language."""
    rng = np.random.default_rng(1)
    lengths = [1 + i % 23 for i in range(number)]
    ids = rng.integers(END_ID + 1, tokenizer.vocab_size, sum(lengths))
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    return [text.encode() for text in tokenizer.decode_on_host(rows)]


@contextlib.contextmanager
def _exact_float32():
    """Turns off TensorFloat-32, the 19-bit products of a GPU: the fresh process runs on a CPU."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _expected(translator, batch, split_sentences):
    texts = [text.decode("utf-8", "replace") for text in batch]
    if not split_sentences:
        return [best for (best,) in translator.translate(texts)]
    from keras_transformer.export import sentences  # which needs TensorFlow

    parts, joints, is_cut = sentences.split(texts, translator.decoding.max_source_length)
    found = translator.translate([part.decode() for part in parts.flat_values.numpy()])
    ends = parts.row_splits.numpy()
    rows = [[best for (best,) in found[start:end]] for start, end in pairwise(ends)]
    joined = sentences.join([best.text for (best,) in found], joints).numpy()
    return [
        Translation(
            text.decode(), sum(part.score for part in row), cut or any(p.truncated for p in row)
        )
        for text, row, cut in zip(joined, rows, is_cut.numpy().tolist(), strict=True)
    ]


def _translate_in_fresh_process(saved_model, batches):
    """Returns, for each batch of texts, the list of (translation, score, truncated)."""
    answers = []
    for found in _run_in_fresh_process(saved_model, batches):
        columns = (found[name].tolist() for name in ("translation", "score", "truncated"))
        answers.append([(text.decode(), *rest) for text, *rest in zip(*columns, strict=True)])
    return answers


def _run_in_fresh_process(saved_model, batches):
    """Returns, for each batch of rows, the outputs of `serving_default`: dict of arrays."""
    from keras_transformer.export.serving_session import packed, unpacked

    request = [packed(batch) for batch in batches]
    answers = _answer_of_fresh_process(SERVING_SESSION, saved_model, request)
    return [{key: unpacked(x) for key, x in outputs.items()} for outputs in answers]


def _answer_of_fresh_process(program, path, request):
    """Runs a program, with the path of an export and without a GPU, and returns its answer.

    Args:
        program: path of a Python file, which reads JSON and prints JSON.
        path: its argument.
        request: what it reads, for JSON.
    Raises:
        ExportError: the process fails.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_XLA_FLAGS", None)
    paths = [str(PACKAGE_PARENT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)  # where the package is not installed
    process = subprocess.run(
        [sys.executable, program, path],
        input=json.dumps(request),
        capture_output=True,
        env=environment,
        encoding="utf-8",
    )
    if process.returncode:
        errors = re.findall(r"^[\w.]*Error: .*", process.stderr, re.MULTILINE)
        reason = errors[0] if errors else f"exit code {process.returncode}"
        raise ExportError(f"The export fails in a fresh process: {reason}")
    return json.loads(process.stdout)


def _is_near_tie(text, expected, received):
    """Returns whether a translation is another one with the same score; raises if it is wrong."""
    translation, score, truncated = received
    difference = abs(score - expected.score)
    is_same = translation == expected.text and difference < SCORE_TOLERANCE
    is_near_tie = translation != expected.text and difference < NEAR_TIE
    if truncated == expected.truncated and (is_same or is_near_tie):
        return is_near_tie
    raise _wrong_answer(text, expected, received)


def _is_other(text, expected, received, tolerance):
    """Returns whether a translation is another one; raises if only its score is."""
    translation, score, truncated = received
    if (translation, truncated) != (expected.text, expected.truncated):
        return True
    most = tolerance.score * (1 + abs(expected.score))
    if abs(score - expected.score) <= most:  # not if one is NaN
        return False
    raise _wrong_answer(text, expected, received)


def _is_other_in_int8(text, expected, received):
    is_other = _is_other(text, expected, received, INT8_TOLERANCE)
    if is_other and expected.score == 0:  # a copy
        raise _wrong_answer(text, expected, received)
    return is_other


def _wrong_answer(text, expected, received):
    return ExportError(
        "The export must translate as the translator does. "
        f"Expected: {tuple(expected)}. Received: {tuple(received)}, for the text {text[:200]!r}."
    )
