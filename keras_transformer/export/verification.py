"""Proves an export: a fresh process must translate with it as the translator does in this one."""

import base64
import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.export import sentences
from keras_transformer.special_ids import END_ID
from keras_transformer.translator import Translation

FRESH_PROCESS = pathlib.Path(__file__).with_name("fresh_process.py")
NEAR_TIE = 1e-5
"""Two translations whose scores differ by less may change places with the order of a sum."""
SCORE_TOLERANCE = 1e-3
"""How far the score of the same translation may move, for instance between GPU and CPU."""
MOST_NEAR_TIES = 0.05
"""Share of the texts that may have near-ties: rounding makes few, a wrong tokenizer makes all."""

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
    """An export that does not translate as its translator does."""


class Verification(NamedTuple):
    num_texts: int
    """Texts sent to the fresh process."""
    num_near_ties: int
    """Of them, those with another translation whose score is the same up to `NEAR_TIE`."""


def verify(saved_model, translator, split_sentences=False):
    """Translates with a SavedModel in a fresh process and compares with `translator`.

    The texts: 64 made of the tokenizer's own pieces, in one batch; empty, blank, emoji, of mixed
    scripts, not UTF-8, longer than the limit, in one batch; and single texts out of both, which
    the translator has seen in their batch only: an answer may not depend on its neighbours.
    Translations must be identical, but for near-ties, which are counted and must be few.

    Args:
        saved_model: path of a SavedModel with the signature `serving_default`.
        translator: `Translator` that it was made from.
        split_sentences: whether the export translates sentence by sentence.
    Returns:
        `Verification`.
    Raises:
        ExportError: the process fails, a translation, score or flag differs, or there are too many
            near-ties.
    """
    batches = [random_sentences(translator.tokenizer, BATCH_SIZE)]
    batches.append([*SPECIAL_TEXTS, _too_long(batches[0], translator.decoding)])
    with _exact_float32():
        answers = [_expected(translator, batch, split_sentences) for batch in batches]
    for batch, batch_answers in zip(batches[:], answers[:], strict=True):
        batches += [[text] for text in batch[:NUM_ALONE]]
        answers += [[answer] for answer in batch_answers[:NUM_ALONE]]
    received = _translate_in_fresh_process(saved_model, batches)
    rows = zip(_flat(batches), _flat(answers), _flat(received), strict=True)
    num_texts = len(_flat(batches))
    num_near_ties = sum(_is_near_tie(*row) for row in rows)
    if num_near_ties > MOST_NEAR_TIES * num_texts:
        raise ExportError(
            "The export must translate as the translator does. Expected: other translations of the "
            f"same score for at most {MOST_NEAR_TIES:.0%} of the texts. "
            f"Received: {num_near_ties} of {num_texts}."
        )
    return Verification(num_texts=num_texts, num_near_ties=num_near_ties)


def random_sentences(tokenizer, number):
    """Returns texts of random pieces, 1 to 23 each: any tokenizer's own language, or nearly."""
    rng = np.random.default_rng(1)
    lengths = [1 + i % 23 for i in range(number)]
    ids = rng.integers(END_ID + 1, tokenizer.vocab_size, sum(lengths))
    return tokenizer.decode(tf.RaggedTensor.from_row_lengths(ids, lengths)).numpy().tolist()


def _too_long(sentences, decoding):
    """Returns a text of more pieces than the encoder reads."""
    copies = 1 + decoding.max_source_length // len(sentences)
    return b" ".join(sentences * copies)


@contextlib.contextmanager
def _exact_float32():
    """Turns off the 19-bit products that a GPU takes for float32's: the process runs on a CPU."""
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
    parts, joints, is_cut = sentences.split(texts, translator.decoding.max_source_length)
    found = translator.translate([part.decode() for part in parts.flat_values.numpy()])
    ends = parts.row_splits.numpy()
    rows = [[best for (best,) in found[start:end]] for start, end in itertools.pairwise(ends)]
    joined = sentences.join([best.text for (best,) in found], joints).numpy()
    return [
        Translation(
            text.decode(), sum(part.score for part in row), cut or any(p.truncated for p in row)
        )
        for text, row, cut in zip(joined, rows, is_cut.numpy().tolist(), strict=True)
    ]


def _translate_in_fresh_process(saved_model, batches):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_XLA_FLAGS", None)
    process = subprocess.run(
        [sys.executable, FRESH_PROCESS, saved_model],
        input=json.dumps([[base64.b64encode(text).decode() for text in b] for b in batches]),
        capture_output=True,
        env=environment,
        encoding="utf-8",
    )
    if process.returncode:
        errors = re.findall(r"^[\w.]*Error: .*", process.stderr, re.MULTILINE)
        reason = errors[0] if errors else f"exit code {process.returncode}"
        raise ExportError(f"The export fails in a fresh process: {reason}")
    return json.loads(process.stdout)


def _flat(batches):
    return [row for batch in batches for row in batch]


def _is_near_tie(text, expected, received):
    """Returns whether a translation is another one of the same score; raises if it is wrong."""
    translation, score, truncated = received
    difference = abs(score - expected.score)
    is_same = translation == expected.text and difference < SCORE_TOLERANCE
    is_near_tie = translation != expected.text and difference < NEAR_TIE
    if truncated == expected.truncated and (is_same or is_near_tie):
        return is_near_tie
    raise ExportError(
        "The export must translate as the translator does. "
        f"Expected: {tuple(expected)}. Received: {tuple(received)}, for the text {text[:200]!r}."
    )
