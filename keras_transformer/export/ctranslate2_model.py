"""Writes a translator as a model directory of CTranslate2: whole, or not at all.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is a library that translates on CPUs and GPUs.
"""

import pathlib

import ml_dtypes

from keras_transformer.errors import InputError, import_library
from keras_transformer.export.ctranslate2_spec import check_model, transformer_spec
from keras_transformer.export.exportable import check_float16, exportable_translator
from keras_transformer.export.verification import Tolerance, verify_greedy
from keras_transformer.export.versions import check_can_export, write_settings, write_version
from keras_transformer.special_ids import END_ID
from keras_transformer.tokenizers import MarianTokenizer
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

SEARCH_PROGRAM = pathlib.Path(__file__).parents[1] / "translation" / "ctranslate2_search.py"
TOKENIZERS = ("source.spm", "target.spm")
"""The files of the tokenizers, as OPUS-MT names them."""

TOLERANCES = {
    "float32": Tolerance(0.05, 0.02),
    "float16": Tolerance(0.1, 0.05),
    "bfloat16": Tolerance(0.3, 0.2),
    "int8": Tolerance(0.6, 0.5),
    "int8_float32": Tolerance(0.6, 0.5),
}
"""How far greedy translations may differ, by the types of weights that an export can have: float32
by near-ties, rounded weights by more. A wrong weight, tokenizer or setting changes nearly all. The
scores differ a little because CTranslate2 leaves out the probability of tokens that are never
chosen."""


def export_ctranslate2(
    translator: Translator,
    directory: StrPath,
    n_best: int = 1,
    version: int | None = None,
    weights: str = "float32",
) -> pathlib.Path:
    """Exports a translator to `directory/<version>/` for CTranslate2, and verifies it.

    The version appears when everything is written, and when a fresh process, in which neither
    TensorFlow nor Keras runs, translates greedily as `translator` does. It holds CTranslate2's own
    files, `source.spm` and `target.spm`, which split text into its tokens, and the settings of the
    search, which `CTranslate2Translator` and the server read.

    Args:
        translator: `Translator` of a `Transformer`, pre-norm or post-norm, with dense attention,
            sinusoidal, learned or rotary positions, and SentencePiece tokenizers.
        directory: path; created if it is missing.
        n_best: maximum number of translations of a text, at most the beam size.
        version: int above 0; None: one more than the highest version in `directory`.
        weights: "float32", "float16", "bfloat16", "int8" or "int8_float32": the type in which the
            weights are stored. CTranslate2 converts a type that the processor has no fast product
            for when it loads the model: float16 and bfloat16 to float32 on most CPUs.
    Returns:
        `pathlib.Path` of the new version.
    Raises:
        ValueError: what CTranslate2 cannot run, by name; a `directory` or version as in
            `export_saved_model`; or CTranslate2 is not installed. Nothing has been written.
        ExportError: the fresh process translates differently. Nothing is left behind.

    Example:
        export_ctranslate2(keras_transformer.load("runs/python"), "export/models/fast")
    """
    check_can_export(directory, version)
    import_library("ctranslate2")
    if weights not in TOLERANCES:
        raise InputError(
            f"weights must be one of {', '.join(TOLERANCES)}. Received: weights={weights!r}."
        )
    translator = exportable_translator(translator, n_best)
    check_model(translator)
    if weights == "float16":
        check_float16(translator.model.weights)

    def write(path):
        write_ctranslate2(translator, path, weights)
        settings = search_settings(translator, weights)
        verification = verify_greedy(
            SEARCH_PROGRAM, path, translator, TOLERANCES[weights], settings
        )
        write_settings(
            path,
            translator.model,
            translator.decoding,
            verification,
            format="ctranslate2",
            n_best=n_best,
            source_vocab_size=translator.tokenizer.vocab_size,
            target_vocab_size=translator.target_tokenizer.vocab_size,
            **settings,
        )

    return write_version(write, directory, version)


def write_ctranslate2(translator, directory, weights="float32"):
    """Writes the files of CTranslate2, and the tokenizers, into an existing directory."""
    directory = pathlib.Path(directory)
    spec = transformer_spec(translator)
    spec.validate()
    if weights == "bfloat16":  # which CTranslate2's quantizer keeps; by itself it needs PyTorch
        for variable in spec.variables().values():
            if variable.dtype == "float32" and not variable.is_scalar():
                variable.array = variable.array.astype(ml_dtypes.bfloat16)
    spec.optimize(quantization=weights)
    spec.save(str(directory))
    tokenizers = translator.tokenizer, translator.target_tokenizer
    for name, tokenizer in zip(TOKENIZERS, tokenizers, strict=True):
        (directory / name).write_bytes(tokenizer.sentence_piece_model)


def search_settings(translator, weights="float32"):
    """Returns the settings of `CTranslate2Search` beside `decoding`, for JSON."""
    is_marian = isinstance(translator.tokenizer, MarianTokenizer)
    return {
        "weights": weights,
        "tokenizer": "marian" if is_marian else "sentence_piece",
        "special_tokens": translator.target_tokenizer.pieces[: END_ID + 1],
    }
