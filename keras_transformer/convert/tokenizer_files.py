"""The tokenizer in a directory of Hugging Face's, if it is byte-level BPE or WordPiece."""

import json

from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError, import_library
from keras_transformer.files.regular import (
    VOCABULARY_BYTES,
    is_named,
    read_regular,
    regular_file,
)

END_OF_TEXT = "<|endoftext|>"
"""GPT-2's special token, which its vocab.json has and does not mark."""

TOKENIZER_CONFIG = "tokenizer_config.json"
NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""From names in tokenizer_config.json to those of a normalizer."""


def read_tokenizer(directory):
    """Returns `(tokenizer, order)`, from tokenizer.json, or vocab.txt, or merges.txt.

    Returns:
        For byte-level BPE, a `tokenizers.Tokenizer` and None: its ids are those of the file. For
        WordPiece, a `WordPieceTokenizer` or an `UncasedWordPieceTokenizer`, whose first four ids
        are special tokens, and the list of the ids in the file of its tokens. Without a tokenizer,
        a pair of None.

        The normalizer in tokenizer.json says which of the two it is, or `do_lower_case` in
        tokenizer_config.json; a vocab.txt without it is uncased, as in `transformers`.
        `WordPieceTokenizer` names the differences from there.
    Raises:
        InputError: a tokenizer of another type, or one that has no library here.
    """
    path = directory / "tokenizer.json"
    if not is_named(directory, path.name):
        if is_named(directory, "merges.txt"):
            return _byte_level_bpe(directory), None
        path = directory / "vocab.txt"
        if not is_named(directory, path.name):
            return None, None
        is_uncased = _is_uncased({"lowercase": True}, directory)
        return _word_piece(_lines(path), path, is_uncased)
    file = read_regular(directory, path.name, "a tokenizer", VOCABULARY_BYTES)
    try:
        content = json.loads(file.decode("utf-8"))
        model = content["model"]
        model_type = model["type"]
        is_damaged = model_type == "WordPiece" and not _is_vocabulary(model["vocab"])
    except (ValueError, KeyError, TypeError, RecursionError):
        is_damaged = True
    if is_damaged:
        raise InputError(
            f"Expected a tokenizer of the library tokenizers. Received: {path}, which is none."
        )
    if model_type == "WordPiece":
        is_uncased = _is_uncased(_checked_normalizer(content, path), directory)
        return _word_piece(model["vocab"], path, is_uncased)
    library = import_library("tokenizers")
    try:
        tokenizer = library.Tokenizer.from_buffer(file)
    except Exception as error:  # the library has no class of its own
        raise InputError(
            f"Expected a tokenizer of the library tokenizers. Received: {path}: {error}."
        ) from None
    if model_type != "BPE" or "ByteLevel" not in repr(tokenizer.decoder):
        raise InputError(
            "Expected a tokenizer of the type byte-level BPE or WordPiece. "
            f"Received: {path}, of the type {model_type}. Move the file away to load the "
            "model alone."
        )
    return tokenizer, None


def _is_vocabulary(vocabulary):
    """Returns whether it is a dict from tokens to ids, each another."""
    ids = set(vocabulary.values()) if isinstance(vocabulary, dict) else None
    return bool(ids) and all(type(i) is int and i >= 0 for i in ids) and len(ids) == len(vocabulary)


def _byte_level_bpe(directory):
    """Returns the tokenizer of GPT-2's own files: vocab.json, merges.txt and those beside them."""
    library = import_library("tokenizers")
    files = [str(directory / name) for name in ("vocab.json", "merges.txt")]
    try:
        for name in ("vocab.json", "merges.txt"):
            regular_file(directory, name, VOCABULARY_BYTES)
        tokenizer = library.Tokenizer(library.models.BPE.from_file(*files))
    except Exception as error:  # the library has no class of its own
        raise InputError(
            f"Expected the files of a byte-level BPE. Received: {', '.join(files)}: {error}."
        ) from None
    settings = Settings.read(directory / TOKENIZER_CONFIG, optional=True)
    add_prefix_space = settings.flag("add_prefix_space", False)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = library.decoders.ByteLevel()
    special_tokens = Settings.read(directory / "special_tokens_map.json", optional=True)
    special = _special_tokens({**settings, **special_tokens}) or [END_OF_TEXT]
    added = Settings.read(directory / "added_tokens.json", optional=True)
    for token in sorted(added, key=added.get):
        (tokenizer.add_special_tokens if token in special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token) != added[token]:
            raise InputError(
                f"Expected the ids in added_tokens.json to follow those of {files[0]}. Received: "
                f"{token!r} with the id {added[token]}. Copy the files of one model."
            )
    tokenizer.add_special_tokens([x for x in special if tokenizer.token_to_id(x) is not None])
    return tokenizer


