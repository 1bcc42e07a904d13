"""Marian's own files, as OPUS-MT ships them: decoder.yml, *.npz, vocabularies, *.spm.

Marian is described in Junczys-Dowmunt et al., 2018, https://arxiv.org/abs/1804.00344.
"""

import zipfile

import numpy as np
import yaml

from keras_transformer.config.yaml import parse_yaml
from keras_transformer.convert import marian_model
from keras_transformer.convert.weights import Settings, Weights, layers_of
from keras_transformer.errors import InputError
from keras_transformer.files.regular import (
    VOCABULARY_BYTES,
    check_arrays,
    is_named,
    read_regular,
    regular_file,
)

SETTINGS = "special:model.yml"
"""The array with Marian's settings: bytes of YAML, with a zero at the end."""

NORMALIZATION = {("", "dan", ""): False, ("n", "da", "n"): True}
"""From what Marian does before a sublayer, after it, and after a stack, to normalize_first: d is
dropout, a addition and n normalization."""

ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "gelu_sigmoid"}

NAMES = {
    "self.query": ("self_Wq", "self_bq"),
    "self.key": ("self_Wk", "self_bk"),
    "self.value": ("self_Wv", "self_bv"),
    "self.output": ("self_Wo", "self_bo"),
    "self.norm": "self_Wo",
    "cross.query": ("context_Wq", "context_bq"),
    "cross.key": ("context_Wk", "context_bk"),
    "cross.value": ("context_Wv", "context_bv"),
    "cross.output": ("context_Wo", "context_bo"),
    "cross.norm": "context_Wo",
    "feed_forward.inner": ("ffn_W1", "ffn_b1"),
    "feed_forward.outer": ("ffn_W2", "ffn_b2"),
    "feed_forward.norm": "ffn_ffn",
}

TABLES = ("Wemb", "encoder_Wemb", "decoder_Wemb")
OUTPUT = "decoder_ff_logit_out"

LAYER_NORM_EPSILON = 1e-6  # of Marian's Transformer, in its source code
MAX_LENGTH = 511  # tokens without the end token; Marian has no such limit
END, UNKNOWN = "</s>", "<unk>"


def read_npz(directory, write):
    """Returns the `Translator` in a directory of Marian's own files.

    Args:
        directory: `pathlib.Path`.
        write: called with a line about each setting of the search that is not applied.
    Raises:
        InputError: see `read_marian`.
    """
    content = read_regular(directory, "decoder.yml", "Marian's decoder.yml")
    decoder = _yaml(content, "decoder.yml")
    (model_name,) = _names(directory, decoder, "models", (1,))
    names = _names(directory, decoder, "vocabs", (2,))
    marian_model.report_not_applied(decoder, "decoder.yml", write)
    arrays, config = _read_arrays(directory, model_name)
    config.check(marian_model.known_settings()[SETTINGS]["expected"])
    marian_model.report_not_applied(config, SETTINGS, write)
    weights = Weights(arrays, files=model_name, settings=SETTINGS)
    settings = _settings(config, weights)
    source, target = _vocabularies(directory, names, settings["share_embeddings"])
    models = tuple(
        _sentence_piece_model(directory, side, name)
        for side, name in zip(("source", "target"), names, strict=True)
    )
    files = marian_model.Files(settings, source, target, models, {}, _decoding(decoder))

    tables = files.tables(*TABLES)
    shapes = marian_model.block_shapes(
        settings, [part for part in NAMES if not part.endswith(".norm")]
    )
    kernels = ((f"{side}_l{i + 1}_{NAMES[part][0]}", shape) for side, i, part, shape in shapes)
    model = files.new_model(weights, tables, kernels)
    marian_model.copy_tables(weights, model, tables)
    _copy_output(weights, model, files)
    if f"{OUTPUT}_b" in weights:
        config.check({"output-omit-bias": (False,)})
    files.copy_output_biases(weights, model, f"{OUTPUT}_b")
    _copy_blocks(weights, model)
    weights.check_none_left()
    return files.translator(model)


