"""The tokenizer in a directory of Hugging Face's, if it is byte-level BPE or WordPiece."""

from keras_transformer.convert.added_tokens import TOKENIZER_CONFIG, read_added_tokens
from keras_transformer.convert.weights import Settings
from keras_transformer.errors import InputError, import_library
from keras_transformer.files.regular import VOCABULARY_BYTES, is_named, read_regular, regular_file

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
