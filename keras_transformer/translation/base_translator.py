"""What all translators have in common: how they are called, whatever searches for them."""

import abc
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError
from keras_transformer.files.text import without_surrogates
from keras_transformer.types import Texts

if TYPE_CHECKING:
    from keras_transformer.translation.explanation import Explanation
    from keras_transformer.translation.terminology import Terminology

Terms: TypeAlias = "Terminology | Mapping[str, str | Sequence[str]]"


class Translation(NamedTuple):
    """One translation of a text."""

    text: str
    score: float
    """Summed log-probability, including the end token, over the length penalty; 0 for a blank text.
    """
    truncated: bool
    """Whether the source was cut at `max_source_length` or the translation stopped at its limit."""


class BaseTranslator(abc.ABC):
    """A translator of texts: `Translator` of a model, and those of exports.

    Attributes:
        decoding: the `DecodingConfig` of the search.
        n_best: maximum number of translations of a text.
    """

    decoding: DecodingConfig
    n_best: int
    can_be_steered = False
    """Whether `translate` takes prefixes and terms, and there is an `explain`: not for the export
    of another library."""

    @overload
    def __call__(self, texts: str) -> str: ...

    @overload
    def __call__(self, texts: Texts) -> list[str]: ...

    def __call__(self, texts: str | Texts) -> str | list[str]:
        """Returns the best translation of each text: list of str, or str for a str."""
        if isinstance(texts, str):
            return self([texts])[0]
        return [best.text for (best,) in self.translate(texts)]

    def translate(
        self,
        texts: Texts,
        n_best: int = 1,
        prefixes: str | Iterable[str] | None = None,
        terms: "Terms | None" = None,
    ) -> list[list[Translation]]:
        """Returns for each text the list of its best `Translation`s, the best first.

        Args:
            texts: list of str, or another iterable of them.
            n_best: maximum length of a list, at most the attribute `n_best`. Its texts differ: of
                hypotheses with the same text, only the best is listed.
            prefixes: what the translations begin with: a str for all texts, or one for each text,
                "" for nothing. White space at the end ends the last word; otherwise the word may go
                on, as "Hu" does in "Hund". Scores are of the tokens after the whole words of a
                prefix. A text that is copied, such as a blank one, has no prefix.
            terms: `Terminology`, or a dict as for its constructor: what translations say for terms
                of the source. `Terminology.not_met` tells what a translation lacks, because it
                reached its limit. A SavedModel translates so with n_best=1; the export of another
                library takes neither terms nor prefixes.
        Raises:
            ValueError: n_best below 1 or above its limit, a score that is not finite, prefixes or
                terms that are too long or have unknown characters, or not a prefix for each text.
        """
        (answers,) = self.translate_chunks([texts], n_best, prefixes, terms)
        return answers

    def translate_chunks(
        self,
        chunks: Iterable[Texts],
        n_best: int = 1,
        prefixes: str | Iterable[str] | None = None,
        terms: "Terms | None" = None,
        read_ahead: bool = True,
        on_batch: Callable[[float], None] | None = None,
    ) -> Iterator[list[list[Translation]]]:
        """Yields the translations of each chunk, so that memory is bounded for any number of texts.

        Args:
            chunks: iterable of lists of str.
            n_best: see `translate`.
            prefixes: a str for all texts, or an iterable of those of all chunks, see `translate`.
            terms: see `translate`.
            read_ahead: whether the search of a chunk begins before that of the last one has ended,
                so that no core waits: two chunks are in memory. If whoever writes the chunks waits
                for their translations, it must be False.
            on_batch: called with the number of texts of each batch of a chunk that is translated,
                to show how far it is. CTranslate2 translates a chunk at once.
        Returns:
            Iterator of what `translate` returns for each chunk.
        """
        if not 1 <= n_best <= self.n_best:
            raise InputError(
                f"Expected n_best from 1 to {self.n_best}. Received: n_best={n_best}, "
                f"{self._limit_of_n_best()}"
            )
        for name, value in (("prefixes", prefixes), ("terms", terms)):
            if value is not None and not self.can_be_steered:
                raise InputError(
                    f"Expected the search of the library that runs the export. Received: {name}="
                    f"{value!r:.80}. Leave it out, or translate with the run or a SavedModel."
                )
        begin = functools.partial(self._submit, n_best, terms)
        yield from self._in_chunks(begin, chunks, prefixes, read_ahead, on_batch)

    def _in_chunks(self, begin, chunks, prefixes, read_ahead, on_batch):
        """Yields the answers to each chunk.

        Args:
            begin: as `_submit`, without its first argument.
        """
        with self._threads() as submit:
            if submit is not None and on_batch is not None:
                submit = _telling(submit, on_batch)
            begun = (begin(submit, *pair) for pair in _with_prefixes(chunks, prefixes))
            for answers in prefetched(begun) if read_ahead else begun:
                yield answers()

    def explain(self, sources: Texts, targets: Texts) -> list["Explanation"]:
        """Returns what the model says of the words of translations, its own or others.

        The alignment is by the attention to the source, see `explanation.alignment_of`.

        Args:
            sources, targets: lists of str of the same length. Targets are cut at `max_length`
                tokens.
        Returns:
            An `Explanation` for each pair; without words for a source that is copied.
        Raises:
            ValueError: lists of other lengths, or the export of another library.
        """
        return self._explain(*lists_of_pairs(sources, targets))

    def unknown_characters(self, texts: Texts) -> list[str]:
        """Returns the characters of each text that its tokenizer does not know: "" if it knows all.

        A model does not see them, so translations lack them. Those that are written in bytes are
        among them, as a training does not see their bytes.
        """
        texts = list_of_texts(texts)
        alone = sorted(set().union(*texts))
        unknown = set(itertools.compress(alone, self._have_unknown(alone)))
        # of others, such as a combining accent, the tokenizer may know what they are a part of
        found = ["".join(dict.fromkeys(filter(unknown.__contains__, text))) for text in texts]
        rest = iter(self._have_unknown(list(itertools.compress(texts, found))))
        return [characters if characters and next(rest) else "" for characters in found]

    @abc.abstractmethod
    def _have_unknown(self, texts: list[str]) -> Sequence[bool]:
        """Returns whether each text has characters that the tokenizer does not know."""

    @abc.abstractmethod
    def checksum(self) -> str:
        """Returns a text that is the same for translators that translate alike."""

    @abc.abstractmethod
    def _submit(
        self, n_best: int, terms: Any, submit: Any, texts: Texts, prefixes: list[str] | None
    ) -> Callable[[], list[list[Translation]]]:
        """Begins to translate texts; returns a function that waits for the translations.

        Args:
            submit: what the context of `_threads` yields.
            prefixes: one for each text; None: nothing.
        """

    def _explain(self, sources: list[str], targets: list[str]) -> list["Explanation"]:
        raise InputError(
            "Expected a run or a SavedModel to explain translations. Received: the export of "
            "another library. Name the run that it was made from."
        )

    @abc.abstractmethod
    def _limit_of_n_best(self) -> str:
        """Returns where the limit of n_best comes from, and how to raise it, for a message."""

    def _threads(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context that yields the function by which `_submit` starts a thread."""
        return contextlib.nullcontext()


def list_of_texts(texts: Any) -> list[str]:
    """Returns the list of an iterable of texts, str or bytes in UTF-8.

    Raises:
        ValueError: `texts` is one text or no iterable, or an item is no text.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(
            "Expected a list of texts, or another iterable of them. "
            f"Received: {texts!r:.80}. Put a single text in a list."
        )
    texts = list(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise InputError(
                f"Expected strings only. Received: {text!r:.80} as item {i} of the texts. "
                "Leave it out, or replace it by a text, such as an empty one."
            )
    return [without_surrogates(text) for text in texts]


def lists_of_pairs(sources: Texts, targets: Texts) -> tuple[list[str], list[str]]:
    """Returns two lists of texts of the same length; raises `ValueError` for others."""
    sources, targets = list_of_texts(sources), list_of_texts(targets)
    if len(sources) != len(targets):
        raise InputError(
            "Expected a target for each source. Received: "
            f"{len(sources)} sources, {len(targets)} targets."
        )
    return sources, targets


def _with_prefixes(chunks, prefixes):
    """Yields each chunk and the list of its prefixes; None if there are none."""
    if prefixes is None:
        yield from ((texts, None) for texts in chunks)
        return
    if not isinstance(prefixes, Iterable):
        raise InputError(
            f"Expected prefixes: a text, or an iterable of texts. Received: {prefixes!r:.80}. "
            "Leave them out for nothing."
        )
    for_all = isinstance(prefixes, str)
    given = itertools.repeat(prefixes) if for_all else iter(prefixes)
    for texts in chunks:
        texts = list_of_texts(texts)
        some = list_of_texts(itertools.islice(given, len(texts)))
        if len(some) < len(texts):
            raise InputError(
                "Expected a prefix for each text, an empty one for nothing. Received: fewer "
                "prefixes than texts. Add the missing ones."
            )
        yield texts, some
    if not for_all and next(given, None) is not None:
        raise InputError(
            "Expected a prefix for each text, an empty one for nothing. Received: more prefixes "
            "than texts. Leave the others out."
        )


def _telling(submit, on_batch):
    """Returns a `submit` whose results are told by the number of their texts."""

    def begin(search, indices):
        result = submit(search, indices)

        def told():
            found = result()
            on_batch(len(indices))
            return found

        return told

    return begin


def prefetched(items: Iterable[Any]) -> Iterator[Any]:
    """Yields each item when the next one has been made, so that work on that one has begun.

    If the next one cannot be made, the item comes before the error.
    """
    waiting: list[Any] = []
    try:
        for item in items:
            yield from waiting
            waiting = [item]
    except Exception:
        yield from waiting
        raise
    yield from waiting
