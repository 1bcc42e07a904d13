"""Writes a GPT with its tokenizer as one SavedModel: from a prompt to a text.

Shapes: B batch (prompts), P prompt length, L maximum output length.
"""

import pathlib

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
from keras_transformer.export.signatures import TEXT
from keras_transformer.export.verification import prompts_for_verification
from keras_transformer.models import Gpt
from keras_transformer.special_ids import END_ID, PAD_ID
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import StrPath

GREEDY_SEARCH = DecodingConfig(beam_size=1)


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
        directory: path; created if it is missing.
        decoding: `DecodingConfig`, by default greedy search. Of a longer prompt, its first
            max_source_length tokens are continued, and with learned positions no more than the
            context. max_length counts the tokens that are added.
        version: int above 0; None: one more than the highest version in `directory`.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: `model` is no `Gpt`, `tokenizer` is none of this package or has more tokens than
            the model or other special ids, or what `export_saved_model` refuses of the others.
        ExportError: the fresh process answers differently. Nothing is left behind.

    Example:
        gpt = keras_transformer.models.Gpt(tokenizer.vocab_size, num_layers=1, d_model=24)
        decoding = DecodingConfig(beam_size=1, max_length=4)
        export_text_generator(gpt, tokenizer, "export/models/gpt", decoding)
    """
    check_can_export(directory, version)
    check_decoding(decoding)
    _check(model, tokenizer)
    model = in_float32(model)
    longest = decoding.max_source_length
    if model.positions == "learned":
        longest = min(longest, model.max_length)

    def make_function(decoding_weights):
        @tf.function(input_signature=[TEXT], autograph=False)
        def serving_default(text):
            ids, is_cut = tokenizer.encode_padded(text, longest)
            prompts = tf.where(ids == END_ID, PAD_ID, ids)  # (B, P): a prompt goes on
            is_empty = tf.reduce_all(prompts == PAD_ID, axis=1)
            found = decode(model, prompts, decoding, weights=decoding_weights)
            # `decode` of a tokenizer leaves out padding, also between the two
            texts = tokenizer.decode(tf.concat([prompts, found.ids[:, 0]], axis=1))
            return {
                "text": texts,
                "score": tf.where(is_empty, 0.0, found.scores[:, 0]),
                "truncated": (is_cut | ~found.finished[:, 0]) & ~is_empty,
            }

        return serving_default, [tokenizer]

    rows = prompts_for_verification(tokenizer, longest)
    return export_search(model, make_function, rows, directory, version, decoding)


def _check(model, tokenizer):
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
