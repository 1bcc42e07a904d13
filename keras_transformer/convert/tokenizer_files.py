"""The tokenizer in a directory of Hugging Face's, if it is byte-level BPE or WordPiece."""

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

WORD_PIECE_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
"""BERT's, which its vocab.txt has and does not mark."""

TOKENIZER_CONFIG = "tokenizer_config.json"
NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""From names in tokenizer_config.json to those of a `BertNormalizer`."""


def read_tokenizer(directory):
    """Returns a `tokenizers.Tokenizer` with the ids of the files; None if there is no tokenizer.

    It is read from tokenizer.json, or merges.txt and vocab.json, or vocab.txt. In a WordPiece
    tokenizer, settings of the normalizer in tokenizer_config.json replace those in tokenizer.json;
    a vocab.txt without them is uncased, as in `transformers`.

    Raises:
        InputError: a tokenizer of another type, or one that is damaged.
    """
    if is_named(directory, "tokenizer.json"):
        tokenizer = _from_json(directory)
    elif is_named(directory, "merges.txt"):
        return _byte_level_bpe(directory)
    elif is_named(directory, "vocab.txt"):
        tokenizer = _word_piece(directory)
    else:
        return None
    if "BertNormalizer" in repr(tokenizer.normalizer):
        settings = Settings.read(directory / TOKENIZER_CONFIG, optional=True)
        try:
            for theirs in settings.keys() & NORMALIZER_SETTINGS:
                setattr(tokenizer.normalizer, NORMALIZER_SETTINGS[theirs], settings[theirs])
        except (TypeError, AttributeError) as error:  # AttributeError: one in a sequence
            raise InputError(
                f"Expected {', '.join(NORMALIZER_SETTINGS)} to be true or false. "
                f"Received: {directory / TOKENIZER_CONFIG}: {error}."
            ) from None
    return tokenizer


def _from_json(directory):
    """Returns the tokenizer of tokenizer.json."""
    library = import_library("tokenizers")
    path = directory / "tokenizer.json"
    file = read_regular(directory, path.name, "a tokenizer", VOCABULARY_BYTES)
    try:
        tokenizer = library.Tokenizer.from_buffer(file)
    except Exception as error:  # the library has no class of its own
        raise InputError(
            f"Expected a tokenizer of the library tokenizers. Received: {path}: {error}."
        ) from None
    model_type = type(tokenizer.model).__name__
    is_byte_level = model_type == "BPE" and "ByteLevel" in repr(tokenizer.decoder)
    if not is_byte_level and model_type != "WordPiece":
        raise InputError(
            "Expected a tokenizer of the type byte-level BPE or WordPiece. "
            f"Received: {path}, of the type {model_type}. Move the file away to load the "
            "model alone."
        )
    return tokenizer


def _word_piece(directory):
    """Returns the tokenizer of BERT's own file, vocab.txt."""
    library = import_library("tokenizers")
    path = directory / "vocab.txt"
    try:
        regular_file(directory, path.name, VOCABULARY_BYTES)
        vocabulary = library.models.WordPiece.read_file(str(path))
    except Exception as error:  # the library has no class of its own
        raise InputError(f"Expected a WordPiece vocabulary. Received: {path}: {error}.") from None
    missing = [token for token in WORD_PIECE_SPECIAL[:4] if token not in vocabulary]
    if missing:
        raise InputError(
            "Expected a WordPiece vocabulary with [PAD], [UNK], [CLS] and [SEP]. "
            f"Received: {path}, without {', '.join(missing)}."
        )
    tokenizer = library.BertWordPieceTokenizer(vocabulary)
    tokenizer = library.Tokenizer.from_str(tokenizer.to_str())
    return _with_added_tokens(tokenizer, directory, WORD_PIECE_SPECIAL, path.name)


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
    return _with_added_tokens(tokenizer, directory, [END_OF_TEXT], "vocab.json")


def _with_added_tokens(tokenizer, directory, special, file):
    """Returns the tokenizer with the tokens of added_tokens.json, and its special ones marked.

    Args:
        special: list of the special tokens, if no file in the directory names any.
        file: name of the file of the other tokens.
    """
    settings, names = (
        Settings.read(directory / name, optional=True)
        for name in (TOKENIZER_CONFIG, "special_tokens_map.json")
    )
    special = _special_tokens({**settings, **names}) or special
    added = Settings.read(directory / "added_tokens.json", optional=True)
    for token in sorted(added, key=added.get):
        (tokenizer.add_special_tokens if token in special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token) != added[token]:
            raise InputError(
                f"Expected the ids in added_tokens.json to follow those of {file}. Received: "
                f"{token!r} with the id {added[token]}. Copy the files of one model."
            )
    tokenizer.add_special_tokens([x for x in special if tokenizer.token_to_id(x) is not None])
    return tokenizer


def _special_tokens(settings):
    """Returns the special tokens in tokenizer_config.json or special_tokens_map.json."""
    names = "bos_token", "eos_token", "unk_token", "pad_token", "sep_token"
    names += "cls_token", "mask_token", "additional_special_tokens"
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
