"""Draws words that make sense together: the noun phrases and clauses that sentences consist of."""

import functools
import random

from phrases.lexicon import (
    ADJECTIVES,
    BE,
    MODALS,
    NOUNS,
    PEOPLE,
    PRONOUNS,
    TIMES,
    VERBS,
    Modal,
    Pronoun,
)
from phrases.syntax import (
    NUMBERS,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
)

CAN, SHOULD, WILL, MAY, WANT, MUST = MODALS
OBJECT_KINDS = ("acc", "dat", "auf acc", "mit dat")
# What verbs govern, each as often as it is to be drawn.
_CLAUSE_KINDS = (
    (("acc",),) * 6 + (OBJECT_KINDS[1:], ("nothing",)) * 2 + (("direction",), ("transfer",))
)
_INVOLUNTARY = ("cry", "wake up", "fall asleep", "arrive")  # nobody wants to or has to
_MOMENTARY = ("see", "hear", "find", "forget")  # no actions, but with a time in the past
_ABSOLUTE = ("red", "white", "black", "broken")  # nothing is "very" so
_EXCESSIVE = ("old", "young", "tired", "big", "small", "expensive", "heavy", "hot", "cold")
_SUBJECTS = ("I", "he", "she", "we", "they")
_POSSESSIVES = {"I": "my", "he": "his", "she": "her", "we": "our", "they": "their"}


@functools.cache
def nouns_of(*groups):
    """Returns the nouns of the given groups, and those given by name."""
    return tuple(noun for noun in NOUNS if noun.group in groups or noun.english in groups)


@functools.cache
def adjectives_of(noun):
    """Returns the adjectives that may describe a noun."""
    return tuple(a for a in ADJECTIVES if noun.group in a.groups or noun.english in a.groups)


@functools.cache
def verbs_of(*kinds):
    """Returns the verbs that govern one of the given kinds."""
    return tuple(verb for verb in VERBS if verb.governs in kinds)


@functools.cache
def verb_named(english, governs="acc"):
    """Returns the verb of that name; government tells "play" from "play with"."""
    return next(verb for verb in VERBS if (verb.english, verb.governs) == (english, governs))


def pronoun_for(phrase):
    """Returns the pronoun for a person, or for a thing by its gender in German."""
    if isinstance(phrase, Pronoun):
        return phrase
    if phrase.plural:
        return PRONOUNS["they"]
    if phrase.noun.group in PEOPLE and phrase.noun.gender != "n":
        return PRONOUNS["he" if phrase.noun.gender == "m" else "she"]
    return PRONOUNS[phrase.noun.gender]


def negate(clause):
    """Returns the negated clause: "not a" (kein) for an indefinite object, the rest definite."""
    denied = clause.object
    direct = clause.verb.governs in ("acc", "transfer") and isinstance(denied, NounPhrase)
    if direct and denied.noun.group != "name" and denied.determiner in ("a", "bare", "no"):
        denied = denied._replace(determiner="no")
    else:
        denied = _definite(denied)
    return clause._replace(
        negated=True,
        subject=_definite(clause.subject),
        recipient=_definite(clause.recipient),
        object=denied,
        place=clause.place
        and clause.place._replace(noun_phrase=_definite(clause.place.noun_phrase)),
    )


def _definite(phrase):
    if isinstance(phrase, NounPhrase) and not phrase.is_definite:
        return phrase._replace(determiner="the")
    return phrase


def _suits(verb, subject, tense):
    """Whether a verb is used with a subject and in a tense (None: any)."""
    if isinstance(subject, NounPhrase) and subject.noun.group not in verb.subjects:
        return False
    if isinstance(tense, Modal):
        return verb.is_action and (tense is WILL or verb.english not in _INVOLUNTARY)
    return tense is None or getattr(verb, tense) != ""


