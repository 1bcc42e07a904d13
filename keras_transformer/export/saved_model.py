"""Writes a translator as one SavedModel for TensorFlow Serving, and what every SavedModel needs."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_transformer.export.exportable import (
    check_weights,
    exportable_translator,
    vocab_sizes,
    with_model,
)
from keras_transformer.export.int8_products import check_bleu, where_proved
from keras_transformer.export.quantized_weights import WEIGHTS, QuantizedWeights
from keras_transformer.export.signatures import Signatures
from keras_transformer.export.verification import random_sentences, verify
from keras_transformer.export.versions import check_backend, check_can_export, write_version
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

WARMUP_REQUESTS = "assets.extra/tf_serving_warmup_requests"
"""Where TensorFlow Serving looks for the requests that it answers before a version is ready."""

WARMUP_ROWS = 16


def export_saved_model(
    translator: Translator,
    directory: StrPath,
    n_best: int = 1,
    version: int | None = None,
    split_sentences: bool = False,
    weights: str = "float32",
    validation: tuple[Sequence[str], Sequence[str]] | None = None,
    bleu_tokenizer: str = "13a",
    about: Mapping[str, Mapping[str, str]] | None = None,
) -> pathlib.Path:
    """Exports a translator to `directory/<version>/`, and verifies it in a fresh process.

    The version appears when everything is written and verified (`verify`). Until then the files
    stand in a hidden directory beside it, which is deleted if anything fails. The export contains
    the search, which cannot be changed later, and the weights. `Signatures` describes what it can
    be asked.

    Args:
        translator: `Translator`; of a run, `keras_transformer.load(run, checkpoint, beam_size=...)`
            gives it, with the weights and the search to export.
        directory: path; created if it is missing.
        n_best: number of translations that the signature `n_best` returns, at most the beam size.
        version: int above 0; None: one more than the highest version in `directory`.
        split_sentences: whether the export translates a text sentence by sentence and joins the
            translations, so that long texts are not cut.
        weights: "float32", "float16", "bfloat16" or "int8": the type in which the matrices are
            stored. The export computes with the rounded weights in float32; but with "int8", on
            x86-64, in int8 where that is faster, see `Int8Kernel`.
        validation: sources and their reference translations, for products in int8: their BLEU is
            compared with that of `translator`. None: it is not.
        bleu_tokenizer: sacreBLEU's tokenizer for it, see `evaluation.bleu`.
        about: what the model card (`model_card.md` and `.json` of the version) says of the
            training, see `facts_of_runs`. None: nothing.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: `directory` is a file or a run, the version exists or is out of range,
            `translator` is no `Translator`, `n_best` is larger than the beam, or Keras runs on
            another backend than TensorFlow. Nothing has been written.
        ExportError: the fresh process translates differently, or BLEU is lower by more than
            `int8_products.MAX_BLEU_LOSS`. Nothing is left behind.

    Example:
        export_saved_model(keras_transformer.load("runs/python"), "export/models/python")
    """
    check_backend()
    check_can_export(directory, version)
    check_weights(weights, WEIGHTS)
    translator = exportable_translator(translator, n_best, is_saved_model=True)
    quantized = None
    products: dict[str, Any] = {"products": "float32"}
    if weights != "float32":
        quantized = QuantizedWeights(translator.model, weights)
        original, translator = translator, with_model(translator, quantized.model)
        if quantized.products == "int8":
            products = {"products": "int8", "proved_on": where_proved()}
            if validation is not None:
                products["bleu"] = check_bleu(original, translator, *validation, bleu_tokenizer)

    def write(path):
        _write(translator, n_best, split_sentences, path, quantized)
        return verify(path, translator, split_sentences, products["products"])

    settings = {"n_best": n_best, "split_sentences": split_sentences, "weights": weights}
    settings |= (
        products | vocab_sizes(translator) | {"unknown_ids": translator.tokenizer.unknown_ids}
    )
    model, decoding = translator.model, translator.decoding
    return write_version(write, directory, version, model, decoding, about, **settings)


def _write(translator, n_best, split_sentences, path, quantized):
    """Writes the SavedModel."""
    lexicon = _lexicon_of_variables(translator)
    options = dict(n_best=n_best, split_sentences=split_sentences, lexicon=lexicon)
    if quantized is None:
        tracked = tracked_weights(translator.model)
        options["read_decoding_weights"] = lambda: tracked.decoding_weights
    else:
        tracked, options["read_decoding_weights"], options["reading_weights"] = quantized.track()
    tracked.tokenizers = [translator.tokenizer.graph, translator.target_tokenizer.graph]
    tracked.lexicon = None if lexicon is None else [lexicon.table, lexicon.frequent]
    signatures = Signatures(translator, **options)
    functions, tracked.tables = signatures.functions(), signatures.tables
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
    inputs |= {"prefix": [""], "terms": [[""]]}
    requests = [
        (name, {spec.name: inputs[spec.name] for spec in function.input_signature})
        for name, function in functions.items()
    ]
    return [*requests, ("serving_default", {"text": texts})]


def tracked_weights(model):
    """Returns a `tf.Module` to save, with the `weights` of a model and its `decoding_weights`.

    The plain `tf.Variable` of each weight is tracked, not the Keras model: Keras would export a
    copy of each variable, while the functions read the original, which a server then cannot find.
    """
    tracked = tf.Module()
    tracked.weights = [weight.value for weight in model.weights]
    # some a second time, in the layout that decoding reads, so that no call has to compute it
    tracked.decoding_weights = tf.nest.map_structure(
        lambda weight: tf.Variable(weight, trainable=False), model.decoding_weights()
    )
    return tracked


def write_warmup_requests(path, requests):
    """Writes the requests that a server answers when it loads a version, at most 1,000.

    Args:
        path: `pathlib.Path` of the version's directory.
        requests: list of (name of a signature, dict from input name to array or list).
    """
    file = path / WARMUP_REQUESTS
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature_name, inputs in requests:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = signature_name
            for name, values in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictLog(request=request)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())
