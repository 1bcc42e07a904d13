"""`MarianMTModel` of Hugging Face's `transformers`, in the files in which OPUS-MT is published."""

import numpy as np
from keras import ops

from keras_transformer.convert import marian_model
from keras_transformer.convert.tensor_files import INDEX, MODEL, read_pytorch_tensors, read_tensors
from keras_transformer.convert.tokenizer_files import (
    ADDED_TOKENS,
    TOKEN_SETTINGS,
    TOKENIZER_CONFIG,
    read_added_tokens,
)
from keras_transformer.convert.weights import Settings, Weights
from keras_transformer.errors import InputError
from keras_transformer.files.regular import is_named
from keras_transformer.layers import sinusoidal_encoding
from keras_transformer.special_ids import END_ID

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
SPECIAL = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
"""The special tokens where no file names others."""
SEARCH_FILES = "generation_config.json or config.json"

LAYER_NORM_EPSILON = 1e-5  # of PyTorch; config.json has no such setting
MAX_LENGTH = 512  # where the files name none: OPUS-MT's


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
    # as `transformers` does: all from one file, even if it is empty
    has_file = is_named(directory, "generation_config.json")
    search = Settings(generation if has_file else config, SEARCH_FILES)
    settings = _settings(directory, config, tokenizer_config)
    shared = not tokenizer_config.flag("separate_vocabs", False)
    added = read_added_tokens(directory, tokenizer_config, SPECIAL)
    source, target = _vocabularies(directory, config, search, shared, added)
    models = tuple(
        marian_model.read_sentence_piece(directory, f"{s}.spm") for s in ("source", "target")
    )
    decoding = _decoding(config, tokenizer_config, search)
    forbidden = _forbidden(search, target.num_rows)
    special = [*added.named.values(), *added.extra]
    added_tokens = {token: token in special for token in [*added.ids, *special]}
    files = marian_model.Files(settings, source, target, models, added_tokens, decoding)
    _report(config, search, write)
    names = *TOKEN_SETTINGS, *added.named
    marian_model.report_not_applied(tokenizer_config, TOKENIZER_CONFIG, write, names)
    _report_tokens(added, source, write)

    weights, tables = Weights(_tensors(directory), prefix="model."), files.tables(*TABLES)
    shapes = marian_model.block_shapes(settings, NAMES)
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
    config.check(marian_model.known_settings()["config.json"]["expected"])
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
    return marian_model.settings_of(
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


def _vocabularies(directory, config, search, shared, added):
    """Returns the `Vocabulary` of source and target, twice the same if they share it."""
    for name in ("eos_token_id", "decoder_start_token_id"):
        if search.get(name) not in (None, config.get(name)):
            raise InputError(
                f"Expected the same {name} in config.json and generation_config.json. "
                f"Received: {config.get(name)!r} and {search[name]!r}."
            )
    path, num_rows = directory / "vocab.json", config.size("vocab_size")
    ids, special = _read_vocabulary(path, added.ids, added, num_rows)
    source = marian_model.vocabulary(ids, **special, num_rows=num_rows)
    smallest = num_rows
    if not shared:
        path, num_rows = directory / "target_vocab.json", config.size("decoder_vocab_size")
        ids, special = _read_vocabulary(path, {}, added, num_rows)
    for name in ("eos_token_id", "decoder_start_token_id"):
        value = config.get(name)
        if type(value) is not int or not 0 <= value < len(ids):
            raise InputError(
                f"Expected {name} in config.json to be one of the {len(ids):,} ids of {path}. "
                f"Received: {name}={value!r}."
            )
    smallest, pad = min(smallest, num_rows), config.get("pad_token_id", 0)
    if type(pad) is not int or not 0 <= pad < smallest:  # transformers would not load the model
        raise InputError(
            "Expected pad_token_id in config.json to be a row of each embedding table, of which "
            f"the smallest has {smallest:,}. Received: pad_token_id={pad!r}."
        )
    if config["eos_token_id"] != special["end"]:
        raise InputError(
            f"Expected eos_token_id in config.json to be the id of the end token in {path}, "
            f"{special['end']}. Received: eos_token_id={config['eos_token_id']}."
        )
    start = config["decoder_start_token_id"]
    target = marian_model.vocabulary(ids, **special, start=start, num_rows=num_rows)
    return (target, target) if shared else (source, target)


def _read_vocabulary(path, more_ids, added, num_rows):
    """Returns `(ids, special)`: dict from piece to id, dict with the ids of unknown, end and pad.

    Args:
        path: the file.
        more_ids: dict from further tokens to their ids.
        added: `AddedTokens`.
        num_rows: the number of rows of the table; `resize_token_embeddings` makes more than tokens.
    """
    ids = Settings.read(path)
    for token, i in more_ids.items():
        if ids.get(token, i) != i:
            raise InputError(
                f"Expected the ids of {path} in {added.file} too. Received: {token!r} with the id "
                f"{i}, where the vocabulary has {ids[token]!r}. Copy the files of one model."
            )
    ids = {**more_ids, **ids}
    marian_model.check_ids(ids, path)
    names = {"unknown": "unk_token", "end": "eos_token", "pad": "pad_token"}
    special = {ours: ids.get(added.named.get(theirs)) for ours, theirs in names.items()}
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
    if len(ids) > num_rows:
        raise InputError(
            f"Expected a vocabulary of at most {num_rows:,} tokens, as config.json says. "
            f"Received: {path}, which has {len(ids):,} with those of {ADDED_TOKENS}."
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

    def given(name, default):
        value = search.get(name)
        return default if value is None else value

    min_length = given("min_length", 0)
    if search.get("min_new_tokens") is not None:
        min_length = search.size("min_new_tokens") + 1
    return marian_model.search_of(
        SEARCH_FILES,
        beam_size=given("num_beams", 1),
        length_penalty=given("length_penalty", 1.0),
        min_length=min_length,
        no_repeat_ngram=given("no_repeat_ngram_size", 0),
        repetition_penalty=given("repetition_penalty", 1.0),
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


def _report(config, search, write):
    """Writes a line about each setting that changes their answers and is not applied."""
    num_positions = config.size("max_position_embeddings")
    for name in ("max_length", "max_new_tokens"):
        if (search.get(name) or 0) > num_positions:
            write(f"not applied {name}={search[name]}, as there are {num_positions} positions")
    of_search = marian_model.known_settings()["config.json"]["not_applied"]
    of_model = {name: value for name, value in config.items() if name not in of_search}
    marian_model.report_not_applied({**of_model, **search}, "config.json", write)


def _report_tokens(added, source, write):
    """Writes a line about each token that is read from a text in another way."""
    further = [token for name, token in added.named.items() if name not in SPECIAL]
    for token in dict.fromkeys([*further, *added.extra]):
        if token not in source.pieces[END_ID + 1 :]:
            write(f"not applied special token {token!r:.200}, which the vocabulary lacks")
    for token, attributes in added.attributes.items():
        if attributes.get("single_word"):
            write(f"not applied single_word of {token!r:.200}, which is found within words too")


def _tensors(directory):
    has_safetensors = any(is_named(directory, name) for name in (MODEL, INDEX))
    if not has_safetensors and is_named(directory, "pytorch_model.bin"):
        return read_pytorch_tensors(directory / "pytorch_model.bin")
    return read_tensors(directory)


def _copy_tables_and_output(weights, model, files, tables):
    """Copies the embeddings and the output layer; copies of a table must have its numbers."""
    shared, *separate = TABLES
    theirs = marian_model.copy_tables(weights, model, tables)  # of the target
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
