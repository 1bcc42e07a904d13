"""What `keras-transformer clean` mends in a sentence pair, and why it leaves one out.

A mender takes a text and returns it mended. A filter takes the two texts of a pair and what is
`Known` of the corpus, and returns whether the pair is left out; its docstring is the reason. Both
have an order: entities may stand for what another mender mends, and cheap filters come first.
"""

import collections
import dataclasses
import functools
import hashlib
import html.entities
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from keras_transformer.errors import import_library
from keras_transformer.files.text import is_blank

TAG = re.compile(r"</?[A-Za-z][^<>]*>")
ENTITY = re.compile(r"&(?:#\w+|[A-Za-z]\w*);")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufffd-\uffff]")
"""Control characters, the replacement character, and code points that are no characters."""
INVISIBLE = re.compile("[\xad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Zero-width characters without the joiners, which Persian, Hindi and emoji are written with."""
SPACES = re.compile("[\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
OTHER_SPACES = re.compile(SPACES.pattern.replace(" ", "").rstrip("+") + "|  ")
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Scripts that put no spaces between words: each of their characters counts as one."""
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+['’]?")
DIGIT = re.compile(r"\d")
AFTERNOON = re.compile(r"(?<!\d)(?:1[3-9]|2[0-3])(?!\d)")

SLACK = 20
"""Characters added to both lengths, as short texts differ more than long ones do."""
MIN_OWN_SCRIPT = 0.5
"""Share of the letters of a side that are in its scripts."""
CLEAR = 0.75
"""Share of unseen pairs whose words must tell which side is the source."""
SURE = 2.0
"""Log-odds from which a text is known to be in the language of one side."""
MIN_PROBABILITY = 0.5
"""Of another language, by the library; less is a guess, as for names and very short texts."""
NEAR = 0.6
"""Jaccard similarity of the word pairs of two texts that share about nine words of ten."""


@dataclasses.dataclass
class Known:
    """What the filters know: what the user says, and what the first pairs show."""

    max_length: int = 1000
    """Maximum characters of a side."""
    max_ratio: float = 3.0
    """Maximum ratio of the lengths of the sides, relative to that of the corpus."""
    languages: Sequence[str] = ()
    """ISO 639-1 codes of the two languages, such as `("en", "de")`."""
    held_out: "HeldOut | None" = None
    """The text that must not be in the training text."""
    scripts: "Sequence[Collection[str]]" = ()
    """The scripts of each side, such as `{"LATIN"}`."""
    usual: "Sequence[Collection[str]]" = ()
    """The characters of each side that are no letters of another script, as far as was seen."""
    ratio: float = 1.0
    """Length of the target in characters, divided by that of the source."""
    odds: dict[str, float] = dataclasses.field(default_factory=dict)
    """Of each word, log(p(word | source side) / p(word | target side)); empty where these do not
    tell the sides apart, as in text of two directions."""
    seen: set[bytes] = dataclasses.field(default_factory=set)
    """The pairs that have been kept, hashed to 8 bytes each."""
    _last: tuple[tuple[str, ...], list[float]] = dataclasses.field(default=((), []), init=False)

    def learn(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Takes the length ratio, the scripts and the words of each side from some pairs."""
        sides = list(zip(*pairs, strict=True)) or [(), ()]
        lengths = [sum(map(len, side)) for side in sides]
        self.ratio = max(1, lengths[1]) / max(1, lengths[0])
        counts = [_scripts("".join(side)) for side in sides]
        self.scripts = [{s for s, n in c.items() if n >= 0.05 * c.total()} for c in counts]
        self.usual = [
            {c for text in side for c in text if _script(c) in (None, *scripts)}
            for side, scripts in zip(sides, self.scripts, strict=True)
        ]
        self.odds = _word_odds(pairs[::2])
        gaps = [first - second for first, second in (self.side_odds(*p) for p in pairs[1::2])]
        right, wrong = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
        self.odds = _word_odds(pairs) if right >= CLEAR * (right + wrong) else {}
        self._last = (), []

    def side_odds(self, *pair: str) -> list[float]:
        """Returns the log-odds of each text of a pair that it is in the language of the source."""
        if self._last[0] != pair:  # two filters ask
            zero = itertools.repeat(0.0)
            self._last = pair, [sum(map(self.odds.get, _words(text), zero)) for text in pair]
        return self._last[1]


# === Menders ===


def entities(text):
    """HTML entities such as &amp; become the characters that they stand for; a line end a space."""
    for _ in range(2):  # &amp;amp; too
        text = ENTITY.sub(_character, text) if "&" in text else text
    return text


def invisible(text):
    """Zero-width characters, soft hyphens and marks of direction are removed."""
    return text if text.isascii() else INVISIBLE.sub("", text)


def unicode(text):
    """Letters and their accents are composed (Unicode's normalization form C)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def spaces(text):
    """White space is one plain space, and none at the ends."""
    return (SPACES.sub(" ", text) if OTHER_SPACES.search(text) else text).strip(" ")


MENDERS: dict[str, Callable[[str], str]] = {
    each.__name__: each for each in (entities, invisible, unicode, spaces)
}


# === Filters ===


def blank(source, target, known):
    """A side shows nothing."""
    return is_blank(source) or is_blank(target)


def control(source, target, known):
    """A side has control characters, or U+FFFD for what could not be decoded."""
    return CONTROL.search(source) is not None or CONTROL.search(target) is not None


def long(source, target, known):
    """A side has more than --max-length characters."""
    return max(len(source), len(target)) > known.max_length


def ratio(source, target, known):
    """One side is more than --max-ratio times as long as the other, for these languages."""
    found = (len(target) + SLACK) / (len(source) * known.ratio + SLACK)
    return max(found, 1 / found) > known.max_ratio


def identical(source, target, known=None):
    """Both sides are the same text, but for case."""
    return source == target or source.casefold() == target.casefold()


def tags(source, target, known):
    """A tag such as <b> stands on one side alone."""
    return ("<" in source or "<" in target) and _tags(source) != _tags(target)


def digits(source, target, known):
    """Each side has digits that the other lacks; zeros and the hours after noon do not count."""
    return all(map(DIGIT.search, (source, target))) and not any(
        _agree(_digits(first), _digits(second))
        for first in (source, _before_noon(source))
        for second in (target, _before_noon(target))
    )


def swapped(source, target, known):
    """The sides are exchanged, by the words of each side of the corpus."""
    first, second = known.side_odds(source, target)
    return first < 0 < second


def untranslated(source, target, known):
    """A side is in the language of the other one, by the words of each side of the corpus."""
    first, second = known.side_odds(source, target)
    return min(first, second) > SURE or max(first, second) < -SURE


def script(source, target, known):
    """Most letters of a side are in another script than those of its language."""
    return any(
        not usual.issuperset(text) and _share(text, scripts) < MIN_OWN_SCRIPT
        for text, usual, scripts in zip((source, target), known.usual, known.scripts, strict=True)
    )


def language(source, target, known):
    """A side is in another language than --languages says, by py3langid."""
    return any(
        found != own and probability > MIN_PROBABILITY
        for (found, probability), own in zip(
            map(_identifier().classify, (source, target)), known.languages, strict=True
        )
    )


def leaked(source, target, known):
    """A side is in the text of --against, or nearly."""
    return source in known.held_out or target in known.held_out


def duplicate(source, target, known):
    """The same pair has been kept before."""
    pair = f"{source}\n{target}".encode("utf-8", "surrogatepass")
    key = hashlib.blake2b(pair, digest_size=8).digest()
    is_known = key in known.seen
    known.seen.add(key)
    return is_known


FILTERS: dict[str, Callable[[str, str, Any], bool]] = {
    each.__name__: each
    for each in (
        *(blank, control, long, ratio, identical, tags, digits),
        *(swapped, untranslated, script, language, leaked, duplicate),
    )
}


# === What they use ===


class HeldOut:
    """Texts, of which `text in held_out` finds each that is one of them, or nearly.

    Two texts are near where the sets of their word pairs have a Jaccard similarity of `NEAR`. Of
    each text held out, only the rarest word pairs are looked up: as many as make sure that a near
    text has one of them (Chaudhuri et al., 2006, https://doi.org/10.1109/ICDE.2006.9).

    Args:
        texts: iterable of str.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        held_out = list(dict.fromkeys(map(_word_pairs, texts)))
        counts = collections.Counter(pair for each in held_out for pair in each)
        self._places: dict[Any, list[frozenset]] = {}
        for each in held_out:
            rarest = sorted(each, key=lambda pair: (counts[pair], pair))
            for pair in rarest[: int((1 - NEAR) * len(each)) + 1]:
                self._places.setdefault(pair, []).append(each)

    def __contains__(self, text: str) -> bool:
        found = _word_pairs(text)
        near = {each for pair in found & self._places.keys() for each in self._places[pair]}
        return any(len(found & each) >= NEAR * len(found | each) for each in near)


def _character(entity):
    is_known = entity[0].startswith("&#") or entity[0][1:] in html.entities.html5
    text = html.unescape(entity[0]) if is_known else entity[0]  # else &region; begins with &reg
    return " " if text in {"\t", "\n", "\r"} else text  # which end a column or a line


def _word_odds(pairs):
    """Returns log(p(word | source side) / p(word | target side)) of each word of some pairs."""
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    first, second = (
        collections.Counter(word for text in side for word in _words(text)) for side in sides
    )
    words = first | second
    ratio = (second.total() + len(words)) / max(1, first.total() + len(words))
    return {word: math.log((first[word] + 1) / (second[word] + 1) * ratio) for word in words}


def _words(text):
    return WORD.findall(text.casefold())


def _word_pairs(text):
    words = ["", *_words(text), ""]
    return frozenset(zip(words, words[1:], strict=False))


def _tags(text):
    """Returns the names of the tags with how often each stands, such as `{"b": 1, "/b": 1}`."""
    return collections.Counter(re.match(r"</?[\w:.-]+", tag)[0] for tag in TAG.findall(text))


def _before_noon(text):
    return AFTERNOON.sub(lambda match: str(int(match[0]) - 12), text)


def _digits(text):
    """Returns how often each digit stands, other than 0."""
    counts = collections.Counter(map(unicodedata.digit, DIGIT.findall(text)))
    del counts[0]
    return counts


def _agree(first, second):
    """Returns whether all digits of one side stand on the other, which may spell out a number."""
    return first <= second or second <= first


@functools.lru_cache(maxsize=2**16)
def _script(character):
    """Returns the first word of a letter's name, such as "GREEK"; None for what is no letter."""
    return unicodedata.name(character, "?").split()[0] if character.isalpha() else None


def _scripts(text):
    """Returns how many letters each script has."""
    counts = collections.Counter()
    for character, number in collections.Counter(text).items():
        counts[_script(character)] += number
    del counts[None]
    return counts


def _share(text, scripts):
    """Returns the share of the letters that are in some scripts; 1 where there are no letters."""
    counts = _scripts(text)
    return sum(counts[name] for name in scripts) / counts.total() if counts else 1.0


def known_languages():
    """Returns the codes of the languages that the library knows."""
    return sorted(_identifier().labels)


@functools.cache
def _identifier():
    library = import_library("py3langid").langid
    return library.LanguageIdentifier.from_model_file(library.MODEL_FILE, norm_probs=True)
