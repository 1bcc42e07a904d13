"""Tokens that the files of `transformers` add to a vocabulary, or name as special ones."""

import re
from typing import Any, NamedTuple

from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError

TOKENIZER_CONFIG = "tokenizer_config.json"
ADDED_TOKENS = "added_tokens.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
DECODER = "added_tokens_decoder"

TOKEN_SETTINGS = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token".split()
"""The settings that name a special token, in the order in which `transformers` adds them."""
FLAGS = "single_word lstrip rstrip normalized special".split()


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
