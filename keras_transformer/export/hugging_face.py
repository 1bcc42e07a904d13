"""Writes a translator as Hugging Face's `MarianMTModel`: whole, or not at all.

Shapes: V their vocabulary, D d_model.
"""

import importlib.util
import json
import pathlib
import sys
from collections.abc import Mapping

import numpy as np
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.convert.marian import read_marian
from keras_transformer.convert.marian_hugging_face import LAYER_NORM_EPSILON, NAMES
from keras_transformer.convert.marian_model import known_settings
from keras_transformer.convert.tensor_files import write_tensors
from keras_transformer.convert.weights import layers_of
from keras_transformer.decoding.batch_search import padded_rows
from keras_transformer.export.exportable import (
    OtherLibrary,
    activation_of,
    exportable_translator,
    float32_array,
)
from keras_transformer.export.verification import ExportError, Tolerance, verify_greedy
from keras_transformer.export.versions import check_can_export, write_version
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers import MarianTokenizer
from keras_transformer.tokenizers.patterns import TAG
from keras_transformer.translation.translator import Translator
from keras_transformer.types import StrPath

TOLERANCE = Tolerance(0.05, 0.02)  # near-ties, and what the model gives to forbidden tokens

EXPECTED = {
    "normalize_first": False,
    "positions": "sinusoidal",
    "position_layout": "concatenated",
    "position_base": 10000.0,
    "layer_norm_epsilon": LAYER_NORM_EPSILON,
}
"""The settings of a `Transformer` that is a `MarianMTModel`; the others are free."""

MARIAN = OtherLibrary(
    "Marian",
    activations={
        "gelu": "gelu",
        "gelu_tanh": "gelu_new",
        "relu": "relu",
        "silu": "swish",
        "tanh": "tanh",
    },
    instead="Export it as a SavedModel or for CTranslate2.",
)

NUM_COMPARED = 8
"""Texts for which `transformers` must give our logits, where it is installed."""
LOGITS_TOLERANCE = 1e-3

MIN_POSITIONS = 512
GNMT_SLOPE = 0.75
"""((5 + n) / 6)^alpha grows with n as n^(0.75 alpha) does, at n = 15 tokens."""


def export_hugging_face(
    translator: Translator,
    directory: StrPath,
    version: int | None = None,
    about: Mapping[str, Mapping[str, str]] | None = None,
) -> pathlib.Path:
    """Exports a translator to `directory/<version>/` as a `MarianMTModel`, and verifies it.

    `MarianMTModel` and `MarianTokenizer` of `transformers` load the directory with
    `from_pretrained`, and `convert.import_run` makes a run of it. The version appears when
    everything is written, and when a fresh process that reads the files with this package
    translates greedily as `translator` does. If `transformers` is installed, it must give the same
    logits there.

    The weights are written bit for bit. But an imported model has lost the output biases of tokens
    that it never writes, which are -100, and a start token other than padding is written after the
    other tokens.

    The search becomes that of `generate`: the beam, the longest output, and the length penalty.
    `generate` divides the log-probability by n^alpha. An alpha of our ((5 + n) / 6)^alpha becomes
    0.75 alpha, which is as steep at 15 tokens; with `length_normalization="length"` it stays.

    Args:
        translator: `Translator` of a post-norm `Transformer` with dense attention, concatenated
            sinusoids and a layer_norm_epsilon of 1e-5, as one has that was imported from Hugging
            Face's files, and with SentencePiece tokenizers.
        directory, version, about, Returns: see `export_saved_model`. The model card is `README.md`,
            as a hub expects it.
    Raises:
        ValueError: a setting that Marian does not have, by name; a `directory` or version as in
            `export_saved_model`; or the library `safetensors` is not installed. Nothing has been
            written.
        ExportError: the fresh process translates differently. Nothing is left behind.

    A run that `convert.import_run` has made is exported again by
    `export_hugging_face(keras_transformer.load(run), directory)`.
    """
    check_can_export(directory, version)
    translator = exportable_translator(translator, n_best=1)
    _check_model(translator)

    def write(path):
        _write(translator, path)
        return verify_greedy(__file__, path, translator, TOLERANCE)

    model, decoding = translator.model, translator.decoding
    return write_version(write, directory, version, model, decoding, about, format="hugging_face")


