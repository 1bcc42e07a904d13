"""`MarianMTModel` of Hugging Face's `transformers`, in the files in which OPUS-MT is published."""

import numpy as np
from keras import ops

from keras_transformer.convert.marian_model import (
    Files,
    block_shapes,
    check_ids,
    copy_tables,
    read_bytes,
    search_of,
    settings_of,
    vocabulary,
)
from keras_transformer.convert.tensor_files import INDEX, read_pytorch_tensors, read_tensors
from keras_transformer.convert.weights import Settings, Weights
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

TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
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
        config: `Settings` of config.json.
        write: called with a line about each setting of the search that is not applied.
    Raises:
        InputError: see `read_marian`.
    """
    tokenizer_config = Settings.read(directory / TOKENIZER_CONFIG, optional=True)
    generation = Settings.read(directory / "generation_config.json", optional=True)
    search = Settings({**config, **generation}, SEARCH_FILES)
    settings = _settings(directory, config, tokenizer_config)
    shared = not tokenizer_config.flag("separate_vocabs", False)
    source, target = _vocabularies(directory, config, tokenizer_config, search, shared)
    models = tuple(
        read_bytes(directory / f"{side}.spm", "the SentencePiece models of Marian")
        for side in ("source", "target")
    )
    decoding = _decoding(config, tokenizer_config, search)
    forbidden = _forbidden(search, target.num_rows)
    files = Files(settings, source, target, models, decoding)
    _report(search, tokenizer_config, config.size("max_position_embeddings"), write)

    weights, tables = Weights(_tensors(directory), prefix="model."), files.tables(*TABLES)
    shapes = block_shapes(settings, NAMES)
    kernels = (
        (f"{side}.layers.{i}.{NAMES[part]}.weight", shape[::-1]) for side, i, part, shape in shapes
    )
    model = files.new_model(weights, tables, kernels)
    _copy_tables_and_output(weights, model, files, tables)
    files.copy_output_biases(weights, model, "final_logits_bias", forbidden)
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(stack.blocks):
            weights.copy_block(f"{side}.layers.{i}", block, NAMES)
        _check_positions(weights, f"{side}.embed_positions.weight", model, config)
    weights.check_none_left()
    return files.translator(model)


def _settings(directory, config, tokenizer_config):
    """Returns the arguments of the `Transformer`."""
    config.check(EXPECTED)
    one_table = config.flag("share_encoder_decoder_embeddings", True)
    if one_table and tokenizer_config.flag("separate_vocabs", False):
        raise InputError(
            "Expected one vocabulary where source and target share one table. Received: "
            f"separate_vocabs=true and share_encoder_decoder_embeddings=true, in {directory}."
        )
    for theirs in ("attention_heads", "ffn_dim"):
        encoder, decoder = (config.get(f"{side}_{theirs}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise InputError(
                f"Expected an encoder and a decoder of the same sizes. Received: encoder_{theirs}="
                f"{encoder!r}, decoder_{theirs}={decoder!r}."
            )
    if tokenizer_config.get("sp_model_kwargs"):
        raise InputError(
            "Expected the plain SentencePiece tokenizer. Received: sp_model_kwargs="
            f"{tokenizer_config['sp_model_kwargs']!r}, in {directory / TOKENIZER_CONFIG}."
        )
    return settings_of(
        config.size("encoder_layers"),
        config.size("decoder_layers"),
        d_model=config.size("d_model"),
        ff_dim=config.size("encoder_ffn_dim"),
        num_heads=config.size("encoder_attention_heads"),
        dropout=config.number("dropout", 0.1),
        activation=config.activation("activation_function"),
        share_embeddings=one_table,
        tie_output=config.flag("tie_word_embeddings", True),
        scale_embeddings=config.flag("scale_embedding", False),
        layer_norm_epsilon=LAYER_NORM_EPSILON,
    )


def _vocabularies(directory, config, tokenizer_config, search, shared):
    """Returns the `Vocabulary` of source and target, twice the same if they share it."""
    for name in ("eos_token_id", "decoder_start_token_id"):
        if search.get(name) not in (None, config.get(name)):
            raise InputError(
                f"Expected the same {name} in config.json and generation_config.json. "
                f"Received: {config.get(name)!r} and {search[name]!r}."
            )
    path = directory / "vocab.json"
    ids, special = _read_vocabulary(path, config, "vocab_size", tokenizer_config)
    source = vocabulary(ids, **special)
    smallest = len(ids)
    if not shared:
        path = directory / "target_vocab.json"
        ids, special = _read_vocabulary(path, config, "decoder_vocab_size", tokenizer_config)
    for name in ("eos_token_id", "decoder_start_token_id"):
        value = config.get(name)
        if type(value) is not int or not 0 <= value < len(ids):
            raise InputError(
                f"Expected {name} in config.json to be one of the {len(ids):,} ids of {path}. "
                f"Received: {name}={value!r}."
            )
    smallest, pad = min(smallest, len(ids)), config.get("pad_token_id", 0)
    if type(pad) is not int or not 0 <= pad < smallest:  # transformers would not load the model
        raise InputError(
            "Expected pad_token_id in config.json to be an id of each vocabulary, of which the "
            f"smallest has {smallest:,}. Received: pad_token_id={pad!r}."
        )
    if config["eos_token_id"] != special["end"]:
        raise InputError(
            f"Expected eos_token_id in config.json to be the id of the end token in {path}, "
            f"{special['end']}. Received: eos_token_id={config['eos_token_id']}."
        )
    target = vocabulary(ids, **special, start=config["decoder_start_token_id"])
    return (target, target) if shared else (source, target)


def _read_vocabulary(path, config, size_name, tokenizer_config):
    """Returns `(ids, special)`: dict from piece to id, dict with the ids of unknown, end and pad.

    Args:
        path: the file.
        size_name: the setting in config.json with the number of tokens.
    """
    ids = Settings.read(path)
    check_ids(ids, path)
    special = {}
    for ours, token, default in (
        ("unknown", "unk_token", "<unk>"),
        ("end", "eos_token", "</s>"),
        ("pad", "pad_token", "<pad>"),
    ):
        piece = tokenizer_config.get(token, default)
        piece = piece.get("content") if isinstance(piece, dict) else piece
        if not isinstance(piece, str | None):
            raise InputError(
                f"Expected {token} in {TOKENIZER_CONFIG} to be a token. Received: {piece!r}."
            )
        special[ours] = ids.get(piece)
    if special["unknown"] is None or special["end"] is None:
        raise InputError(
            "Expected a vocabulary with an end and an unknown token. "
            f"Received: {path}, without </s> or <unk>."
        )
    if len(set(special.values())) < 3:
        raise InputError(
            f"Expected three different tokens for end, unknown and padding in {TOKENIZER_CONFIG}. "
            f"Received: eos_token, unk_token and pad_token, which have the ids {special['end']}, "
            f"{special['unknown']} and {special['pad']} in {path}."
        )
    if config.get(size_name) != len(ids):
        raise InputError(
            f"Expected as many tokens in {path} as config.json says. Received: "
            f"{len(ids):,} tokens, {size_name}={config.get(size_name)!r}."
        )
    return ids, special


def _decoding(config, tokenizer_config, search):
    """Returns the `DecodingConfig` of the search that `generate` makes by default.

    Neither text nor translation can be longer than their table of positions. Their numbers count
    the end token of the text, and the start token of the translation.
    """
    positions = config.size("max_position_embeddings")

    def length(settings, name, default):
        return default if settings.get(name) is None else settings.size(name)

    longest = length(tokenizer_config, "model_max_length", MAX_LENGTH)
    limit = length(search, "max_length", MAX_LENGTH)
    limit = length(search, "max_new_tokens", limit - 1) + 1
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
            "Expected bad_words_ids to be lists of one id each, the only ones that can be "
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


def _copy_tables_and_output(weights, model, files, tables):
    """Copies the embeddings and the output layer; copies of a table must have its numbers."""
    shared, *separate = TABLES
    theirs = copy_tables(weights, model, tables)  # of the target
    for name in separate if model.share_embeddings else ():
        weights.take_copy(name, shared, theirs)
    if model.tie_output:
        weights.take_copy("lm_head.weight", "the target embedding", theirs)
        return
    table = weights.take("lm_head.weight", (files.target.num_rows, model.d_model))
    model.output_layer.kernel.assign(np.transpose(files.target.in_our_order(table)))


def _check_positions(weights, name, model, config):
    """Takes a table of positions, which must be the sinusoids that are computed here."""
    if name not in weights:
        return
    num_positions = config.size("max_position_embeddings")
    table = weights.take(name, (num_positions, model.d_model))
    expected = sinusoidal_encoding(np.arange(num_positions), model.d_model, "concatenated")
    if not np.allclose(table, ops.convert_to_numpy(expected), atol=2e-3):  # may be float16
        raise InputError(
            f"Expected {name} to hold sines and cosines, as all of Marian's models. "
            "Received: other numbers."
        )
