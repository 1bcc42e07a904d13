"""The tokenizer in a directory of Hugging Face's, if it is byte-level BPE or WordPiece."""

import json

from keras_transformer.errors import InputError


def read_tokenizer(directory):
    """Returns `(tokenizer, order)`, from tokenizer.json or else vocab.txt.

    Returns:
        For byte-level BPE, a `tokenizers.Tokenizer` and None: its ids are those of the file. For
        WordPiece, a `WordPieceTokenizer` or an `UncasedWordPieceTokenizer`, whose first four ids
        are special tokens, and the list of the ids in the file of its tokens. Without a tokenizer,
        a pair of None.

        Which of the two it is says the normalizer in tokenizer.json, or `do_lower_case` in
        tokenizer_config.json; a vocab.txt without it is uncased, as in `transformers`. Unlike
        there, an unknown character does not make its whole word unknown.
    Raises:
        InputError: a tokenizer of another kind, or one that has no library here.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        path = directory / "vocab.txt"
        if not path.exists():
            return None, None
        settings = _tokenizer_config(directory)
        return _word_piece(path.read_bytes(), path, _is_uncased({"lowercase": True}, settings))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model = content["model"]
        kind, vocabulary = model["type"], model["vocab"]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"Expected a tokenizer of the library tokenizers. Received: {path}, which is none."
        ) from None
    if kind == "WordPiece":
        is_uncased = _is_uncased(_normalizer(content, path), _tokenizer_config(directory))
        vocabulary = "\n".join(sorted(vocabulary, key=vocabulary.get)).encode()
        return _word_piece(vocabulary, path, is_uncased)
    tokenizer = _library().Tokenizer.from_file(str(path))
    if kind != "BPE" or "ByteLevel" not in repr(tokenizer.decoder):
        raise InputError(
            "Expected a tokenizer of the kind byte-level BPE or WordPiece. "
            f"Received: {path}, of the kind {kind}. Move the file away to load the model alone."
        )
    return tokenizer, None


def _tokenizer_config(directory):
    """Returns the settings in tokenizer_config.json, with the names of a normalizer."""
    path = directory / "tokenizer_config.json"
    if not path.exists():
        return {}
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(f"Expected a JSON object. Received: {path}, which is none.") from None
    names = {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    }
    return {ours: content[theirs] for theirs, ours in names.items() if theirs in content}


def _normalizer(content, path):
    """Returns the settings of the normalizer in tokenizer.json."""
    normalizer = content.get("normalizer") or {"type": "BertNormalizer", "lowercase": False}
    if normalizer.get("type") != "BertNormalizer":
        raise InputError(
            "Expected the normalizer of a WordPiece tokenizer to be a BertNormalizer. "
            f"Received: {path}, with {normalizer.get('type')}."
        )
    return normalizer


def _is_uncased(normalizer, settings):
    """Returns whether a tokenizer lowercases; refuses what our tokenizers do not do.

    Args:
        normalizer: dict, the settings of a `BertNormalizer`.
        settings: dict, those of tokenizer_config.json, which replace the former.
    """
    settings = {**normalizer, **settings}
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


def _word_piece(vocabulary, path, is_uncased):
    # they need TensorFlow
    from keras_transformer.tokenizers import UncasedWordPieceTokenizer, WordPieceTokenizer

    file_ids = {
        line.removesuffix("\r"): i for i, line in enumerate(vocabulary.decode().split("\n"))
    }
    tokenizer = (UncasedWordPieceTokenizer if is_uncased else WordPieceTokenizer)(vocabulary)
    missing = [piece for piece in tokenizer.pieces if piece not in file_ids]
    if missing:
        raise InputError(
            "Expected a WordPiece vocabulary with [PAD], [UNK], [CLS] and [SEP]. "
            f"Received: {path}, without {', '.join(missing)}."
        )
    return tokenizer, [file_ids[piece] for piece in tokenizer.pieces]


def _library():
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise InputError(
            "Expected the libraries that conversion needs. Received: no tokenizers. "
            'Install them, in the clone of this package: pip install ".[convert]".'
        ) from None
    return tokenizers