def _check_model(translator):
    """Raises `ValueError` for what a `MarianMTModel` cannot express, and names it."""
    MARIAN.check(translator)
    for name, expected in EXPECTED.items():
        value = getattr(translator.model, name)
        if value != expected:
            raise MARIAN.refusal(f"{name}={expected!r}", f"{name}={value!r}")
    for tokenizer in (translator.tokenizer, translator.target_tokenizer):
        tags = [piece for piece in tokenizer.pieces if TAG.fullmatch(piece)]
        if tags and not isinstance(tokenizer, MarianTokenizer):
            raise MARIAN.refusal("tags outside the SentencePiece model", f"its token {tags[0]}")


def _write(translator, path):
    """Writes all files into an existing directory."""
    model, shared = translator.model, translator.model.target_vocab_size is None
    table = float32_array(model.target_embedding.embeddings)
    # in a model of Marian, padding and start token are one and the same
    has_start = not np.array_equal(table[PAD_ID], table[START_ID])
    del table
    target_order = _their_order(model.output_vocab_size, has_start)
    source_order = target_order if shared else _their_order(model.source_vocab_size)
    orders = source_order, target_order
    pad = min(map(len, orders))  # one setting has the id of padding for both vocabularies
    for order in (target_order,) if shared else orders:
        order.insert(pad, PAD_ID)
    tokenizers = translator.tokenizer, translator.target_tokenizer
    vocabularies = [
        _vocabulary(tokenizer.pieces, order)
        for tokenizer, order in zip(tokenizers, orders, strict=True)
    ]
    _write_json(path / "vocab.json", vocabularies[0])
    if not shared:
        _write_json(path / "target_vocab.json", vocabularies[1])
    for tokenizer, side in zip(tokenizers, ("source", "target"), strict=True):
        (path / f"{side}.spm").write_bytes(tokenizer.sentence_piece_model)
    sizes, decoding = list(map(len, vocabularies)), translator.decoding
    special = _special_ids(target_order)
    _write_json(path / "config.json", {**_config(model, decoding, sizes), **special})
    unknown = target_order.index(UNKNOWN_ID)
    _write_json(
        path / "generation_config.json", {**_generation(decoding, special, unknown), **special}
    )
    _write_json(
        path / "tokenizer_config.json", _tokenizer_config(translator, shared, vocabularies[0])
    )
    write_tensors(path / "model.safetensors", _tensors(model, orders))


def _their_order(size, has_start=False):
    """Returns our ids in the order of Marian, but padding: end, unknown, the tokens."""
    start = [START_ID] if has_start else []
    return [END_ID, UNKNOWN_ID, *range(END_ID + 1, size), *start]


def _vocabulary(pieces, order):
    """Returns the dict from each piece to its id."""
    pieces = list(pieces)
    while pieces.count(pieces[START_ID]) > 1:  # its name is never read
        pieces[START_ID] = f"<{pieces[START_ID]}>"
    return {pieces[ours]: theirs for theirs, ours in enumerate(order)}


def _special_ids(order):
    """Returns the settings of config.json and generation_config.json with special ids."""
    pad = order.index(PAD_ID)
    return {
        "pad_token_id": pad,
        "eos_token_id": order.index(END_ID),
        "decoder_start_token_id": order.index(START_ID) if START_ID in order else pad,
        "forced_eos_token_id": None,
    }


def _config(model, decoding, sizes):
    """Returns config.json without the special ids."""
    fixed = known_settings()["config.json"]["expected"]
    num_positions = max(MIN_POSITIONS, decoding.max_source_length + 1, decoding.max_length + 1)
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        **{name: values[0] for name, values in fixed.items()},
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "d_model": model.d_model,
        "encoder_layers": len(model.encoder.blocks),
        "decoder_layers": len(model.decoder.blocks),
        "encoder_attention_heads": model.num_heads,
        "decoder_attention_heads": model.num_heads,
        "encoder_ffn_dim": model.ff_dim,
        "decoder_ffn_dim": model.ff_dim,
        "activation_function": MARIAN.activations[activation_of(model)],
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.ff_dropout,
        "max_position_embeddings": num_positions,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.source_embedding is model.target_embedding,
        "tie_word_embeddings": model.tie_output,
        "dtype": "float32",
    }


def _generation(decoding, special, unknown):
    """Returns generation_config.json without the special ids."""
    slope = GNMT_SLOPE if decoding.length_normalization == "gnmt" else 1.0
    forbidden = sorted({special["pad_token_id"], unknown, special["decoder_start_token_id"]})
    return {
        "num_beams": decoding.beam_size,
        "length_penalty": slope * decoding.length_penalty,
        "max_length": decoding.max_length + 1,  # theirs counts the start token
        "min_length": decoding.min_length,  # which it counts too, but before the end token
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "repetition_penalty": decoding.repetition_penalty,
        "bad_words_ids": [[i] for i in forbidden],
    }


