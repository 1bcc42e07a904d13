"""Text with markup: tags and placeholders out of a text, and into its translation.

A model that was not trained on tags and placeholders does not copy them, and nor does it copy a
number or a name that stands for one: a model of Multi30k copied none of 24. So it translates the
text without them, and they are put back by the alignment of the words, as Bergamot does for web
pages (https://github.com/browsermt/bergamot-translator/pull/253).
"""

import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.errors import InputError
from keras_transformer.files.text import iterate_lines
from keras_transformer.translation.entities import ENTITY, Entities, character_of
from keras_transformer.translation.markup_placement import Placement
from keras_transformer.types import Self, StrPath

if TYPE_CHECKING:
    from keras_transformer.translation.explanation import Explanation

WITHIN_URL = r"\{\{[^{}]*\}\}|\{[^{}\s]*\}|\([^\s<>\"()]*\)"
"""Placeholders and round brackets, which stay whole."""
PATTERNS = (
    rf"(?:https?|ftp)://(?:[^\s<>\"&{{}}()]|&amp;|&(?!\w+;|#)|{WITHIN_URL})*"
    rf"(?:[^\s<>\"&{{}}().,;:!?\]'’”»]|{WITHIN_URL})",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # an e-mail address
    r"\{\{[^{}]*\}\}|[$#]?\{[^{}\s]*\}",  # {{ name }}, {0}, {price:.2f}, ${name}
    r"%%|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+0#]*(?:\d+|\*)?(?:\.(?:\d+|\*))?"
    r"(?:hh?|ll?|[zjtL])?[diouxXeEfFgGcrs@]",  # not 5%-discount
)
"""Placeholders that are always known."""

TAG = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[!?][a-z][^<>]*>"
    r"|<(?P<closing>/?)(?P<name>[a-z](?:[\w:.-]*\w)?)(?=\s|/?>)"
    r"(?:\"[^\"]*\"|'[^']*'|[^<>\"'])*>",
    re.DOTALL | re.IGNORECASE,
)

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""Elements of HTML that have no closing tag."""
BREAKS = frozenset(
    "blockquote br caption dd div dl dt figure footer h1 h2 h3 h4 h5 h6 header hr li ol option p"
    " section table tbody td th thead tr ul".split()
)
"""Elements of HTML that separate words even where no space does."""
MAX_DEPTH = 100
"""Maximum elements that stand in each other."""

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts that do not separate words: Thai, Lao, Burmese, Khmer, Chinese and Japanese."""
LETTER = rf"[^\W\d_{UNSPACED}]"
JOINED = r"[\u200c\u200d\ufe0e\ufe0f\u20e3]"  # to the character before, as in a compound emoji

CLOSING_PUNCTUATION = re.compile(r"(?:</[^<>]*>)*[.,;:!?)\]}»”’…]+(?![^\s<])")
OPENING_PUNCTUATION = "([{«„“‘¿¡"


@dataclasses.dataclass
class Part:
    """An element, with what stands in it; or what is copied as a whole, at one place.

    `begin` and `stop` are its place in the source, `start` and `end` in the plain text. Of what is
    copied these two are equal, and `opening` is all of it.
    """

    begin: int
    start: int
    opening: str = ""
    stop: int = 0
    end: int = 0
    closing: str = ""
    parts: "list[Part]" = dataclasses.field(default_factory=list)


class Markup:
    """Knows tags, entities and placeholders in a text.

    Tags are those of HTML and XML, whatever their names are. They must be balanced, except for the
    elements of HTML that are never closed, such as `<br>`, and for `<x/>`. Comments are copied. A
    `<` that begins no tag, as in `a < b`, is text.

    Placeholders are `{0}`, `{name}`, `${name}`, `{{ name }}`, `%s`, `%5.2f`, `%(name)s`, addresses
    of web pages and e-mails, entities without a character of their own, such as `&product;`, and
    what the given patterns match. A tag that one of these matches as a whole is a placeholder too.

    Args:
        patterns: regular expressions of further placeholders.
        tags: whether there are tags, entities and placeholders. If not, all of them are text, and
            only the words of unknown characters are copied, see `parse`.
    Raises:
        ValueError: an invalid pattern.

    Example:
        Markup([r"[A-Z]+-[0-9]+"]).parse("See <b>ABC-12</b>.").plain
    """

    def __init__(self, patterns: Iterable[str] = (), tags: bool = True) -> None:
        self._tags = tags
        self._given = [_compiled(pattern, repr(pattern)) for pattern in patterns]
        self._patterns = [*self._given, *map(re.compile, PATTERNS), ENTITY]

    @classmethod
    def read(cls, path: StrPath) -> Self:
        """Returns the `Markup` with the patterns of a file, one in each line that is not blank.

        Raises:
            ValueError: an invalid pattern; the message names its line.
        """
        lines = enumerate(iterate_lines(path), start=1)
        patterns = [(line, f"{path}, line {number}: {line!r:.200}") for number, line in lines]
        for pattern, place in patterns:
            _compiled(pattern, place)
        return cls(pattern for pattern, _ in patterns if pattern.strip())

    def parse(self, text: str, unknown: str = "", words: bool = True) -> "MarkedText":
        """Returns the parts of a text.

        Args:
            unknown: characters that the model does not know. Entities that stand for them are
                copied.
            words: whether the words in which they are are copied, too. Those that are no letters,
                or of a script without spaces between words, are copied alone.
        Raises:
            ValueError: tags that are not balanced; the message names one.
        """
        patterns = self._patterns if self._tags else []
        if unknown and words:
            patterns = [*patterns, _words_with(unknown)]  # not a part of a placeholder
        return MarkedText(text, patterns, self._given, self._tags, unknown)

    def plain(self, text: str, unknown: str = "", words: bool = True) -> str:
        """Returns a text without what is copied, see `parse`."""
        return self.parse(text, unknown, words).plain


