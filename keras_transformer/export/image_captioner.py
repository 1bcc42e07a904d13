"""Writes an image captioner as one SavedModel: from images to captions.

Shapes: B batch (images), L maximum caption length.
"""

import pathlib

import numpy as np
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.errors import InputError
from keras_transformer.export.new_version import (
    check_can_export,
    check_decoding,
    export_search,
    in_float32,
)
from keras_transformer.models import ImageCaptioner
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.types import StrPath, Texts

BEAM_SEARCH = DecodingConfig(max_length=32)
NUM_VERIFIED = 16
"""Random images with which an export is verified."""


def export_image_captioner(
    model: ImageCaptioner,
    directory: StrPath,
    words: Texts | None = None,
    decoding: DecodingConfig = BEAM_SEARCH,
    version: int | None = None,
) -> pathlib.Path:
    """Exports an `ImageCaptioner` to `directory/<version>/`, and verifies it in a fresh process.

    The version is written whole or not at all, as by `export_saved_model`. Its signature is
    `serving_default(images) -> ids, score, truncated`, and `caption` if there are words:

    - images: `(B, height, width, num_channels)` float32.
    - ids: `(B, L)` int32: the words and the end token, padded with 0.
    - score: `(B,)`, see `SearchResult`.
    - truncated: `(B,)`, whether the limit and not the end token ended the caption.
    - caption: `(B,)` strings, the words of ids with spaces between them.

    Args:
        model: `ImageCaptioner`.
        directory: path; created if it is missing.
        words: list of str, the word of each id, with any str for the ids 0 to 3; None: the export
            has no `caption`.
        decoding: `DecodingConfig`; max_length is L, and max_source_length has no effect.
        version: int above 0; None: one more than the highest version in `directory`.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: `model` is no `ImageCaptioner`, there are fewer or more words than its
            vocabulary has, or what `export_saved_model` refuses of the others.
        ExportError: the fresh process answers differently. Nothing is left behind.

    Example:
        words = ["", "?", "", "", "red", "circle"]
        captioner = ImageCaptioner(len(words), image_size=8, d_model=24)
        export_image_captioner(captioner, "export/models/captioner", words)
    """
    check_can_export(directory, version)
    if not isinstance(model, ImageCaptioner):
        raise InputError(f"Expected an ImageCaptioner to export. Received: {model!r}.")
    check_decoding(decoding)
    if words is not None:
        _check_words(words, model.vocab_size)
    model = in_float32(model)
    shape = *model.image_size, model.num_channels

    def make_function(decoding_weights):
        @tf.function(
            input_signature=[tf.TensorSpec([None, *shape], tf.float32, "images")], autograph=False
        )
        def serving_default(images):
            images = tf.ensure_shape(images, [None, *shape])  # a server does not check it
            found = decode(model, images, decoding, weights=decoding_weights)
            ids = tf.ensure_shape(found.ids[:, 0], [None, decoding.max_length])
            answer = {"ids": ids, "score": found.scores[:, 0], "truncated": ~found.finished[:, 0]}
            if words is not None:
                answer["caption"] = _captions(ids, words)
            return answer

        return serving_default, []

    rows = np.random.default_rng(1).random((NUM_VERIFIED, *shape), "float32")
    return export_search(model, make_function, rows, directory, version, decoding)


def _check_words(words, vocab_size):
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise InputError(f"Expected a list of words, or None. Received: words={words!r:.80}.")
    if len(words) != vocab_size:
        raise InputError(
            f"Expected a word for each of the model's ids, {vocab_size}. "
            f"Received: len(words)={len(words)}. Give those with which it was trained."
        )


def _captions(ids, words):
    """Returns the words of each row of ids, without end token and padding: strings `(B,)`."""
    is_word = (ids != END_ID) & (ids != PAD_ID)
    found = tf.ragged.boolean_mask(tf.gather(tf.constant(list(words)), ids), is_word)
    return tf.strings.reduce_join(found, axis=1, separator=" ")
