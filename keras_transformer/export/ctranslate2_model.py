"""Writes a translator as a model directory of CTranslate2: whole, or not at all.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is a library that translates on CPUs and GPUs.
The model takes the form of its public `TransformerSpec`.
"""

import pathlib
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from keras_transformer.config.settings import processor_features
from keras_transformer.errors import import_library
from keras_transformer.export.exportable import (
    OtherLibrary,
    activation_of,
    check_float16,
    check_weights,
    exportable_translator,
    float32_array,
    vocab_sizes,
)
from keras_transformer.export.verification import Tolerance, verify_greedy
from keras_transformer.export.versions import check_can_export, write_version
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers import MarianTokenizer
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

SEARCH_PROGRAM = pathlib.Path(__file__).parents[1] / "translation" / "ctranslate2_search.py"
TOKENIZERS = ("source.spm", "target.spm")
"""The files of the tokenizers, as OPUS-MT names them."""

CTRANSLATE2 = OtherLibrary(
    "CTranslate2",
    activations={
        "relu": "RELU",
        "gelu": "GELU",
        "gelu_tanh": "GELUTanh",
        "gelu_sigmoid": "GELUSigmoid",
        "silu": "SWISH",
        "tanh": "Tanh",
        "sigmoid": "Sigmoid",
    },
    instead="Export it as a SavedModel, or as another model.",
)
POSITIONS = ("sinusoidal", "learned", "rotary")

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
INEXACT_INT8 = Tolerance(0.95, 0.5)
"""That of int8 on x86-64 without VNNI, where pairs of products are added in 16 bits: 87 % of the
answers of a small model to random texts were others on a Zen 3."""


def export_ctranslate2(
    translator: Translator,
    directory: StrPath,
    n_best: int = 1,
    version: int | None = None,
    weights: str = "float32",
    about: Mapping[str, Mapping[str, str]] | None = None,
) -> pathlib.Path:
    """Exports a translator to `directory/<version>/` for CTranslate2, and verifies it.

    The version appears when everything is written, and when a fresh process, in which neither
    TensorFlow nor Keras runs, translates greedily as `translator` does. It holds CTranslate2's own
    files, `source.spm` and `target.spm`, which split text into its tokens, and the settings of the
    search, which `CTranslate2Translator` and the server read.

    Args:
        translator: `Translator` of a `Transformer`, pre-norm or post-norm, with dense attention,
            sinusoidal, learned or rotary positions, and SentencePiece tokenizers.
        n_best: maximum number of translations of a text, at most the beam size.
        weights: "float32", "float16", "bfloat16", "int8" or "int8_float32": the type in which the
            weights are stored. CTranslate2 converts a type that the processor has no fast product
            for when it loads the model: float16 and bfloat16 to float32 on most CPUs.
        directory, version, about, Returns: see `export_saved_model`.
    Raises:
        ValueError: what CTranslate2 cannot run, by name; a `directory` or version as in
            `export_saved_model`; or CTranslate2 is not installed. Nothing has been written.
        ExportError: the fresh process translates differently. Nothing is left behind.

    Example:
        export_ctranslate2(keras_transformer.load("runs/python"), "export/models/fast")
    """
    check_can_export(directory, version)
    import_library("ctranslate2")
    check_weights(weights, TOLERANCES)
    translator = exportable_translator(translator, n_best)
    check_model(translator)
    if weights == "float16":
        check_float16(translator.model.weights)

    def write(path):
        write_ctranslate2(translator, path, weights)
        return verify_greedy(SEARCH_PROGRAM, path, translator, _tolerance(weights), search)

    search = search_settings(translator, weights)
    settings = {"format": "ctranslate2", "n_best": n_best, **vocab_sizes(translator), **search}
    model, decoding = translator.model, translator.decoding
    return write_version(write, directory, version, model, decoding, about, **settings)


def _tolerance(weights):
    """Returns the `Tolerance` of a type of weights on this processor."""
    features = processor_features()
    has_exact_int8 = "avx2" not in features or "vnni" in features or "amx" in features
    return TOLERANCES[weights] if has_exact_int8 or "int8" not in weights else INEXACT_INT8


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