def _names(directory, decoder, name, counts):
    """Returns the names of files in a list of decoder.yml, which are relative to the directory."""
    names = decoder.get(name)
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        names = []
    if len(names) not in counts:
        raise InputError(
            f"Expected {counts[0]} of {name} in decoder.yml. Received: {name}={names}, in "
            f"{directory}. Ensembles of models and models of several sources are not supported."
        )
    return names


def _read_arrays(directory, name):
    """Returns `(arrays, settings)` of an .npz file."""
    path = directory / name
    try:
        check_arrays(regular_file(directory, name))
        with np.load(path) as archive:  # refuses pickles
            arrays = {name: archive[name] for name in archive.files}
    except OSError as error:
        reason = error.strerror or "it is no .npz file"
        raise InputError(f"Expected Marian's weights. Received: {path}: {reason}.") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"Expected Marian's weights, a whole .npz file. Received: {path}: {reason}. Copy it "
            "again."
        ) from None
    if SETTINGS not in arrays:
        raise InputError(
            f"Expected Marian's settings in the array {SETTINGS}. Received: {path}, without it."
        )
    settings = _yaml(arrays[SETTINGS].tobytes().rstrip(b"\0"), SETTINGS)
    weights = {}
    for name, array in arrays.items():
        if name.startswith("special:"):
            continue
        if array.dtype.kind != "f":
            raise InputError(
                "Expected weights in floating-point numbers. Received: "
                f"{name} of the type {array.dtype}, in {path}. Take the model before quantization."
            )
        weights[name] = array.astype("float32")
    return weights, settings


def _yaml(content, name):
    try:
        values = parse_yaml(content.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"{error} (in {name})") from None
    if not isinstance(values, dict):
        raise InputError(f"Expected keys and values in YAML. Received: {name} without them.")
    return Settings(values, name)


def _settings(config, weights):
    """Returns the arguments of the `Transformer`."""
    d_model = config.size("dim-emb")
    what = "transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top"
    normalization = tuple(config.get(name) or "" for name in what)
    if normalization not in NORMALIZATION:
        raise InputError(
            f"Expected {', '.join(what)} to be one of {', '.join(map(str, NORMALIZATION))}. "
            f"Received: {normalization}."
        )
    ff_dim = config.size("transformer-dim-ffn")
    if config.get("transformer-decoder-dim-ffn", 0) not in (0, ff_dim):
        raise InputError(
            "Expected encoder and decoder of one width. Received: transformer-dim-ffn="
            f"{ff_dim}, transformer-decoder-dim-ffn={config['transformer-decoder-dim-ffn']}."
        )
    return marian_model.settings_of(
        config.size("enc-depth"),
        config.size("dec-depth"),
        d_model=d_model,
        ff_dim=ff_dim,
        num_heads=config.size("transformer-heads"),
        dropout=config.number("transformer-dropout", 0.1),
        normalize_first=NORMALIZATION[normalization],
        activation=config.activation("transformer-ffn-activation", ACTIVATIONS),
        # The frequencies are 10000^(-i / (d/2 - 1)), as in tensor2tensor, not the paper's
        # 10000^(-i / (d/2)). CTranslate2 and Hugging Face take the paper's all the same.
        position_base=10000.0 ** (d_model / max(d_model - 2, 1)),
        share_embeddings=TABLES[0] in weights,
        tie_output=not any(f"{OUTPUT}_{name}" in weights for name in ("W", "Wt")),
        layer_norm_epsilon=LAYER_NORM_EPSILON,
    )


def _vocabularies(directory, names, share_embeddings):
    """Returns the `Vocabulary` of source and target, twice the same object if they are equal."""
    sides = []
    for name in names:
        ids = _ids_of(directory, name)
        if END not in ids or UNKNOWN not in ids:
            raise InputError(
                f"Expected a vocabulary with {END} and {UNKNOWN}. Received: {directory / name}, "
                "without them."
            )
        sides.append(marian_model.vocabulary(ids, ids[UNKNOWN], ids[END]))
    source, target = sides
    if source == target:
        return source, source
    if share_embeddings:
        raise InputError(
            "Expected one vocabulary where source and target share one table, Wemb. Received: "
            f"{' and '.join(names)}, which differ."
        )
    return source, target


