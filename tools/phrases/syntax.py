"""The parts of a sentence, before it is written in English (english.py) or German (german.py).

While a sentence is written within `marking`, each word carries signs of what it stands for, by
which `alignment` knows the words of both languages that translate one another.
"""

import contextlib
import re
from typing import NamedTuple

from phrases.lexicon import Adjective, Modal, Noun, Pronoun, Verb

NUMBERS = ("two", "three", "many")


class NounPhrase(NamedTuple):
    """Determiner (a key of lexicon.DETERMINERS), adjective, noun: "the old man", "two books".

    `relative` is a relative clause in English and German: "who is singing", "der singt".
    """

    determiner: str
    noun: Noun
    adjective: Adjective | None = None
    plural: bool = False
    relative: tuple[str, str] | None = None

    @property
    def english(self):
        """The English word, under the name that it has in a pronoun."""
        return self.noun.english

    @property
    def person(self):
        """The form of the verb, under the name that it has in a pronoun."""
        return "plural" if self.plural else "third"

    @property
    def is_definite(self):
        """Whether the listener knows who or what is meant."""
        return self.noun.group == "name" or self.determiner not in ("a", "no", "bare", *NUMBERS)


class PrepositionalPhrase(NamedTuple):
    """A key of lexicon.PREPOSITIONS and what follows it."""

    preposition: str
    noun_phrase: NounPhrase


class Clause(NamedTuple):
    """Who does what to whom, where and when; `tense` is "present", "past" or a modal verb.

    `time` and `complement` ("very old"; "bigger than the dog") are pairs of English and German.
    A question lacks the part that it asks for.
    """

    subject: NounPhrase | Pronoun
    verb: Verb
    tense: str | Modal = "present"
    negated: bool = False
    object: NounPhrase | Pronoun | None = None
    recipient: NounPhrase | Pronoun | None = None
    place: PrepositionalPhrase | None = None
    time: tuple[str, str] | None = None
    complement: tuple[str, str] | None = None


def join(*words):
    """Joins the words that are not empty."""
    return " ".join(word for word in words if word)


# === What words stand for ===

SIGNS = re.compile("[\ue000-\uf8ff]")  # characters for private use
_POSSIBLE = 0x800  # from the sign of a link that is sure to the sign of one that is possible
_signs = None  # within `marking`, a dict from meanings to characters


@contextlib.contextmanager
def marking():
    """Within it, the words of one sentence are written with their signs."""
    global _signs
    _signs = {}
    try:
        yield
    finally:
        _signs = None


def mark(words, meaning, role, sure=True):
    """Returns words, each with the sign of a role in a part of a sentence, such as its noun.

    Args:
        sure: whether a translation must have a word for it, as for a noun and unlike "do" in "do
            you sing?".
    """
    if _signs is None:
        return words
    # the part itself is kept, because another could have its id later
    place, _ = _signs.setdefault((id(meaning), role), (len(_signs), meaning))
    sign = chr(0xE000 + place)
    possible = chr(0xE000 + place + _POSSIBLE)
    return " ".join(word + sign * sure + possible for word in words.split())


def plain(text):
    """Returns a text without signs."""
    return SIGNS.sub("", text)


def link(pair):
    """Returns an English and a German text in which the words without signs have some.

    If they are equally many, each has that of its translation, in order; otherwise all may
    translate one another. A pair that has no such words, or None, is returned as it is.
    """
    if _signs is None or pair is None:
        return pair
    sides = [text.split(" ") for text in pair]
    places = [
        [i for i, word in enumerate(words) if word[:1].isalpha() and plain(word) == word]
        for words in sides
    ]
    in_order = len(places[0]) == len(places[1])
    for words, own in zip(sides, places, strict=True):
        for number, i in enumerate(own):
            words[i] = mark(words[i], pair, number if in_order else 0, sure=in_order)
    return tuple(map(" ".join, sides))


def loosely(pair):
    """Returns a pair of texts of whose words all may translate one another."""
    return tuple(mark(text, pair, 0, sure=False) for text in pair)


def alignment(source, target):
    """Returns two sets of pairs of word numbers: links that are sure, and those and possible ones.

    Args:
        source, target: texts with signs.
    """
    sides = [[set(SIGNS.findall(word)) for word in text.split()] for text in (source, target)]
    shared = {
        (i, j): a & b for i, a in enumerate(sides[0]) for j, b in enumerate(sides[1]) if a & b
    }
    is_sure = chr(0xE000 + _POSSIBLE)
    return {pair for pair, signs in shared.items() if min(signs) < is_sure}, set(shared)