def _tokenizer_config(translator, shared, ids):
    """Returns tokenizer_config.json; `ids` are those of the source."""
    pad, unknown, _, end = translator.target_tokenizer.pieces[: END_ID + 1]
    added = getattr(translator.tokenizer, "added_tokens", {})
    return {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": unknown,
        "eos_token": end,
        "pad_token": pad,
        "separate_vocabs": not shared,
        "model_max_length": translator.decoding.max_source_length + 1,  # with the end token
        "source_lang": None,
        "target_lang": None,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            ids[token]: {"content": token, "special": is_special}
            for token, is_special in added.items()
        },
        "additional_special_tokens": [token for token in added if added[token]],
    }


def _tensors(model, orders):
    """Returns the tensors of a `MarianMTModel`: dict from name to float32 array.

    Args:
        model: `Transformer`.
        orders: for source and target, our id of each of their ids.
    """
    tables = [(model.source_embedding, orders[0], "encoder.embed_tokens")]
    tables.append((model.target_embedding, orders[1], "decoder.embed_tokens"))
    if model.source_embedding is model.target_embedding:
        tables = [(model.source_embedding, orders[0], "shared")]
    tensors = {
        f"model.{name}.weight": float32_array(embedding.embeddings)[order]
        for embedding, order, name in tables
    }
    if not model.tie_output:
        tensors["lm_head.weight"] = float32_array(model.output_table())[orders[1]]
    biases = np.zeros(model.output_vocab_size, "float32")
    if model.output_biases is not None:
        biases = float32_array(model.output_biases)
    tensors["final_logits_bias"] = biases[orders[1]][None]
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(stack.blocks):
            for part, layer in layers_of(block).items():
                name = f"model.{side}.layers.{i}.{NAMES[part]}"
                is_norm = part.endswith(".norm")
                weight, bias = (layer.gamma, layer.beta) if is_norm else (layer.kernel, layer.bias)
                tensors[f"{name}.weight"] = np.transpose(float32_array(weight))
                tensors[f"{name}.bias"] = float32_array(bias)
    return tensors


def _write_json(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def compare_with_transformers(path, translator, texts):
    """Raises `ExportError` unless `MarianMTModel` gives the first tokens the logits that we do.

    Args:
        path: directory.
        translator: `Translator` that `read_marian` has read from it.
        texts: list of str.
    """
    from transformers import MarianMTModel, MarianTokenizer

    theirs = MarianMTModel.from_pretrained(path)
    tokenizer = MarianTokenizer.from_pretrained(path)
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
    start = inputs["input_ids"].new_full((len(texts), 1), theirs.config.decoder_start_token_id)
    received = theirs(**inputs, decoder_input_ids=start).logits[:, 0].detach().numpy()
    ids = getattr(tokenizer, "target_encoder", tokenizer.encoder)
    received = received[:, [ids[piece] for piece in translator.target_tokenizer.pieces[END_ID:]]]
    max_tokens = translator.decoding.max_source_length
    rows, _ = translator.tokenizer.encode_truncated_on_host(texts, max_tokens)
    source_ids = padded_rows(rows)  # perhaps with more rows
    inputs = {"source_ids": source_ids, "target_ids": np.full((len(source_ids), 1), START_ID)}
    expected = ops.convert_to_numpy(translator.model(inputs))[: len(texts), 0, END_ID:]
    difference = np.abs(received - expected).max()
    if not difference < LOGITS_TOLERANCE * (1 + np.abs(expected).max()):  # also if it is NaN
        raise ExportError(
            "transformers must give the logits that this package does. "
            f"Received: logits that differ by up to {difference:.4g}."
        )


def main():
    """Reads the directory that the command line names, for `verify_greedy`, in a fresh process."""
    request = json.load(sys.stdin)
    read = read_marian(sys.argv[1], write=lambda line: None)
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        compare_with_transformers(sys.argv[1], read, request["batches"][0][-NUM_COMPARED:])
    decoding = DecodingConfig(**request["settings"]["decoding"])
    translator = Translator(read.model, read.tokenizer, read.target_tokenizer, decoding)
    answers = [[best for (best,) in translator.translate(batch)] for batch in request["batches"]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
