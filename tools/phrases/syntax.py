"""The parts of a sentence, before it is written in English (english.py) or German (german.py)."""

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
