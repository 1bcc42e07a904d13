"""SentencePiece models, without TensorFlow: training, and special ids."""

import functools
import io
import itertools
import os
import re

import sentencepiece
from google.protobuf.message import DecodeError

from keras_transformer.errors import InputError
from keras_transformer.files.text import is_blank
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID

try:
    from sentencepiece import sentencepiece_model_pb2
except Exception as error:  # of protobuf, if it is older than this module wants
    raise ImportError(
        f'sentencepiece and protobuf do not fit: pip install "sentencepiece<0.2.3" ({error})'
    ) from error

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece  # type: ignore[attr-defined]
MAX_SENTENCE_BYTES = 2**20
"""Longer lines are skipped. SentencePiece's own, lower limit would silently skip paragraphs."""
MAX_TRAINING_SENTENCES = 2_000_000  # a random sample of a larger corpus is enough
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
NON_JOINER = "\u200c"  # which Persian needs within words; the rules of `nmt_` make it a space
WHITE_SPACE = dict(add_dummy_prefix=True, escape_whitespaces=True, remove_extra_whitespaces=True)
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")  # their names in a model trained here
SPACE = "\u2581"  # what SentencePiece writes for a space
NUM_TRAINING_THREADS = 4  # fixed: the sums of unigram training depend on how they are split


def processor_of(model, file=""):
    """Returns the `SentencePieceProcessor` of the bytes of a model.

    Args:
        file: where they come from, for the message.
    Raises:
        ValueError: `model` is not a SentencePiece model.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except Exception as error:  # the library has no class of its own
        where = f"{file}: " if file else ""
        raise InputError(f"Expected a SentencePiece model. Received: {where}{error}") from None
    return processor


def _normalization(name):
    """Returns the trainer's argument for a name in `NORMALIZATIONS`, or for a file of rules."""
    if name in NORMALIZATIONS and not name.startswith("nmt_"):
        return {"normalization_rule_name": name}
    sentencepiece.set_min_log_level(2)
    if name in NORMALIZATIONS:
        return {"normalizer": _nmt_normalizer(name)}
    try:
        if not os.path.isfile(name):  # the library would wait for the writer of a pipe
            raise OSError("no such file")
        rules = sentencepiece.SentencePieceNormalizer(rule_tsv=name).Decompile()
    except Exception as error:  # the library has no class of its own
        raise InputError(
            f"Expected a normalization among {', '.join(NORMALIZATIONS)}, or a file of rules in "
            "SentencePiece's TSV format. Received: "
            f"normalization={name!r}: {' '.join(str(error).split())}."
        ) from None
    return {"normalizer": sentencepiece.SentencePieceNormalizer(norm_map=rules, **WHITE_SPACE)}


@functools.cache
def _nmt_normalizer(name):
    """Returns the `SentencePieceNormalizer` of a name, without its rules for `NON_JOINER`."""
    rules = sentencepiece.SentencePieceNormalizer(rule_name=name).Decompile()
    kept = [(source, target) for source, target in rules if NON_JOINER not in source]
    return sentencepiece.SentencePieceNormalizer(norm_map=kept, **WHITE_SPACE)


def trained_model(
    sentences, vocab_size, model_type, seed, user_symbols, normalization, byte_fallback
):
    """Returns the bytes of a model; `SentencePieceTokenizer.train` has these arguments."""
    if model_type not in ("bpe", "unigram"):
        raise InputError(f"Expected 'bpe' or 'unigram'. Received: model_type={model_type!r}")
    user_symbols, rules = _checked_symbols(user_symbols), _normalization(normalization)
    sentences = (sentence for sentence in sentences if not is_blank(sentence))
    first = next(sentences, None)
    if first is None:
        raise InputError("Expected sentences to learn a vocabulary from. Received: no text at all.")
    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain([first], sentences),
            model_writer=model,
            model_type=model_type,
            vocab_size=vocab_size,
            character_coverage=1.0,
            **rules,
            pad_id=PAD_ID,
            unk_id=UNKNOWN_ID,
            bos_id=START_ID,
            eos_id=END_ID,
            user_defined_symbols=user_symbols,
            byte_fallback=byte_fallback,
            input_sentence_size=MAX_TRAINING_SENTENCES,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=NUM_TRAINING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise InputError(_vocab_size_message(vocab_size, str(error))) from None
    return model.getvalue()