class MarkedText:
    """A text with markup, as `Markup.parse` returns it.

    Attributes:
        source: str, the text.
        plain: str, what is translated: the text without tags and placeholders, with the characters
            that entities stand for.
    """

    def __init__(
        self,
        source: str,
        patterns: Sequence[re.Pattern[str]],
        tag_patterns: Sequence[re.Pattern[str]],
        tags: bool = True,
        unknown: str = "",
    ) -> None:
        self.source, self.plain = source, ""
        self._tags, self._unknown = tags, unknown
        self._entities = Entities()
        self._has_markup = False  # tags or entities
        self._open = [Part(0, 0)]
        begin = 0
        for match in TAG.finditer(source) if tags else ():
            self._add_text(begin, match.start(), patterns)
            self._add_tag(match, any(each.fullmatch(match[0]) for each in tag_patterns))
            begin = match.end()
        self._add_text(begin, len(source), patterns)
        if len(self._open) > 1:
            raise _unbalanced(f"{self._open[-1].opening} that is never closed")
        (self._root,) = self._open
        self._root.stop, self._root.end = len(source), len(self.plain)
        self._merge(self._root)

    def _add_text(self, begin, stop, patterns):
        """Adds what stands between two tags."""
        matches = [
            (match.start(), order, match)
            for order, pattern in enumerate(patterns)
            for match in pattern.finditer(self.source, begin, stop)
            if match[0]
        ]
        for start, _, match in sorted(matches, key=lambda found: found[:2]):
            if start < begin:
                continue  # it overlaps another one
            self._add_characters(self.source[begin:start])
            begin = match.end()
            is_entity = match.re is ENTITY
            self._has_markup |= is_entity
            character = character_of(match[0]) if is_entity else None
            is_space = character is not None and character.isspace()
            if character is None or is_space or not set(character).isdisjoint(self._unknown):
                self._add_copied(match, separates=is_space)
            else:
                self.plain += character
                self._entities.add(character, match[0])
        self._add_characters(self.source[begin:stop])

    def _add_characters(self, text):
        self._entities.add_raw(text)
        self.plain += text

    def _add_copied(self, match, separates=False):
        """Adds what is copied as it is."""
        begin, stop = match.span()
        if separates:
            self._separate()
        elif CLOSING_PUNCTUATION.match(self.source, stop):
            self.plain = self.plain.rstrip()  # "in {0}." without "{0}" is "in."
            shrunk, before = len(self.plain), reversed(self._open[-1].parts)
            for part in (*self._open, *itertools.takewhile(lambda each: each.end > shrunk, before)):
                part.start, part.end = min(part.start, shrunk), min(part.end, shrunk)
        place = len(self.plain)
        self._open[-1].parts.append(Part(begin, place, match[0], stop, place))

    def _separate(self):
        if self.plain and not self.plain[-1].isspace():
            self.plain += " "

    def _add_tag(self, match, is_placeholder):
        name = (match["name"] or "").lower()
        self._has_markup |= not is_placeholder
        if is_placeholder or not name:
            self._add_copied(match)
        elif match["closing"]:
            self._close(match, name)
        elif match[0].endswith("/>") or name in VOID:
            self._add_copied(match, separates=name in BREAKS)
        else:
            if len(self._open) > MAX_DEPTH:
                raise _unbalanced(f"{match[0]} in {MAX_DEPTH} elements that are open")
            if name in BREAKS:
                self._separate()
            part = Part(match.start(), len(self.plain), match[0])
            self._open[-1].parts.append(part)
            self._open.append(part)

    def _close(self, match, name):
        if len(self._open) == 1:
            raise _unbalanced(f"{match[0]} without an opening tag")
        part = self._open.pop()
        if _name_of(part) != name:
            raise _unbalanced(f"{match[0]} where {part.opening} is open")
        part.stop, part.end = match.end(), max(part.start, len(self.plain))
        part.closing = match[0]
        if name in BREAKS:
            self._separate()

    def _merge(self, part):
        """Makes one copied part of neighbours that have no text, in them or between them."""
        merged = []
        for each in part.parts:
            if self.plain[each.start : each.end].strip():
                self._merge(each)
                merged.append(each)
                continue
            each = Part(each.begin, each.start, "", each.stop, each.start)
            if merged and merged[-1].start == merged[-1].end:
                before = merged[-1]
                if not self.plain[before.end : each.start].strip():
                    merged.pop()
                    each.begin, each.start, each.end = before.begin, before.start, before.start
            each.opening = self.source[each.begin : each.stop]
            merged.append(each)
        part.parts = merged

    def restore(self, translation: str, explanation: "Explanation") -> tuple[str, list[str]]:
        """Returns a translation of the plain text with the markup, and what could not be placed.

        - Every tag appears once, byte for byte, and stands in the element in which it stood; only
          the order of neighbours follows the translation. An element encloses consecutive words:
          those that the model writes while it looks at the words of the element, as far as they
          stand together.
        - A placeholder, an element without text, or a comment stands before the word that
          translates the one behind it, or behind the one that translates the one before it: of the
          two, the one that is surer. With white space around it in the source, it has some here.
        - What no word translates is empty at the end of what encloses it, and is listed.
        - A character that the source writes as an entity is written as this entity. `&`, `<` and
          `>` that the source does not write as they are become entities if it has tags or entities,
          and so does everything that would be read as markup.
        - A translation that is a copy has the markup of the source.

        Args:
            translation: str, of `plain`.
            explanation: what `Translator.explain` says of the two.
        Returns:
            `(text, unplaced)`: str, and list of str: opening tags and what is copied as a whole.
        """
        if translation.split() == self.plain.split():
            return self.source.strip(), []
        translation = translation.strip()
        placement = Placement(self.plain, translation, explanation)
        pieces: list[Any] = []
        unplaced: list[str] = []
        placement.place(self._root, (0, len(translation)), pieces, unplaced)
        return self._written(translation, pieces), unplaced

    def _written(self, translation, pieces):
        """Returns a translation with pieces in it.

        Args:
            pieces: list of pairs of a place and what stands there: a str, or a `Part`, which may
                need white space.
        """
        written, done, last = "", 0, ""  # the last character that is not a tag's
        for place, piece in pieces:
            written += self._escaped(translation[done:place])
            last = translation[done:place][-1:] or last
            done = max(done, place)
            if isinstance(piece, str):
                written += piece
                continue
            if html.unescape(piece.opening).isspace():  # instead of the space in the translation
                if translation[done : done + 1].isspace():
                    done += 1
                else:
                    written = written.removesuffix(" ")
                written, last = written + piece.opening, " "
                continue
            before, after = self._spaces_around(piece, last, translation[done : done + 9])
            written += " " * before + piece.opening + " " * after
            last = " " if after else "x"  # which keeps apart as a letter does
        return written + self._escaped(translation[done:])

    def _spaces_around(self, part, before, after):
        """Returns whether white space belongs before and behind what is copied.

        Args:
            before: the character before it in the translation; "" at the beginning.
            after: what comes next there.
        """
        begin, stop, place = part.begin, part.stop, part.start
        source = self.source[begin - 1 : begin], self.plain[place - 1 : place]
        has_before = before not in OPENING_PUNCTUATION and _needs_space(*source, before)
        source = self.source[stop : stop + 1], self.plain[place : place + 1]
        is_closed = CLOSING_PUNCTUATION.match(self._escaped(after))
        return has_before, not is_closed and _needs_space(*source, after[:1])

    def _escaped(self, text):
        return self._entities.escaped(text, self._has_markup) if self._tags else text


def _needs_space(source, plain, neighbour):
    """Returns whether white space belongs between what is copied and its neighbour.

    Args:
        source, plain: the character that stands there in the source and in the plain text.
        neighbour: the one in the translation; "" at its end.
    """
    if neighbour == "" or neighbour.isspace():
        return False
    if source.isspace():
        return True
    if neighbour.isalnum():
        return not (source.isalnum() or plain.isalnum())
    return neighbour != source


def _name_of(part):
    match = TAG.match(part.opening)
    return match["name"].lower() if match else ""


def _words_with(characters):
    """Returns the pattern of words with some of the characters, see `Markup.parse`."""
    some = re.escape(characters)
    others = rf"[^\W\d_{UNSPACED}{some}]"
    word = f"(?<!{LETTER}){others}*(?={LETTER})[{some}]{LETTER}*"
    return re.compile(f"{word}|(?:[{some}]{JOINED}*)+")


def _unbalanced(received):
    return InputError(
        f"Expected balanced tags. Received: {received}. Open and close each tag, or write &lt; "
        "where < begins no tag."
    )


def _compiled(pattern, place):
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(
            f"Expected a regular expression of Python. Received: {place}: {error}. Correct it, or "
            "leave it out."
        ) from None