class Draw:
    """Random choices from a seed. Only `Random.random` is the same in every version of Python."""

    def __init__(self, seed):
        self._random = random.Random(seed).random

    def chance(self, probability):
        return self._random() < probability

    def choice(self, options):
        return options[int(self._random() * len(options))]

    def noun_phrase(self, noun, owner=None, definite=False, plural=None):
        """Returns a noun phrase, sometimes with an adjective; "his" would refer to `owner`."""
        if noun.group == "name":
            return NounPhrase("bare", noun)
        if plural is None:
            plural = noun.is_counted and self.chance(0.3)
        determiner = self._determiner(noun, plural, owner, definite)
        adjectives = adjectives_of(noun)
        adjective = self.choice(adjectives) if adjectives and self.chance(0.4) else None
        return NounPhrase(determiner, noun, adjective, plural)

    def subject(self, groups=PEOPLE, definite=False, tense=None):
        """Returns a subject: a noun phrase, or a pronoun for a person.

        A definite one, as in a question, is neither "a man" nor "I". In the present tense it is
        never "I", whose verb forms would each be too rare to learn.
        """
        if "name" in groups:
            if self.chance(0.25):
                if definite and not isinstance(tense, Modal):
                    return PRONOUNS[self.choice(("he", "she", "they"))]
                return PRONOUNS[self.choice(_SUBJECTS[definite or tense == "present" :])]
            if self.chance(0.2):
                groups = ("name",)
        return self.noun_phrase(self.choice(nouns_of(*groups)), definite=definite)

    def known_person(self):
        """Returns whom "he", "she" or "they" may refer to, in German by the same gender."""
        noun = self.choice(nouns_of("name", "adult", "kin", "boy"))
        return self.noun_phrase(noun, definite=True)._replace(adjective=None)

    def tense(self, verb):
        """Returns a tense that the verb is used in."""
        if not verb.is_action:
            return self.choice([name for name in ("present", "past") if getattr(verb, name)])
        if self.chance(0.6):
            return self.choice(("present", "past"))
        return WILL if verb.english in _INVOLUNTARY else self.choice((*MODALS, WILL))

    def time(self, clause):
        """Returns a time that suits verb and tense, or None."""
        verb, tense = clause.verb, clause.tense
        if tense == "past" and (verb is BE or verb.is_action or verb.english in _MOMENTARY):
            return self.choice(TIMES["past"])
        if not verb.is_action:
            return None
        kind = "present" if tense == "present" else "future" if tense is WILL else "modal"
        return self.choice(TIMES[kind])

    def clause(
        self,
        verb=None,
        subject=None,
        tense=None,
        negated=None,
        place=None,
        action=False,
        definite=False,
    ):
        """Returns a clause that makes sense; what is not given is drawn.

        `negated` and `place` say whether it is negated and has a place (None: sometimes). `action`
        excludes verbs of state, `definite` excludes "a man" and "I" as the subject.
        """
        verb = verb or self._verb(subject, tense, action)
        tense = tense or self.tense(verb)
        subject = subject or self.subject(verb.subjects, definite, tense)
        negated = self.chance(0.2) if negated is None else negated
        clause = Clause(subject, verb, tense)
        if verb.governs == "transfer":
            clause = clause._replace(recipient=self._another(PEOPLE, clause))
        if verb.objects:
            clause = clause._replace(object=self._another(verb.objects, clause))
        if clause.recipient is PRONOUNS["she"] and clause.object.determiner != "a":
            clause = clause._replace(object=_definite(clause.object))  # not "showed her two cats"
        if verb.english == "buy" and clause.object.determiner in _POSSESSIVES.values():
            clause = clause._replace(object=clause.object._replace(determiner="the"))
        if negated and self.chance(0.4) and getattr(clause.object, "determiner", "") == "the":
            clause = clause._replace(object=clause.object._replace(determiner="no"))
        if verb.governs == "direction":
            clause = clause._replace(place=self.direction(verb, subject))
        elif verb.places and (self.chance(0.3) if place is None else place):
            if not (negated and clause.object):
                clause = clause._replace(place=self.place(verb.places, subject))
        return negate(clause) if negated else clause

    def outing(self, tense, negated):
        """Returns a clause about something done outside."""
        outside = nouns_of("garden", "park", "forest")
        if self.chance(0.5):
            verb = self.choice((verb_named("go", "direction"), verb_named("run", "direction")))
            place = self._beside("into", outside)
        else:
            verb = self.choice([v for v in verbs_of("nothing") if v.places])
            place = self._beside("in", outside)
        clause = Clause(self.subject(tense=tense), verb, tense, place=place)
        return negate(clause) if negated else clause

    def place(self, kind, owner=None):
        """Returns where something is done: "any" place or at "home"."""
        if kind == "home":
            return self._beside("in", nouns_of("home"), owner)
        if self.chance(0.3):
            preposition = self.choice(("behind", "in front of", "next to"))
            return self._beside(preposition, nouns_of("house", "school"), owner)
        return self._beside("in", nouns_of("place", "home"), owner)

    def direction(self, verb, owner=None):
        """Returns the place to which somebody goes, or from which somebody comes."""
        if verb.english == "come":
            return self._beside("out of", nouns_of("home", "school", "forest"), owner)
        if self.chance(0.35):
            return PrepositionalPhrase("to", self._another(PEOPLE, Clause(owner, verb)))
        return self._beside("into", nouns_of("place", "home"), owner)

    def resting_place(self):
        """Returns where a thing lies."""
        if self.chance(0.3):
            return self._beside("in", nouns_of("luggage"))
        return self._beside(self.choice(("on", "under", "next to")), nouns_of("furniture"))

    def quality(self, noun):
        """Returns an adjective with or without "very" or "too", in both languages."""
        adjective = self.choice(adjectives_of(noun))
        if adjective.english in _ABSOLUTE or self.chance(0.5):
            return adjective.english, adjective.german
        if adjective.english in _EXCESSIVE and self.chance(0.5):
            return f"too {adjective.english}", f"zu {adjective.german}"
        return f"very {adjective.english}", f"sehr {adjective.german}"

    def _verb(self, subject, tense, action):
        verbs = []
        while not verbs:
            verbs = verbs_of(*self.choice(_CLAUSE_KINDS))
            verbs = [v for v in verbs if _suits(v, subject, tense) and (v.is_action or not action)]
            verbs += [verb for verb in verbs if verb.prefix]  # separable ones twice: more forms
        return self.choice(verbs)

    def _beside(self, preposition, nouns, owner=None):
        definite = self.chance(0.7)
        phrase = self.noun_phrase(self.choice(nouns), owner, definite, plural=False)
        return PrepositionalPhrase(preposition, phrase)

    def _another(self, groups, clause):
        """Returns a noun phrase or pronoun other than the subject and the recipient."""
        taken = [phrase.english for phrase in (clause.subject, clause.recipient) if phrase]
        if "name" in groups and self.chance(0.25):
            taken += ["I", "we"] if "I" in taken or "we" in taken else []
            return PRONOUNS[self.choice([name for name in _SUBJECTS if name not in taken])]
        nouns = [n for n in nouns_of(self.choice(groups)) if n.english not in taken]
        return self.noun_phrase(self.choice(nouns), clause.subject)

    def _determiner(self, noun, plural, owner, definite):
        """Returns a determiner that suits the noun; repeated options are drawn more often."""
        own = self.choice(("my", "my", "our"))
        if owner and self.chance(0.7):
            own = _POSSESSIVES.get(pronoun_for(owner).english, "my")
        another = self.choice([name for name in ("Anna's", "Peter's") if not _owns(owner, name)])
        if noun.group == "kin":
            return self.choice((own, own, own, another))
        if noun.group in ("dish", "drink"):
            return self.choice(("the", own) if definite else ("the", own, "bare", "bare"))
        options = ["the", "the", "the", "the", "this"]
        if not definite:
            options += NUMBERS if plural else ("a", "a")
        if noun.group not in (*PEOPLE, "place"):
            options += (own, another)
            options += ("bare",) if plural and not definite else ()
        return self.choice(options)


def _owns(owner, possessive):
    return owner is not None and possessive == f"{owner.english}'s"