def _checked_symbols(symbols):
    """Returns a list; refuses symbols that SentencePiece would refuse or misread."""
    if isinstance(symbols, str):  # each of its letters would become a symbol
        raise InputError(
            "Expected a list of user symbols. "
            f"Received: user_symbols={symbols!r}. Put it in a list."
        )
    symbols = list(symbols)
    are_words = all(symbol and symbol.split() == [symbol] for symbol in symbols)
    has_space = any(SPACE in symbol for symbol in symbols)
    is_known = len({*symbols, *SPECIAL_PIECES}) < len(symbols) + len(SPECIAL_PIECES)
    if not are_words or has_space or is_known:
        raise InputError(
            f"Expected user symbols without white space or {SPACE}, each given once, other than "
            f"{', '.join(SPECIAL_PIECES)}. Received: user_symbols={symbols}. Choose others."
        )
    return symbols


def _vocab_size_message(vocab_size, reason):
    """Returns a one-line explanation of the trainer's error."""
    if most := re.search(r"Vocabulary size too high.*<= (\d+)", reason):
        return (
            f"Vocabulary too large for the corpus: expected at most {most[1]} tokens. "
            f"Received: vocab_size={vocab_size}. Lower it, or train on more text."
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
        return (
            f"Vocabulary too small for the corpus: expected at least {least[1]} tokens, one for "
            f"each character and the special ones. Received: vocab_size={vocab_size}. Raise it."
        )
    return (
        f"SentencePiece could not learn a vocabulary. Received: vocab_size={vocab_size}: {reason}"
    )


def parsed(model):
    """Returns the `ModelProto` of the bytes of a model."""
    try:
        return sentencepiece_model_pb2.ModelProto.FromString(model)
    except DecodeError as error:
        raise InputError("Expected a SentencePiece model. Received: other bytes.") from error


def with_symbols(model, symbols):
    """Returns `model` with user symbols after its other tokens, which keep their ids.

    Args:
        model: bytes of a SentencePiece model.
        symbols: list of str.
    Raises:
        ValueError: a symbol is a token already, or no word.
    """
    proto = parsed(model)
    if taken := {piece.piece for piece in proto.pieces}.intersection(symbols):
        raise InputError(
            "Expected new symbols that are no tokens yet. "
            f"Received: {', '.join(sorted(taken))}. Choose others."
        )
    for symbol in _checked_symbols(symbols):
        proto.pieces.append(Piece(piece=symbol, score=0.0, type=Piece.USER_DEFINED))
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return proto.SerializeToString()


def with_our_special_ids(model):
    """Returns `model` with padding, unknown, start and end token at the ids 0 to 3.

    The other tokens keep their order, scores and types, so text is split as before. A special
    token that the model lacks (many have no padding) is added.

    Args:
        model: bytes of a SentencePiece model.
    Raises:
        ValueError: `model` is not a SentencePiece model.
    """
    proto = parsed(model)
    if not any(piece.type == Piece.UNKNOWN for piece in proto.pieces):
        raise InputError(
            "Expected a SentencePiece model. Received: a model without an unknown token."
        )
    spec = proto.trainer_spec
    special = {
        place: Piece(piece=name, score=0.0, type=Piece.CONTROL)
        for place, name in (
            (PAD_ID, spec.pad_piece),
            (START_ID, spec.bos_piece),
            (END_ID, spec.eos_piece),
        )
    }
    special[UNKNOWN_ID] = next(piece for piece in proto.pieces if piece.type == Piece.UNKNOWN)
    names = {piece.piece for piece in special.values()}
    pieces = [special[place] for place in sorted(special)]
    pieces += [piece for piece in proto.pieces if piece.piece not in names]

    result = sentencepiece_model_pb2.ModelProto()
    result.CopyFrom(proto)
    del result.pieces[:]
    result.pieces.extend(pieces)
    spec = result.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD_ID, UNKNOWN_ID, START_ID, END_ID
    spec.vocab_size = len(pieces)
    return result.SerializeToString()
