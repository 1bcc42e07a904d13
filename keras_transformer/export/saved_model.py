"""Writes a translator as one SavedModel for TensorFlow Serving: whole, or not at all."""

import pathlib

import tensorflow as tf

from keras_transformer.export.checked_translator import checked_translator, with_model
from keras_transformer.export.new_version import (
    check_can_export,
    tracked_weights,
    write_version,
)
from keras_transformer.export.settings import write_settings
from keras_transformer.export.signatures import served_functions
from keras_transformer.export.small_weights import SmallWeights, check_weights
from keras_transformer.export.verification import random_sentences, verify
from keras_transformer.export.warmup import write_warmup_requests
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

WARMUP_ROWS = 16


def export_saved_model(
    translator: Translator,
    directory: StrPath,
    n_best: int = 1,
    version: int | None = None,
    split_sentences: bool = False,
    weights: str = "float32",
) -> pathlib.Path:
    """Exports a translator to `directory/<version>/`, and verifies it in a fresh process.

    The version appears when everything is written and verified (`verify`). Until then the files
    stand in a hidden directory beside it, which is deleted if anything fails. The export contains
    the search, which cannot be changed later, and the weights. `served_functions`
    describes its signatures.

    Args:
        translator: `Translator`; of a run, `keras_transformer.load(run, checkpoint, beam_size=...)`
            gives it, with the weights and the search to export.
        directory: path; created if it is missing.
        n_best: number of translations that the signature `n_best` returns, at most the beam size.
        version: int above 0; None: one more than the highest version in `directory`.
        split_sentences: whether the export translates a text sentence by sentence and joins the
            translations, so that long texts are not cut.
        weights: "float32", "float16", "bfloat16" or "int8": the type in which the matrices are
            stored. The export computes with the rounded weights in float32.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: `directory` is a file or a run, the version exists or is out of range,
            `translator` is no `Translator`, `n_best` is larger than the beam, or Keras runs on
            another backend than TensorFlow. Nothing has been written.
        ExportError: the fresh process translates differently. Nothing is left behind.

    Example:
        export_saved_model(keras_transformer.load("runs/python"), "export/models/python")
    """
    check_can_export(directory, version)
    check_weights(weights)
    translator = checked_translator(translator, n_best, has_shortlists=True)
    small = None
    if weights != "float32":
        small = SmallWeights(translator.model, weights)
        translator = with_model(translator, small.model)

    def write(path):
        _write(translator, n_best, split_sentences, path, small)
        verification = verify(path, translator, split_sentences)
        _write_settings(translator, n_best, split_sentences, weights, verification, path)

    return write_version(write, directory, version)


def _write(translator, n_best, split_sentences, path, small):
    """Writes the SavedModel."""
    options = dict(n_best=n_best, split_sentences=split_sentences)
    if small is None:
        tracked = tracked_weights(translator.model)
        options["read_decoding_weights"] = lambda: tracked.decoding_weights
    else:
        tracked, options["read_decoding_weights"], options["reading_weights"] = small.track()
    tracked.tokenizers = [translator.tokenizer, translator.target_tokenizer]
    lexicon = _lexicon_of_variables(translator)
    tracked.lexicon = None if lexicon is None else [lexicon.table, lexicon.frequent]
    functions = served_functions(
        translator.model,
        translator.tokenizer,
        translator.target_tokenizer,
        translator.decoding,
        lexicon=lexicon,
        **options,
    )
    tf.saved_model.save(tracked, str(path), signatures=functions)
    write_warmup_requests(path, _warmup_requests(functions, translator))


def _lexicon_of_variables(translator):
    """Returns the `Lexicon` that the search needs, in variables; None without shortlists."""
    if not translator.decoding.shortlist:
        return None
    lexicon = translator.lexicon.top(translator.decoding.shortlist)
    arrays = lexicon.table, lexicon.frequent
    table, frequent = (tf.Variable(array, trainable=False) for array in arrays)
    return lexicon._replace(table=table, frequent=frequent)


def _warmup_requests(functions, translator):
    """Returns a request for each signature, and one with many rows for the most common one."""
    texts = [text.decode() for text in random_sentences(translator.tokenizer, WARMUP_ROWS)]
    inputs = {"text": texts[:1], "target": texts[:1], "ids": [[START_ID, UNKNOWN_ID, END_ID]]}
    requests = [
        (name, {spec.name: inputs[spec.name] for spec in function.input_signature})
        for name, function in functions.items()
    ]
    return [*requests, ("serving_default", {"text": texts})]


def _write_settings(translator, n_best, split_sentences, weights, verification, path):
    write_settings(
        path,
        translator.model,
        translator.decoding,
        verification,
        n_best=n_best,
        split_sentences=split_sentences,
        weights=weights,
        source_vocab_size=translator.tokenizer.vocab_size,
        target_vocab_size=translator.target_tokenizer.vocab_size,
    )
