"""A translator of text with markup, around one of plain text."""

import collections
import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import list_of_texts
from keras_transformer.translation.explanation import Explanation
from keras_transformer.translation.markup import Markup
from keras_transformer.types import Texts


class MarkedTranslation(NamedTuple):
    """One translation of a text with markup: a `Translation`, and what it lacks."""

    text: str
    score: float
    truncated: bool
    unplaced: list[str]
    """What is at the end because no word translates what it marks, see `MarkedText.restore`."""


class MarkupTranslator:
    """Translates text with tags, entities and placeholders, see `Markup`.

    Args:
        translator: `Translator`, or that of a SavedModel; it must have an `explain`.
        markup: `Markup`; None: without patterns of one's own.
        copy_unknown: whether words with characters that the tokenizer does not know are copied as
            placeholders are, see `Markup.parse`. The model would translate something else.

    Example:
        MarkupTranslator(translator)(["<b>A dog</b> runs."])
    """

    def __init__(
        self, translator: Any, markup: Markup | None = None, copy_unknown: bool = False
    ) -> None:
        self.translator = translator
        self.markup = Markup() if markup is None else markup
        self.copy_unknown = copy_unknown

    def __call__(self, texts: Texts) -> list[str]:
        """Returns the best translation of each text."""
        return [best.text for (best,) in self.translate(texts)]

    def translate(self, texts: Texts, **options: Any) -> list[list[MarkedTranslation]]:
        """Returns for each text the list of its best translations, the best first.

        Args:
            texts: list of str.
            **options: n_best, prefixes and terms, see `Translator.translate`. Terms and prefixes
                are plain text.
        Raises:
            ValueError: tags that are not balanced; the message names the text, from line 1 on.
        """
        (answers,) = self.translate_chunks([texts], **options)
        return answers

    def translate_chunks(
        self, chunks: Iterable[Texts], *arguments: Any, first: int = 0, **options: Any
    ) -> Iterator[list[list[MarkedTranslation]]]:
        """Yields what `translate` returns for each chunk.

        Args:
            chunks, *arguments, **options: see `Translator.translate_chunks`.
            first: number of texts that came before these chunks.
        """
        return self._restored(
            lambda plain: self.translator.translate_chunks(plain, *arguments, **options),
            chunks,
            first,
        )

    def sample_chunks(
        self, chunks: Iterable[Texts], *arguments: Any, first: int = 0, **options: Any
    ) -> Iterator[list[list[MarkedTranslation]]]:
        """Yields random translations of each text, see `Translator.sample_chunks`."""
        return self._restored(
            lambda plain: self.translator.sample_chunks(plain, *arguments, first=first, **options),
            chunks,
            first,
        )

    def explain(self, sources: Texts, targets: Texts) -> list[Explanation]:
        """Returns what the model says of the words of translations, without what is copied."""
        plain = (
            [
                self.markup.plain(text, unknown, self.copy_unknown)
                for text, unknown in self._with_unknown(list_of_texts(texts))
            ]
            for texts in (sources, targets)
        )
        return self.translator.explain(*plain)

    def _with_unknown(self, texts):
        """Returns pairs of a text and its unknown characters, as far as they may be copied."""
        concerns = [self.copy_unknown or "&" in text for text in texts]  # as words, or as entities
        unknown = iter(self.unknown_characters(list(itertools.compress(texts, concerns))))
        return [(text, next(unknown) if c else "") for text, c in zip(texts, concerns, strict=True)]

    def unknown_characters(self, texts: Texts) -> list[str]:
        """Returns the characters that the tokenizer does not know, without those of the markup."""
        return self.translator.unknown_characters(list(map(self._plain_or_nothing, texts)))

    def _plain_or_nothing(self, text):
        with contextlib.suppress(InputError):  # which is raised where the text is translated
            return self.markup.plain(text)
        return ""

    def checksum(self) -> str:
        """Returns that of the translator."""
        return self.translator.checksum()

    def _restored(self, translate, chunks, first):
        """Yields the translations of each chunk, with the markup of the texts."""
        parsed = collections.deque()
        for answers in translate(self._plain(chunks, first, parsed)):
            marked = [parsed.popleft() for _ in answers]
            pairs = [(m, t) for m, each in zip(marked, answers, strict=True) for t in each]
            sides = [m.plain for m, _ in pairs], [translation.text for _, translation in pairs]
            explained = iter(self.translator.explain(*sides))
            restored = (
                MarkedTranslation(text, t.score, t.truncated, unplaced)
                for m, t in pairs
                for text, unplaced in [m.restore(t.text, next(explained))]
            )
            yield [list(itertools.islice(restored, len(each))) for each in answers]

    def _plain(self, chunks, first, parsed):
        """Yields the plain text of each chunk, and appends what `Markup.parse` returns.

        Where tags are not balanced, the texts before them come before the error.
        """
        number = first
        for texts in chunks:
            plain = []
            try:
                for text, unknown in self._with_unknown(list_of_texts(texts)):
                    number += 1
                    marked = self.markup.parse(text, unknown, self.copy_unknown)
                    parsed.append(marked)
                    plain.append(marked.plain)
            except InputError as error:
                yield plain
                place = f"Received: line {number}: "
                raise InputError(str(error).replace("Received: ", place, 1)) from None
            yield plain