def check_model(translator):
    """Raises `ValueError` for a model or a tokenizer that CTranslate2 cannot run, and names why."""
    CTRANSLATE2.check(translator)
    positions = translator.model.positions
    if positions not in POSITIONS:
        raise CTRANSLATE2.refusal(
            f"positions among {', '.join(POSITIONS)}", f"positions={positions!r}"
        )
    penalty = translator.decoding.repetition_penalty
    if added := getattr(translator.tokenizer, "added_tokens", {}):
        names = f"added_tokens={', '.join(added)}"
        raise CTRANSLATE2.refusal("a tokenizer without added tokens", names)
    if penalty != 1:  # it changes logits, and other hypotheses win
        raise CTRANSLATE2.refusal("a repetition penalty of 1", f"repetition_penalty={penalty}")


def transformer_spec(translator):
    """Returns the `ctranslate2.specs.TransformerSpec` with the weights of a translator.

    Args:
        translator: `Translator` that `check_model` has passed.
    """
    specs, model = import_library("ctranslate2").specs, translator.model
    activation = specs.Activation[CTRANSLATE2.activations[activation_of(model)]]
    stack = dict(pre_norm=model.normalize_first, activation=activation)
    if model.positions == "rotary":
        stack.update(rotary_dim=0, rotary_interleave=True)  # 0: all of a head
    encoder = specs.TransformerEncoderSpec(len(model.encoder.blocks), model.num_heads, **stack)
    decoder = specs.TransformerDecoderSpec(len(model.decoder.blocks), model.num_heads, **stack)
    spec = specs.TransformerSpec(encoder, decoder)
    encoder.embeddings[0].weight = float32_array(model.source_embedding.embeddings)
    decoder.embeddings.weight = float32_array(model.target_embedding.embeddings)
    decoder.projection.weight = float32_array(model.output_table())
    if model.output_biases is not None:
        decoder.projection.bias = float32_array(model.output_biases)
    decoding = translator.decoding
    limits = decoding.max_source_length + 1, decoding.max_length + 1  # with the end token
    parts = (encoder, model.encoder), (decoder, model.decoder)
    for (part, layer), limit in zip(parts, limits, strict=True):
        _set_positions(part, layer, limit)
        part.scale_embeddings = layer.embedding.scale
        if layer.norm is not None:
            _set_norm(part.layer_norm, layer.norm)
        for block_spec, block in zip(part.layer, layer.blocks, strict=True):
            _set_block(block_spec, block)
    _set_vocabularies(spec, translator)
    spec.config.layer_norm_epsilon = model.layer_norm_epsilon
    return spec


def _set_positions(spec, stack, limit):
    """Sets the table of the first `limit` positions, which are all that a search reaches."""
    if stack.position_layer is not None:
        spec.position_encodings.encodings = float32_array(
            stack.position_layer.encode(np.arange(limit))
        )
    elif hasattr(spec, "position_encodings"):
        delattr(spec, "position_encodings")  # rotary positions are applied in the attention


def _set_block(spec, block):
    attention = block.self_attention
    projections = (attention.query_projection, attention.key_projection, attention.value_projection)
    _set_linear(spec.self_attention.linear[0], *projections)
    _set_linear(spec.self_attention.linear[1], attention.output_projection)
    _set_norm(spec.self_attention.layer_norm, block.self_attention_residual.normalization)
    if hasattr(spec, "attention"):
        attention = block.cross_attention
        _set_linear(spec.attention.linear[0], attention.query_projection)
        _set_linear(spec.attention.linear[1], attention.key_projection, attention.value_projection)
        _set_linear(spec.attention.linear[2], attention.output_projection)
        _set_norm(spec.attention.layer_norm, block.cross_attention_residual.normalization)
    _set_linear(spec.ffn.linear_0, block.feed_forward.inner)
    _set_linear(spec.ffn.linear_1, block.feed_forward.outer)
    _set_norm(spec.ffn.layer_norm, block.feed_forward_residual.normalization)


def _set_linear(spec, *layers):
    """Joins several layers, each `(output, input)`, into one matrix, and joins their biases."""
    spec.weight = np.concatenate([float32_array(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([float32_array(layer.bias) for layer in layers])


def _set_norm(spec, layer):
    spec.gamma, spec.beta = float32_array(layer.gamma), float32_array(layer.beta)


def _set_vocabularies(spec, translator):
    source, target = translator.tokenizer.pieces, translator.target_tokenizer.pieces
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = True
    spec.config.unk_token = target[UNKNOWN_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[START_ID]
    spec.config.eos_token = target[END_ID]