def _special_tokens(settings):
    """Returns the special tokens in tokenizer_config.json or special_tokens_map.json."""
    names = "bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens"
    tokens = []
    for name in names:
        value = settings.get(name) or []
        for token in value if isinstance(value, list) else [value]:
            tokens.append(token.get("content") if isinstance(token, dict) else token)
    if not all(isinstance(token, str) for token in tokens):
        raise InputError(
            f"Expected tokens in {TOKENIZER_CONFIG} and special_tokens_map.json. "
            f"Received: {tokens!r}."
        )
    return list(dict.fromkeys(tokens))


def _lines(path):
    """Returns a dict from the lines of vocab.txt to their numbers, which are the ids."""
    content = read_regular(path.parent, path.name, "a vocabulary", VOCABULARY_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Expected UTF-8. Received: {path}: {error}.") from None
    lines = text.removesuffix("\n").split("\n")
    return {line.removesuffix("\r"): i for i, line in enumerate(lines)}


def _checked_normalizer(content, path):
    """Returns the settings of the normalizer in tokenizer.json; refuses what we cannot honour."""
    model = content["model"]
    normalizer, splitter = (content.get(name) or {} for name in ("normalizer", "pre_tokenizer"))
    vocabulary = model.get("vocab")
    outside = [
        token["content"]
        for token in content.get("added_tokens") or ()
        if token["content"] not in vocabulary and not token.get("special")
    ]
    for what, expected, received in (
        ("normalizer", "BertNormalizer", normalizer.get("type")),
        ("pre-tokenizer", "BertPreTokenizer", splitter.get("type")),
        ("continuing_subword_prefix", "##", model.get("continuing_subword_prefix", "##")),
        ("max_input_chars_per_word", 100, model.get("max_input_chars_per_word", 100)),
        ("list of tokens outside of its vocabulary", [], outside),
    ):
        if received != expected:
            raise InputError(
                f"Expected the {what} of a WordPiece tokenizer to be {expected!r}, the only one "
                f"that can be converted. Received: {path}, with {received!r}. Move the file away "
                "to load the model alone."
            )
    return normalizer


def _is_uncased(normalizer, directory):
    """Returns whether a tokenizer lowercases; refuses what our tokenizers do not do.

    Args:
        normalizer: dict, the settings of a `BertNormalizer`. Those of tokenizer_config.json in the
            directory replace them.
    """
    settings, config = dict(normalizer), Settings.read(directory / TOKENIZER_CONFIG, optional=True)
    for theirs, ours in NORMALIZER_SETTINGS.items():
        if theirs in config:
            settings[ours] = config[theirs]
    lowercase = settings.get("lowercase", True)
    if settings.get("strip_accents") not in (None, lowercase):
        raise InputError(
            "Expected a tokenizer that strips accents if it lowercases, and only then. "
            f"Received: lowercase={lowercase}, strip_accents={settings['strip_accents']}."
        )
    if not settings.get("handle_chinese_chars", True):
        raise InputError(
            "Expected a tokenizer that splits Chinese characters. Received: "
            "handle_chinese_chars=False."
        )
    return lowercase


def _word_piece(file_ids, path, is_uncased):
    """Returns the tokenizer and the ids in the file of its tokens.

    Args:
        file_ids: dict from token to id.
    """
    # they need TensorFlow
    from keras_transformer.tokenizers import UncasedWordPieceTokenizer, WordPieceTokenizer

    tokenizer_class = UncasedWordPieceTokenizer if is_uncased else WordPieceTokenizer
    tokenizer = tokenizer_class("\n".join(sorted(file_ids, key=file_ids.get)).encode())
    missing = [piece for piece in tokenizer.pieces if piece not in file_ids]
    if missing:
        raise InputError(
            "Expected a WordPiece vocabulary with [PAD], [UNK], [CLS] and [SEP]. "
            f"Received: {path}, without {', '.join(missing)}."
        )
    return tokenizer, [file_ids[piece] for piece in tokenizer.pieces]
