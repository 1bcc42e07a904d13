"""`MarianMTModel` of Hugging Face's `transformers`, in the files in which OPUS-MT is published."""

import numpy as np
from keras import ops

from keras_transformer.convert.hugging_face import read_json
from keras_transformer.convert.marian_model import (
    Files,
    block_shapes,
    blocks_of,
    check_ids,
    in_our_order,
    new_model,
    output_biases,
    read_bytes,
    search_of,
    their_size,
    translator_of,
    vocabulary,
)
from keras_transformer.convert.pytorch_files import read_pytorch_tensors
from keras_transformer.convert.safetensors_files import INDEX, read_tensors
from keras_transformer.convert.weights import (
    Weights,
    activation_name,
    check_settings,
    flag,
    number,
    size,
)
from keras_transformer.errors import InputError
from keras_transformer.layers import sinusoidal_encoding

EXPECTED = {
    "is_encoder_decoder": (True,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
}

NAMES = {
    "self.query": "self_attn.q_proj",
    "self.key": "self_attn.k_proj",
    "self.value": "self_attn.v_proj",
    "self.output": "self_attn.out_proj",
    "self.norm": "self_attn_layer_norm",
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "cross.norm": "encoder_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward.norm": "final_layer_norm",
}

TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
TOKENIZER_CONFIG = "tokenizer_config.json"
SEARCH_FILES = "generation_config.json or config.json"

LAYER_NORM_EPSILON = 1e-5  # of PyTorch; config.json has no such setting
MAX_LENGTH = 512  # where the files name none: OPUS-MT's

NOT_APPLIED = {
    "begin_suppress_tokens": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "guidance_scale": None,
    "min_length": 0,
    "min_new_tokens": None,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "renormalize_logits": False,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "suppress_tokens": None,
}
"""Settings of `generate` that our searches do not have, and the values that mean nothing."""


def read_hugging_face(directory, config, write):
    """Returns the `Translator` in a directory of `MarianMTModel.save_pretrained`.

    Args:
        directory: `pathlib.Path`.
        config: dict of config.json.
        write: called with a line about each setting of the search that is not applied.
    Raises:
        InputError: see `read_marian`.
    """
    tokenizer_config = _optional_json(directory / TOKENIZER_CONFIG)
    search = {**config, **_optional_json(directory / "generation_config.json")}
    files, forbidden = _files(directory, config, tokenizer_config, search)
    _report(search, tokenizer_config, size(config, "max_position_embeddings"), write)
    weights = Weights(_tensors(directory), prefix="model.")
    _check_sizes(weights, files)
    model = new_model(files)
    _copy_weights(weights, model, files, forbidden, config)
    return translator_of(model, files)


def _files(directory, config, tokenizer_config, search):
    """Returns `(files, forbidden)`: the `Files`, and their ids that must never be written."""
    check_settings(config, EXPECTED)
    shared = not flag(tokenizer_config, "separate_vocabs", False, TOKENIZER_CONFIG)
    one_table = flag(config, "share_encoder_decoder_embeddings", True)
    if one_table and not shared:
        raise InputError(
            "Expected one vocabulary where source and target share one table. Received: "
            f"separate_vocabs=true and share_encoder_decoder_embeddings=true, in {directory}."
        )
    for theirs in ("attention_heads", "ffn_dim"):
        if config.get(f"encoder_{theirs}") != config.get(f"decoder_{theirs}"):
            raise InputError(
                f"Expected encoder and decoder of one kind. Received: encoder_{theirs}="
                f"{config.get(f'encoder_{theirs}')!r}, decoder_{theirs}="
                f"{config.get(f'decoder_{theirs}')!r}."
            )
    num_layers, num_decoder_layers = size(config, "encoder_layers"), size(config, "decoder_layers")
    settings = dict(
        num_layers=num_layers,
        num_decoder_layers=None if num_decoder_layers == num_layers else num_decoder_layers,
        d_model=size(config, "d_model"),
        ff_dim=size(config, "encoder_ffn_dim"),
        num_heads=size(config, "encoder_attention_heads"),
        dropout=number(config, "dropout", 0.1),
        activation=activation_name(config, "activation_function"),
        position_layout="concatenated",
        share_embeddings=one_table,
        tie_output=flag(config, "tie_word_embeddings", True),
        scale_embeddings=flag(config, "scale_embedding", False),
        output_bias=True,
        layer_norm_epsilon=LAYER_NORM_EPSILON,
    )
    if tokenizer_config.get("sp_model_kwargs"):
        raise InputError(
            "Expected the plain SentencePiece tokenizer. Received: sp_model_kwargs="
            f"{tokenizer_config['sp_model_kwargs']!r}, in {directory / TOKENIZER_CONFIG}."
        )
    source, target = _vocabularies(directory, config, tokenizer_config, search, shared)
    models = tuple(
        read_bytes(directory / f"{side}.spm", "the SentencePiece models of Marian")
        for side in ("source", "target")
    )
    decoding = _decoding(config, tokenizer_config, search)
    forbidden = _forbidden(search, their_size(target))
    return Files(settings, source, target, models, decoding), forbidden


def _vocabularies(directory, config, tokenizer_config, search, shared):
    """Returns the `Vocabulary` of source and target, twice the same if they share it."""

    def name_of(token, default):
        value = tokenizer_config.get(f"{token}_token", default)
        value = value.get("content") if isinstance(value, dict) else value
        if not isinstance(value, str | None):
            raise InputError(
                f"Expected {token}_token in {TOKENIZER_CONFIG} to be a token. Received: {value!r}."
            )
        return value

    def read(file):
        path = directory / file
        ids = read_json(path)
        check_ids(ids, path)
        unknown = ids.get(name_of("unk", "<unk>"))
        end = ids.get(name_of("eos", "</s>"))
        if unknown is None or end is None:
            raise InputError(
                "Expected a vocabulary with an end and an unknown token. "
                f"Received: {path}, without </s> or <unk>."
            )
        pad = ids.get(name_of("pad", "<pad>"))
        if len({unknown, end, pad}) < 3:
            raise InputError(
                f"Expected three different tokens for end, unknown and padding in "
                f"{TOKENIZER_CONFIG}. Received: eos_token, unk_token and pad_token, which have the "
                f"ids {end}, {unknown} and {pad} in {path}."
            )
        return path, ids, unknown, end, pad

    def special(name, ids, path):
        value = config.get(name)
        if type(value) is not int or not 0 <= value < len(ids):
            raise InputError(
                f"Expected {name} in config.json to be one of the {len(ids):,} ids of {path}. "
                f"Received: {name}={value!r}."
            )
        return value

    def check_size(name, ids, path):
        if config.get(name) != len(ids):
            raise InputError(
                f"Expected as many tokens in {path} as config.json says. Received: "
                f"{len(ids):,} tokens, {name}={config.get(name)!r}."
            )

    for name in ("eos_token_id", "decoder_start_token_id"):
        if search.get(name) not in (None, config.get(name)):
            raise InputError(
                f"Expected the same {name} in config.json and generation_config.json. "
                f"Received: {config.get(name)!r} and {search[name]!r}."
            )
    path, ids, unknown, end, pad = read("vocab.json")
    check_size("vocab_size", ids, path)
    source = vocabulary(ids, unknown, end, pad)
    if not shared:
        path, ids, unknown, end, pad = read("target_vocab.json")
        check_size("decoder_vocab_size", ids, path)
    if special("eos_token_id", ids, path) != end:
        raise InputError(
            f"Expected eos_token_id in config.json to be the id of the end token in {path}, "
            f"{end}. Received: eos_token_id={config['eos_token_id']}."
        )
    start = special("decoder_start_token_id", ids, path)
    target = vocabulary(ids, unknown, end, pad, start)
    return (target, target) if shared else (source, target)


def _decoding(config, tokenizer_config, search):
    """Returns the `DecodingConfig` of the search that `generate` makes by default.

    Neither text nor translation can be longer than their table of positions. Their numbers count
    the end token of the text, and the start token of the translation.
    """
    positions = size(config, "max_position_embeddings")

    def length(settings, name, file, default):
        return default if settings.get(name) is None else size(settings, name, file)

    longest = length(tokenizer_config, "model_max_length", TOKENIZER_CONFIG, MAX_LENGTH)
    limit = length(search, "max_length", SEARCH_FILES, MAX_LENGTH)
    limit = length(search, "max_new_tokens", SEARCH_FILES, limit - 1) + 1
    num_beams, length_penalty = search.get("num_beams"), search.get("length_penalty")
    return search_of(
        SEARCH_FILES,
        beam_size=1 if num_beams is None else num_beams,
        length_penalty=1.0 if length_penalty is None else length_penalty,
        keep_beam_full=True,
        max_length=max(min(limit, positions) - 1, 1),
        max_source_length=max(min(longest, positions) - 1, 1),
    )


def _forbidden(search, vocab_size):
    """Returns the set of the ids that `bad_words_ids` forbids."""
    words = search.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(
        isinstance(word, list) and len(word) == 1 and type(word[0]) is int for word in words
    ):
        raise InputError(
            "Expected bad_words_ids to be lists of one id each, the only kind that can be "
            f"converted. Received: bad_words_ids={words!r}."
        )
    forbidden = {i for (i,) in words}
    outside = sorted(i for i in forbidden if not 0 <= i < vocab_size)
    if outside:
        raise InputError(
            f"Expected bad_words_ids of the {vocab_size:,} ids of the vocabulary. "
            f"Received: {outside[0]}, in {SEARCH_FILES}."
        )
    return forbidden


def _report(search, tokenizer_config, num_positions, write):
    """Writes a line about each setting that changes their answers and is not applied."""
    for name in ("max_length", "max_new_tokens"):
        if (search.get(name) or 0) > num_positions:
            write(f"not applied {name}={search[name]}, as there are {num_positions} positions")
    for name, neutral in NOT_APPLIED.items():
        if search.get(name, neutral) not in (neutral, None):
            write(f"not applied {name}={search[name]!r}, which the searches here do not have")
    if tokenizer_config.get("clean_up_tokenization_spaces"):
        write("not applied clean_up_tokenization_spaces=true, which changes their output text")


def _tensors(directory):
    has_safetensors = any((directory / name).exists() for name in ("model.safetensors", INDEX))
    if not has_safetensors and (directory / "pytorch_model.bin").exists():
        return read_pytorch_tensors(directory / "pytorch_model.bin")
    return read_tensors(directory)


def _tables(files):
    """Returns the names of the tables of embeddings, each with its `Vocabulary`."""
    if files.settings["share_embeddings"]:
        return {"shared.weight": files.source}
    return dict(zip(TABLES, (files.source, files.target), strict=True))


def _check_sizes(weights, files):
    """Raises `InputError` if config.json describes other tensors than there are."""
    for name, side in _tables(files).items():
        weights.check(name, (their_size(side), files.settings["d_model"]))
    for side, i, part, shape in block_shapes(files.settings, NAMES):
        weights.check(f"{side}.layers.{i}.{NAMES[part]}.weight", shape[::-1])


def _copy_weights(weights, model, files, forbidden, config):
    copies = TABLES if model.share_embeddings else ()
    layers = model.source_embedding, model.target_embedding
    for (name, side), layer in zip(_tables(files).items(), layers, strict=False):
        theirs = weights.take(name, (their_size(side), model.d_model))
        layer.embeddings.assign(in_our_order(theirs, side.rows))
        for copy in copies:
            weights.take_copy(copy, name, theirs)
    # theirs is now the table of the target
    output_shape = their_size(files.target), model.d_model
    if model.tie_output:
        weights.take_copy("lm_head.weight", "the target embedding", theirs)
    else:
        table = in_our_order(weights.take("lm_head.weight", output_shape), files.target.rows)
        model.output_layer.kernel.assign(np.transpose(table))
    biases = np.zeros(output_shape[0], "float32")
    if "final_logits_bias" in weights:
        biases = weights.take("final_logits_bias", (1, output_shape[0]))
    model.output_biases.assign(output_biases(biases, files.target, forbidden))
    for side, i, layers in blocks_of(model):
        for part, layer in layers.items():
            name = f"{side}.layers.{i}.{NAMES[part]}"
            if part.endswith(".norm"):
                weights.copy(f"{name}.weight", layer.gamma)
                weights.copy(f"{name}.bias", layer.beta)
            else:
                weights.copy(f"{name}.weight", layer.kernel, np.transpose)
                weights.copy(f"{name}.bias", layer.bias)
    for side in ("encoder", "decoder"):
        _check_positions(weights, f"{side}.embed_positions.weight", model, config)
    weights.check_none_left()


def _check_positions(weights, name, model, config):
    """Takes a table of positions, which must be the sinusoids that are computed here."""
    if name not in weights:
        return
    num_positions = size(config, "max_position_embeddings")
    table = weights.take(name, (num_positions, model.d_model))
    expected = sinusoidal_encoding(np.arange(num_positions), model.d_model, "concatenated")
    if not np.allclose(table, ops.convert_to_numpy(expected), atol=2e-3):  # may be float16
        raise InputError(
            f"Expected {name} to hold sines and cosines, as all of Marian's models. "
            "Received: other numbers."
        )


def _optional_json(path):
    return read_json(path) if path.exists() else {}
