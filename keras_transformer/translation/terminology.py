"""Terms: what translations must say for words of the source, and what they must not say."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keras_transformer.errors import InputError
from keras_transformer.files.text import iterate_lines
from keras_transformer.special_ids import UNKNOWN_ID
from keras_transformer.types import Self, StrPath

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer

MAX_TOKENS = 32
"""Maximum tokens of a form."""
NOT = "!"


class Terminology:
    """A list of terms of the source, with the forms that they may have in translations.

    Where a text has a term, its translation has one of the forms of the term, at least once, and
    none of those that begin with `!`. Of overlapping terms, the first one counts, and of those that
    begin at the same word the longest. Terms and forms are whole words. A term in lower case stands
    for every case of it; one with a capital letter only for itself. Forms are written as they are.

    Args:
        terms: dict from each term to a form or a list of forms; "" for what no translation may say.
    Raises:
        ValueError: a term without a form, a form that is blank, or one that is also forbidden.

    Example:
        Terminology({"fire truck": ["Feuerwehrauto", "Löschfahrzeug"], "dog": "!Köter"})
    """

    def __init__(self, terms: Mapping[str, str | Sequence[str]]) -> None:
        self._wanted: dict[str, list[str]] = {}
        self._forbidden: dict[str, list[str]] = {}
        for source, forms in terms.items():
            source = _words(source)
            for form in [forms] if isinstance(forms, str) else forms:
                group = self._forbidden if form.strip().startswith(NOT) else self._wanted
                group.setdefault(source, []).append(_words(form.strip().removeprefix(NOT)))
        for source in map(_words, terms):
            self._check(source)
        sources = {*self._wanted, *self._forbidden} - {""}
        ordered = sorted(sources, key=lambda term: (-len(term), term))
        pattern = "|".join(map(_pattern, ordered))  # a group for each would take quadratic time
        self._sources, self._finder = ordered, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)")
        self._by_case: dict[str, list[str]] = {}
        for term in ordered:
            self._by_case.setdefault(term.casefold(), []).append(term)

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Returns the terms of a file: in each line a term, a tab, and its forms between tabs.

        Lines of the same term add up. Blank lines have no meaning.

        Raises:
            ValueError: a line without a tab, no line at all, or what the constructor refuses.
        """
        terms: dict[str, list[str]] = {}
        for number, line in enumerate(iterate_lines(path), start=1):
            if not line.strip():
                continue
            source, *forms = line.rstrip("\r").split("\t")
            if not any(form.strip() for form in forms):
                raise InputError(
                    "Expected a term, a tab, and forms between tabs. Received: "
                    f"{path}, line {number}: {line!r:.200}. Write a form behind a tab."
                )
            terms.setdefault(source, []).extend(form for form in forms if form.strip())
        if not terms:
            raise InputError(
                f"Expected a term in each line. Received: {path}, which has none. Write one."
            )
        return cls(terms)

    @staticmethod
    def of(terms: "Terminology | Mapping[str, str | Sequence[str]]") -> "Terminology":
        """Returns `terms`, or the `Terminology` of a dict."""
        return terms if isinstance(terms, Terminology) else Terminology(terms)

    def _check(self, source):
        """Refuses what cannot be obeyed."""
        wanted, forbidden = (group.get(source, []) for group in (self._wanted, self._forbidden))
        always = self._forbidden.get("", [])
        if not all([*wanted, *forbidden]) or not (wanted or forbidden):
            raise InputError(
                f"Expected forms of each term that are not blank. Received: {source!r:.200} with "
                f"{wanted + forbidden!r:.200}. Write its translation, or ! and what to avoid."
            )
        if source == "" and wanted:
            raise InputError(
                f"Expected a term for each form. Received: {wanted[0]!r:.200} without one. Write ! "
                "before what no translation may say."
            )
        if both := set(wanted) & {*forbidden, *always}:
            raise InputError(
                "Expected forms that are not also forbidden. Received: "
                f"{min(both)!r:.200}, of {source!r:.200}. Leave one of the two out."
            )

    def terms_of(self, text: str) -> list[str]:
        """Returns the terms that a text has, each once, in the order in which they come."""
        matches = self._finder.finditer(text) if self._sources else ()
        return list(dict.fromkeys(self._term_of(match[0]) for match in matches))

    def _term_of(self, found):
        """Returns the term that the finder has found: the first one, in its order, that matches."""
        alike = self._by_case.get(_words(found).casefold(), self._sources)
        return next(term for term in alike if re.fullmatch(_pattern(term), found))

    def cells(self, text: str) -> list[str]:
        """Returns the terms of a text as a SavedModel takes them: of each, forms between tabs."""
        groups = (
            [*self._wanted.get(term, []), *(NOT + form for form in self._forbidden.get(term, []))]
            for term in ("", *self.terms_of(text))
        )
        return ["\t".join(forms) for forms in groups if forms]

    def ids_of_forms(self, tokenizer: "Tokenizer") -> dict[str, list[int]]:
        """Returns the ids of each form.

        Args:
            tokenizer: `Tokenizer` of the target.
        Raises:
            ValueError: a form has more than `MAX_TOKENS` tokens, or unknown characters.
        """
        groups = itertools.chain(self._wanted.values(), self._forbidden.values())
        forms = list(dict.fromkeys(itertools.chain.from_iterable(groups)))
        ids = dict(zip(forms, tokenizer.encode_on_host(forms), strict=True))
        for form, row in ids.items():
            if UNKNOWN_ID in row or not 0 < len(row) <= MAX_TOKENS:
                reason = f"{len(row)} tokens" + " with unknown ones" * (UNKNOWN_ID in row)
                raise InputError(
                    f"Expected forms of at most {MAX_TOKENS} tokens, without characters that the "
                    f"tokenizer of the target does not know. Received: {form!r:.200}, {reason}. "
                    "Shorten it, or leave it out."
                )
        return ids

    def row(
        self, ids: Mapping[str, list[int]], text: str, prefix: str = ""
    ) -> tuple[list[list[list[int]]], list[list[int]]]:
        """Returns the forms of the terms of a text as ids, and those that are forbidden.

        Args:
            ids: what `ids_of_forms` returns.
            prefix: what its translation begins with; a term that stands there is left out.
        """
        terms, forbidden = [], list(self._forbidden.get("", []))
        for term in self.terms_of(text):
            forms = self._wanted.get(term, [])
            if forms and not any(_has(prefix, form) for form in forms):
                terms.append([ids[form] for form in forms])
            forbidden += self._forbidden.get(term, [])
        return terms, [ids[form] for form in forbidden]

    def not_met(self, text: str, translation: str) -> list[str]:
        """Returns what a translation lacks, and "!" with each forbidden form that it has."""
        terms = self.terms_of(text)
        lacking = [
            term
            for term in terms
            if term in self._wanted and not any(_has(translation, f) for f in self._wanted[term])
        ]
        forbidden = [form for term in ["", *terms] for form in self._forbidden.get(term, [])]
        return lacking + [NOT + form for form in forbidden if _has(translation, form)]


def _words(text):
    return " ".join(text.split())


def _pattern(term):
    """Returns the regular expression of a term: any white space, and any case if it has none."""
    pattern = r"\s+".join(map(re.escape, term.split()))
    return f"(?i:{pattern})" if term == term.lower() else pattern


def _has(text, form):
    """Returns whether a form stands in a text as whole words."""
    return re.search(rf"(?<!\w){re.escape(form)}(?!\w)", _words(text)) is not None
