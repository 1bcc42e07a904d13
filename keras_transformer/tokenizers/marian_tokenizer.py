"""SentencePiece with a separate vocabulary, as in Marian and OPUS-MT."""

import base64
import functools
import json
import re
from collections.abc import Iterator, Mapping
from itertools import starmap

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, UNKNOWN_ID
from keras_transformer.tokenizers.patterns import TAG
from keras_transformer.tokenizers.sentence_piece_model import SPACE, processor_of
from keras_transformer.tokenizers.subword_sampling import SubwordSampler
from keras_transformer.tokenizers.tokenizer import Tokenizer
from keras_transformer.types import Self, Texts

ASCII_SPACE = " \t\n\v\f\r"
"""What `tf.strings.strip` removes."""


class MarianTokenizer(Tokenizer):
    """Splits text with a SentencePiece model, and looks the tokens up in a separate vocabulary.

    The vocabulary may contain tokens that the model never produces, such as those of the other
    language. Tokens of the model that the vocabulary lacks become the unknown token. A tag
    `>>deu<<` at the beginning of a text stays one token, and so do added tokens anywhere in it; the
    text between them is split by itself. The SentencePiece model normalizes the text. `decode`
    joins tokens by the rule of SentencePiece, without a model, and omits special tokens, including
    the unknown one.

    Args:
        content: what `serialized` returns; `from_parts` creates a tokenizer from its parts.
    Raises:
        ValueError: `content` is something else, or the SentencePiece model has tokens for bytes.
    """

    SUFFIX = ".marian.json"

    def __init__(self, content: bytes) -> None:
        self._pieces, self._model, self._added = _parts_of(content)
        self._processor = _processor(self._model)
        longest_first = sorted(self._added, key=lambda token: (-len(token), token))
        self._added_pattern = "|".join(map(re.escape, longest_first))
        self._head_pattern = "|".join([*map(re.escape, longest_first), TAG.pattern])
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i > END_ID}
        self._written = tuple(starmap(self._written_piece, enumerate(self._pieces)))

    @classmethod
    def from_parts(
        cls, pieces: Texts, model: bytes, added_tokens: Mapping[str, bool] | None = None
    ) -> Self:
        """Returns the tokenizer of a vocabulary and a SentencePiece model.

        Args:
            pieces: list of str, the tokens in the order of their ids: padding, unknown, start and
                end token, then all others; no token twice.
            model: bytes of a SentencePiece model with any ids.
            added_tokens: dict from tokens among the others that a text is never split within, to
                whether `decode` omits them.
        """
        return cls(_content_of(pieces, model, added_tokens or {}))

    @property
    def pieces(self) -> list[str]:
        return self._pieces

    @functools.cached_property
    def surfaces(self) -> list[bytes]:
        return [written.encode() for written in self._written]

    @property
    def sentence_piece_model(self) -> bytes:
        """The bytes of the SentencePiece model."""
        return self._model

    @property
    def added_tokens(self) -> dict[str, bool]:
        """From the tokens that a text is never split within to whether `decode` omits them."""
        return self._added

    @property
    def knows_a_piece(self) -> bool:
        """Whether the vocabulary has any token of the SentencePiece model."""
        pieces = map(self._processor.id_to_piece, range(self._processor.get_piece_size()))
        return any(piece in self._ids for piece in pieces)

    @property
    def serialized(self) -> bytes:
        return _content_of(self._pieces, self._model, self._added)

    def _tokenize_on_host(self, texts):
        parts = [self._heads_and_rests(text) for text in texts]
        rests = iter(self._processor.encode([r for text in parts for _, r in text], out_type=str))
        known = self._ids
        return [
            [
                i
                for head, _ in text
                for i in (*head, *(known.get(p, UNKNOWN_ID) for p in next(rests)))
            ]
            for text in parts
        ]

    def _detokenize_on_host(self, rows):
        return ["".join(map(self._written.__getitem__, row)).strip(ASCII_SPACE) for row in rows]

    def _in_graph(self):
        from keras_transformer.tokenizers.graph.sentence_piece import MarianGraph

        patterns = self._added_pattern, self._head_pattern
        return MarianGraph.of(self, self._model, self._ids, self._written, *patterns)

    def _written_piece(self, i, piece):
        """Returns what a piece adds to a text, with the space before it."""
        is_control = self._processor.is_control(self._processor.piece_to_id(piece))
        is_omitted = i <= END_ID or is_control or self._added.get(piece, False)
        return "" if is_omitted else piece.replace(SPACE, " ")

    @functools.cached_property
    def _sampler(self):
        """Returns the `SubwordSampler`, and from ids of its model to those of the vocabulary."""
        pieces = map(self._processor.id_to_piece, range(self._processor.get_piece_size()))
        return SubwordSampler(self._processor), [self._ids.get(p, UNKNOWN_ID) for p in pieces]

    def encode_sampled(self, sentences: Texts, sampling: float, seed: int) -> Iterator[list[int]]:
        """As `SentencePieceTokenizer.encode_sampled`; a tag and added tokens stay one token."""
        sampler, ids = self._sampler
        texts = [self._heads_and_rests(sentence) for sentence in sentences]
        rests = ([rest for _, rest in text] for text in texts)
        return (
            [
                i
                for (head, _), row in zip(text, rows, strict=True)
                for i in [*head, *(ids[j] for j in row)]
            ]
            for text, rows in zip(texts, sampler.rows_of_parts(rests, sampling, seed), strict=True)
        )

    def _heads_and_rests(self, text):
        """Returns `([id], rest)` of each part that begins with an added token or a tag.

        The others have `([], part)`.
        """
        parts = re.split(f"({self._added_pattern})", text) if self._added else [text]
        heads = [re.match(self._head_pattern, part, re.DOTALL) for part in parts]
        return [
            ([self._ids.get(head.group(), UNKNOWN_ID)], part[head.end() :]) if head else ([], part)
            for head, part in zip(heads, parts, strict=True)
        ]