def _ids_of(directory, name):
    """Returns the dict from pieces to ids of a vocabulary: SentencePiece, YAML, or a list."""
    path, expected = directory / name, "the vocabularies that decoder.yml names"
    content = read_regular(directory, name, expected, VOCABULARY_BYTES)
    if path.suffix == ".spm":
        from keras_transformer.tokenizers.sentence_piece_model import processor_of

        model = processor_of(content, path)
        return {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    try:
        text = content.decode("utf-8")
        if path.suffix in (".yml", ".yaml", ".json"):
            # Every scalar stays text: `no`, `010`, `1_0`, `~` and `<<` are pieces like others.
            loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the one in C is fast
            entries = yaml.load(text, loader)
            ids = {piece: int(i) for piece, i in entries.items()}
        else:
            ids = {piece: i for i, piece in enumerate(text.removesuffix("\n").split("\n"))}
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"Expected a vocabulary. Received: {path}: {reason}.") from None
    marian_model.check_ids(ids, path)
    return ids


def _sentence_piece_model(directory, side, vocabulary_name):
    """Returns the bytes of the SentencePiece model of a side."""
    if vocabulary_name.endswith(".spm"):
        return marian_model.read_sentence_piece(directory, vocabulary_name)
    name = f"{side}.spm"
    if not is_named(directory, name) and is_named(directory, f"{side}.bpe"):
        raise InputError(
            f"Expected {name}, a SentencePiece model. Received: {directory} with {side}.bpe: "
            "models of text that Moses and subword-nmt have split are not supported."
        )
    return marian_model.read_sentence_piece(directory, name)


def _decoding(decoder):
    """Returns the `DecodingConfig` of the search that decoder.yml describes."""
    if decoder.get("word-penalty", 0):
        raise InputError(
            "Expected no word-penalty in decoder.yml, which the searches here do not have. "
            f"Received: word-penalty={decoder['word-penalty']}. Set it to 0."
        )
    return marian_model.search_of(
        "decoder.yml",
        beam_size=decoder.get("beam-size", 12),  # the defaults are Marian's
        length_penalty=decoder.get("normalize") or 0.0,
        max_length=MAX_LENGTH,
        max_source_length=MAX_LENGTH,
    )


def _copy_output(weights, model, files):
    """Copies the output layer, if it is not the target embedding."""
    if model.tie_output:
        return
    shape = files.target.num_rows, model.d_model
    if f"{OUTPUT}_W" in weights:
        table = np.transpose(weights.take(f"{OUTPUT}_W", shape[::-1]))
    else:
        table = weights.take(f"{OUTPUT}_Wt", shape)
    model.output_layer.kernel.assign(np.transpose(files.target.in_our_order(table)))


def _copy_blocks(weights, model):
    suffix = "_pre" if model.normalize_first else ""
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(stack.blocks):
            prefix = f"{side}_l{i + 1}_"
            for part, layer in layers_of(block).items():
                if part.endswith(".norm"):
                    _copy_norm(weights, f"{prefix}{NAMES[part]}", suffix, layer)
                else:
                    kernel, bias = NAMES[part]
                    weights.copy(f"{prefix}{kernel}", layer.kernel)
                    weights.copy(f"{prefix}{bias}", layer.bias, _as_row)
        if model.normalize_first:
            # Marian names it as it names those that come before a sublayer, or without that
            is_pre = f"{side}_top_ln_scale_pre" in weights
            _copy_norm(weights, f"{side}_top", "_pre" if is_pre else "", stack.norm)


def _copy_norm(weights, prefix, suffix, layer):
    weights.copy(f"{prefix}_ln_scale{suffix}", layer.gamma, _as_row)
    weights.copy(f"{prefix}_ln_bias{suffix}", layer.beta, _as_row)


def _as_row(vector):
    """Returns a vector as a row `(1, n)`, in which Marian keeps it, and the other way round."""
    return vector.reshape(1, -1) if vector.ndim == 1 else vector.reshape(-1)
