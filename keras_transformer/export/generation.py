"""Writes a GPT or an image captioner as one SavedModel with one signature, its search.

Shapes: B batch (prompts or images), P prompt length, L maximum output length.
"""

import pathlib

import numpy as np
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.errors import InputError
from keras_transformer.export.exportable import in_float32
from keras_transformer.export.saved_model import tracked_weights, write_warmup_requests
from keras_transformer.export.signatures import TEXT
from keras_transformer.export.verification import prompts_for_verification, verify_function
from keras_transformer.export.versions import check_backend, check_can_export, write_version
from keras_transformer.models import Gpt, ImageCaptioner
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import StrPath, Texts

GREEDY_SEARCH = DecodingConfig(beam_size=1)
BEAM_SEARCH = DecodingConfig(max_length=32)
NUM_VERIFIED = 16
"""Random images with which an export is verified."""


def export_text_generator(
    model: Gpt,
    tokenizer: Tokenizer,
    directory: StrPath,
    decoding: DecodingConfig = GREEDY_SEARCH,
    version: int | None = None,
) -> pathlib.Path:
    """Exports a `Gpt` to `directory/<version>/`, and verifies it in a fresh process.

    The version is written whole or not at all, as by `export_saved_model`. Its signature is
    `serving_default(text) -> text, score, truncated`, each `(B,)`:

    - text: the prompt and its continuation, as the tokenizer decodes them. An empty or blank
      prompt gives "", with score 0.
    - score: of the continuation, see `SearchResult`.
    - truncated: whether the prompt was cut, or a limit and not the end token ended the text.

    An answer does not depend on the other prompts of its batch.

    Args:
        model: `Gpt`.
        tokenizer: the tokenizer of its text, of this package.
        decoding: `DecodingConfig`, by default greedy search. Of a longer prompt, its first
            max_source_length tokens are continued, and with learned positions no more than the
            context. max_length counts the tokens that are added.
        directory, version, Returns: see `export_saved_model`.
    Raises:
        ValueError: `model` is no `Gpt`, `tokenizer` is none of this package or has more tokens than
            the model or other special ids, or what `export_saved_model` refuses of the others.
        ExportError: the fresh process answers differently. Nothing is left behind.

    Example:
        gpt = keras_transformer.models.Gpt(tokenizer.vocab_size, num_layers=1, d_model=24)
        decoding = DecodingConfig(beam_size=1, max_length=4)
        export_text_generator(gpt, tokenizer, "export/models/gpt", decoding)
    """
    check_backend()
    check_can_export(directory, version)
    _check_decoding(decoding)
    if not isinstance(model, Gpt) or not isinstance(tokenizer, Tokenizer):
        raise InputError(
            "Expected a Gpt and a tokenizer of this package. "
            f"Received: model={model!r}, tokenizer={tokenizer!r}. Other tokenizers do not work "
            "in a graph."
        )
    if (
        model.pad_id != PAD_ID
        or model.end_id not in (END_ID, None)
        or tokenizer.vocab_size > model.vocab_size
    ):
        raise InputError(
            f"Expected a model with the tokenizer's ids: pad_id={PAD_ID}, end_id={END_ID} or None, "
            f"and vocab_size from {tokenizer.vocab_size}. Received: pad_id={model.pad_id}, "
            f"end_id={model.end_id}, vocab_size={model.vocab_size}. "
            "Export it with the tokenizer with which it was trained."
        )
    longest = decoding.max_source_length
    if model.positions == "learned":
        longest = min(longest, model.max_length)

    def generate(text, search):
        ids, is_cut = tokenizer.encode_padded(text, longest)
        prompts = tf.where(ids == END_ID, PAD_ID, ids)  # (B, P): a prompt goes on
        is_empty = tf.reduce_all(prompts == PAD_ID, axis=1)
        found = search(prompts)
        # `decode` of a tokenizer leaves out padding, also between the two
        texts = tokenizer.decode(tf.concat([prompts, found.ids[:, 0]], axis=1))
        return {
            "text": texts,
            "score": tf.where(is_empty, 0.0, found.scores[:, 0]),
            "truncated": (is_cut | ~found.finished[:, 0]) & ~is_empty,
        }

    rows = prompts_for_verification(tokenizer, longest)
    return _export(model, generate, TEXT, rows, directory, version, decoding, tokenizer)


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
        words: list of str, the word of each id, with any str for the ids 0 to 3; None: the export
            has no `caption`.
        decoding: `DecodingConfig`; max_length is L, and max_source_length has no effect.
        directory, version, Returns: see `export_saved_model`.
    Raises:
        ValueError: `model` is no `ImageCaptioner`, there are fewer or more words than its
            vocabulary has, or what `export_saved_model` refuses of the others.
        ExportError: the fresh process answers differently. Nothing is left behind.

    Example:
        words = ["", "?", "", "", "red", "circle"]
        captioner = ImageCaptioner(len(words), image_size=8, d_model=24)
        export_image_captioner(captioner, "export/models/captioner", words)
    """
    check_backend()
    check_can_export(directory, version)
    if not isinstance(model, ImageCaptioner):
        raise InputError(f"Expected an ImageCaptioner to export. Received: {model!r}.")
    _check_decoding(decoding)
    if words is not None:
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise InputError(f"Expected a list of words, or None. Received: words={words!r:.80}.")
        if len(words) != model.vocab_size:
            raise InputError(
                f"Expected a word for each of the model's ids, {model.vocab_size}. "
                f"Received: len(words)={len(words)}. Give those with which it was trained."
            )
    shape = *model.image_size, model.num_channels

    def caption(images, search):
        images = tf.ensure_shape(images, [None, *shape])  # a server does not check it
        found = search(images)
        ids = tf.ensure_shape(found.ids[:, 0], [None, decoding.max_length])
        answer = {"ids": ids, "score": found.scores[:, 0], "truncated": ~found.finished[:, 0]}
        if words is not None:
            answer["caption"] = _captions(ids, words)
        return answer

    spec = tf.TensorSpec([None, *shape], tf.float32, "images")
    rows = np.random.default_rng(1).random((NUM_VERIFIED, *shape), "float32")
    return _export(model, caption, spec, rows, directory, version, decoding)


def _export(model, answer, spec, rows, directory, version, decoding, tokenizer=None):
    """Exports a search as the only signature, `serving_default`, and verifies it.

    Args:
        model: the model, which is exported in float32.
        answer: function of an input `spec` and of the search for what the model reads; returns the
            outputs of the signature.
        rows: NumPy array with which it is verified and warmed up.
        directory, version, decoding: see `export_text_generator`.
        tokenizer: what the function needs beside the model.
    """
    model = in_float32(model)

    def write(path):
        tracked = tracked_weights(model)
        tracked.tokenizer = None if tokenizer is None else tokenizer.graph

        def search(inputs):
            return decode(model, inputs, decoding, weights=tracked.decoding_weights)

        @tf.function(input_signature=[spec], autograph=False)
        def serving_default(inputs):
            return answer(inputs, search)

        tf.saved_model.save(tracked, str(path), signatures=serving_default)
        requests = [("serving_default", {spec.name: batch}) for batch in (rows[:1], rows)]
        write_warmup_requests(path, requests)
        return verify_function(path, serving_default, rows)

    return write_version(write, directory, version, model, decoding)


def _check_decoding(decoding):
    if not isinstance(decoding, DecodingConfig):
        raise InputError(
            f"Expected a DecodingConfig for the search. Received: decoding={decoding!r}."
        )


def _captions(ids, words):
    """Returns the words of each row of ids, without end token and padding: strings `(B,)`."""
    is_word = (ids != END_ID) & (ids != PAD_ID)
    found = tf.ragged.boolean_mask(tf.gather(tf.constant(list(words)), ids), is_word)
    return tf.strings.reduce_join(found, axis=1, separator=" ")
