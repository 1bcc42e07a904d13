"""The tokenizer in a directory of Hugging Face's, if it is byte-level BPE or WordPiece.

And the tokens that the files of `transformers` add to any vocabulary, or name as special ones.
"""

import re
from typing import Any, NamedTuple

from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError, import_library
from keras_transformer.files.regular import VOCABULARY_BYTES, is_named, read_regular, regular_file

TOKENIZER_CONFIG = "tokenizer_config.json"
ADDED_TOKENS = "added_tokens.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
DECODER = "added_tokens_decoder"

TOKEN_SETTINGS = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token".split()
"""The settings that name a special token, in the order in which `transformers` adds them."""
FLAGS = "single_word lstrip rstrip normalized special".split()

BYTE_LEVEL_SPECIAL = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
"""GPT-2's special token, which its vocab.json has and does not mark."""

WORD_PIECE_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""BERT's, which its vocab.txt has and does not mark."""

NORMALIZER_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""From names in tokenizer_config.json to those of a `BertNormalizer`."""


def read_tokenizer(directory):
    """Returns a `tokenizers.Tokenizer` with the ids of the files; None if there is no tokenizer.

    It is read from tokenizer.json, or merges.txt and vocab.json, or vocab.txt, and the settings in
    tokenizer_config.json replace those in tokenizer.json. A vocab.txt without settings is uncased.
    Tokens that are added or named beside the vocabulary are those of `transformers`, with one
    exception: a default special token that the vocabulary lacks has no embedding, and is not added.

    Raises:
        InputError: a tokenizer of another type, or one that is damaged.
    """
    settings = Settings.read(directory / TOKENIZER_CONFIG, optional=True)
    is_json = is_named(directory, "tokenizer.json")
    if is_json:
        tokenizer = _from_json(directory)
    elif is_named(directory, "merges.txt"):
        tokenizer = _byte_level_bpe(directory)
    elif is_named(directory, "vocab.txt"):
        tokenizer = _word_piece(directory, settings)
    else:
        return None
    is_word_piece = type(tokenizer.model).__name__ == "WordPiece"
    special = WORD_PIECE_SPECIAL if is_word_piece else BYTE_LEVEL_SPECIAL
    added = read_added_tokens(directory, settings, special)
    _add_tokens(tokenizer, added)
    tokenizer.encode_special_tokens = settings.flag("split_special_tokens", False)
    if not is_word_piece:
        _set_prefix_space(tokenizer, settings)
        if not is_json:  # which has them itself
            _add_ends(tokenizer, settings, added.named)
    elif "BertNormalizer" in repr(tokenizer.normalizer):
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


def _word_piece(directory, settings):
    """Returns the tokenizer of BERT's own file, vocab.txt."""
    library = import_library("tokenizers")
    path = directory / "vocab.txt"
    try:
        regular_file(directory, path.name, VOCABULARY_BYTES)
        vocabulary = library.models.WordPiece.read_file(str(path))
    except Exception as error:  # the library has no class of its own
        raise InputError(f"Expected a WordPiece vocabulary. Received: {path}: {error}.") from None
    named = read_added_tokens(directory, settings, WORD_PIECE_SPECIAL).named
    special = {name: named[name] for name in WORD_PIECE_SPECIAL if name in named}
    *needed, _ = (named.get(name, name) for name in WORD_PIECE_SPECIAL)  # all but the mask
    missing = [token for token in needed if token not in vocabulary]
    if missing:
        raise InputError(
            f"Expected a WordPiece vocabulary with {', '.join(needed)}. "
            f"Received: {path}, without {', '.join(missing)}."
        )
    tokenizer = library.BertWordPieceTokenizer(vocabulary, **special)
    return library.Tokenizer.from_str(tokenizer.to_str())


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
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _set_prefix_space(tokenizer, settings):
    """Sets whether a space is added before a text, if tokenizer_config.json says it."""
    library, splitter = import_library("tokenizers"), tokenizer.pre_tokenizer
    if "add_prefix_space" in settings and isinstance(splitter, library.pre_tokenizers.ByteLevel):
        splitter.add_prefix_space = settings.flag("add_prefix_space", False)


def _add_ends(tokenizer, settings, named):
    """Lets GPT-2's tokenizer add the tokens around a text that tokenizer_config.json asks for."""
    first, last = (
        [named[name]] if settings.flag(f"add_{name}", False) and name in named else []
        for name in ("bos_token", "eos_token")
    )
    ids = {token: tokenizer.token_to_id(token) for token in first + last}
    if None in ids.values():
        raise InputError(
            "Expected the tokens of add_bos_token and add_eos_token in the vocabulary. Received: "
            f"{', '.join(ids)} in {TOKENIZER_CONFIG}. Copy the files of one model."
        )
    single, second = ([*first, f"${side}", *last] for side in "AB")
    processors = import_library("tokenizers").processors
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single,
        pair=[*single, *(f"{part}:1" for part in second)],
        special_tokens=list(ids.items()),
    )