def _content_of(pieces, model, added_tokens):
    """Returns the bytes of a saved tokenizer, from the arguments of `from_parts`."""
    content = {"pieces": list(pieces), "model": base64.b64encode(model).decode()}
    if added_tokens:
        content["added_tokens"] = dict(added_tokens)
    return json.dumps(content, ensure_ascii=False, indent=0).encode()


def _parts_of(content):
    """Returns `(pieces, model, added_tokens)` from the bytes of a saved tokenizer."""
    try:
        parts = json.loads(content)
        pieces, model = parts["pieces"], base64.b64decode(parts["model"], validate=True)
        is_vocabulary = all(isinstance(piece, str) for piece in pieces)
        added = dict(parts.get("added_tokens", {}))
    except (ValueError, KeyError, TypeError):
        raise InputError(
            "Expected a vocabulary and a SentencePiece model in JSON. Received: something else."
        ) from None
    texts = pieces[END_ID + 1 :]
    known = set(texts) if is_vocabulary else set()
    if not texts or len(known) < len(texts):
        raise InputError(
            "Expected a vocabulary with four special tokens and others, each once. "
            f"Received: {len(pieces)} tokens, {len(set(map(str, pieces)))} of them different."
        )
    unknown = [token for token in added if not token or token not in known]
    if unknown:
        raise InputError(
            "Expected added tokens that the vocabulary has. "
            f"Received: {', '.join(map(repr, unknown[:5]))}. Add them to the vocabulary."
        )
    return pieces, model, added


def _processor(model):
    """Returns the `SentencePieceProcessor` of a model; refuses tokens that `decode` cannot join."""
    processor = processor_of(model)
    if any(map(processor.is_byte, range(processor.get_piece_size()))):
        raise InputError(
            "Expected a SentencePiece model without tokens for single bytes, which Marian's "
            "vocabularies do not have. Received: one with byte_fallback."
        )
    return processor