def _add_tokens(tokenizer, added):
    """Adds the tokens that the files list and name, and marks the special ones."""
    new = import_library("tokenizers").AddedToken
    for token, i in sorted(added.ids.items(), key=lambda item: item[1]):
        tokenizer.add_tokens([new(**added.attributes[token])])
        if tokenizer.token_to_id(token) != i:
            raise InputError(
                f"Expected the ids in {added.file} to be those of the vocabulary, or to follow "
                f"them. Received: {token!r} with the id {i}. Copy the files of one model."
            )
    defaults = {*BYTE_LEVEL_SPECIAL.values(), *WORD_PIECE_SPECIAL.values()}
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in [*added.named.values(), *added.extra]:
        has_id = token not in defaults or tokenizer.token_to_id(token) is not None
        if has_id and token not in known:
            tokenizer.add_tokens([new(**added.attributes[token])])


class AddedTokens(NamedTuple):
    """What the files of a tokenizer say beside its vocabulary."""

    ids: dict[str, int]
    """The id of each token that they list: new ones, and some that the vocabulary has too."""
    named: dict[str, str]
    """The token of each setting such as `eos_token`; a setting that is null is left out."""
    extra: list[str]
    """Special tokens without such a setting."""
    attributes: dict[str, dict[str, Any]]
    """The arguments of `tokenizers.AddedToken` for each of these tokens."""
    file: str
    """Where the ids come from, for messages."""


def read_added_tokens(directory, settings, defaults):
    """Returns the `AddedTokens` of a directory, read as `transformers` reads them.

    added_tokens.json and special_tokens_map.json count only if tokenizer_config.json has no
    added_tokens_decoder. They must be readable all the same.

    Args:
        directory: `pathlib.Path`.
        settings: `Settings` of tokenizer_config.json.
        defaults: dict from settings such as `eos_token` to their tokens, if no file names one.
    Raises:
        InputError: a file that cannot be read, or that has something else than tokens and ids.
    """
    special_map, by_token = (
        Settings.read(directory / name, optional=True)
        for name in (SPECIAL_TOKENS_MAP, ADDED_TOKENS)
    )
    has_decoder = DECODER in settings
    settings = {**defaults, **settings, **({} if has_decoder else special_map)}
    others = [
        name
        for name, value in settings.items()
        if name.endswith("_token") and name not in TOKEN_SETTINGS and isinstance(value, str | dict)
    ]
    named = {
        name: _token(settings[name], name)
        for name in [*TOKEN_SETTINGS, *others]
        if settings.get(name)
    }
    extra = settings.get("extra_special_tokens") or {}
    if isinstance(extra, dict):
        named.update({name: _token(token, name) for name, token in extra.items()})
        extra = settings.get("additional_special_tokens") or []
    if not isinstance(extra, list):
        raise _no_token(extra, "extra_special_tokens")
    extra = [_token(token, "extra_special_tokens") for token in extra]
    special = {token["content"]: {**token, "special": True} for token in [*named.values(), *extra]}

    if has_decoder:
        file, listed = f"{DECODER} of {TOKENIZER_CONFIG}", settings[DECODER]
        if not isinstance(listed, dict):
            raise _no_token(listed, DECODER)
        rows = [(_token(token, DECODER), i) for i, token in listed.items()]
    else:
        file = ADDED_TOKENS
        rows = [
            ({"content": token, "normalized": token not in special}, i)
            for token, i in by_token.items()
        ]
    ids = {token["content"]: _id(i, token["content"], file) for token, i in rows}
    attributes = special | {token["content"]: token for token, _ in rows}
    for token in special:
        attributes[token] = {**attributes[token], "special": True}
    extra = [token["content"] for token in extra]
    named = {name: token["content"] for name, token in named.items()}
    return AddedTokens(ids, named, extra, attributes, file)


def _token(value, name):
    """Returns the arguments of `tokenizers.AddedToken` in a value: text, or a dict with it."""
    token = {"content": value} if isinstance(value, str) else value
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        raise _no_token(value, name)
    flags = {name: token[name] for name in FLAGS if name in token}
    if not token["content"] or not all(isinstance(flag, bool) for flag in flags.values()):
        raise _no_token(value, name)
    return {"content": token["content"], **flags}


def _no_token(value, name):
    return InputError(
        f"Expected {name} in {TOKENIZER_CONFIG} or {SPECIAL_TOKENS_MAP} to have text, or objects "
        f"with the text as content. Received: {name}={value!r:.200}. Copy the files again."
    )


def _id(value, token, file):
    """Returns an id, which is text where it is a key of JSON."""
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InputError(
            f"Expected the id of each token in {file}. Received: {value!r:.200} for "
            f"{token!r:.200}. Copy the files again."
        )
    return int(text)
