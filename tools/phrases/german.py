"""German: declension, verb forms, and the three word orders of a clause.

A clause has a middle field between its finite verb and the rest of the verb (prefix, participle or
infinitive). The finite verb stands second in a statement, first in a question or after a
subordinate clause, and last, after the rest, in a subordinate clause.
"""

from phrases.lexicon import (
    BE,
    DETERMINERS,
    PREPOSITIONS,
    Modal,
    Pronoun,
)
from phrases.syntax import NounPhrase, join

# By case, then by gender and the plural.
_GENDERS = ("m", "f", "n", "plural")
ENDINGS = {
    "definite": {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"},
    "der": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"},
    "ein": {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en"},
    "weak": {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"},
    "mixed": {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en"},
}
# Which adjective endings follow which kind of determiner: after none those of "der" itself.
_ADJECTIVE_ENDINGS = {"definite": "weak", "der": "weak", "ein": "mixed", "none": "der"}
_CONTRACTIONS = {"in dem": "im", "in das": "ins", "zu dem": "zum", "zu der": "zur"}
_AUXILIARIES = {
    "haben": {"first": "habe", "third": "hat", "plural": "haben"},
    "sein": {"first": "bin", "third": "ist", "plural": "sind"},
    "war": {"first": "war", "third": "war", "plural": "waren"},
}


def noun_phrase(phrase, case):
    """Returns a noun phrase or pronoun in a case ("nom", "acc", "dat"): "den alten Mann", "ihn"."""
    if isinstance(phrase, Pronoun):
        return getattr(phrase, case)
    noun, determiner = phrase.noun, DETERMINERS[phrase.determiner]
    gender = "plural" if phrase.plural else noun.gender
    words = [_article(determiner, case, gender)]
    if phrase.adjective:
        kind = _ADJECTIVE_ENDINGS[determiner.declension]
        words.append(phrase.adjective.stem + _ending(kind, case, gender))
    if phrase.plural:
        takes_n = case == "dat" and noun.german_plural[-1] not in "ns"
        words.append(noun.german_plural + ("n" if takes_n else ""))
    else:
        words.append(noun.german if case == "nom" else noun.oblique)
    return join(*words) + (f", {phrase.relative[1]}," if phrase.relative else "")


def prepositional_phrase(phrase):
    """Returns a place or direction: "im Garten", "in den Garten", "zur Tante"."""
    preposition = PREPOSITIONS[phrase.preposition]
    return preposition_with(preposition.german, phrase.noun_phrase, preposition.case)


def preposition_with(preposition, phrase, case):
    """Returns a noun phrase after a preposition, which may be contracted with the article."""
    words = join(preposition, noun_phrase(phrase, case)).split()
    start = " ".join(words[:2])
    return join(_CONTRACTIONS.get(start, start), *words[2:])


def relative_pronoun(phrase, case):
    """Returns the relative pronoun that refers to a noun phrase: "der", "den", "denen"."""
    if phrase.plural and case == "dat":
        return "denen"
    return _ending("definite", case, "plural" if phrase.plural else phrase.noun.gender)


def clause(meaning, order="second", front=""):
    """Returns a clause with its finite verb "first", "second" or "last".

    `front` is what stands before a verb in second place instead of the subject ("heute", "wo") or
    opens a clause with the verb last ("weil", "den").
    """
    subject = noun_phrase(meaning.subject, "nom")
    finite, rest = _verb_parts(meaning)
    middle = list(_middle_field(meaning))
    if order == "last":
        if rest == meaning.verb.prefix:
            finite, rest = rest + finite, ""  # macht ... auf -> aufmacht
        return join(front, subject, *middle, rest, finite)
    if order == "second" and not front:
        return join(subject, finite, *middle, rest)
    return join(front, finite, subject, *middle, rest)


def infinitive(meaning):
    """Returns an infinitive with zu and its objects: "die Tür aufzumachen"."""
    verb = meaning.verb
    zu = f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"
    return join(*_middle_field(meaning), zu)


def _middle_field(meaning):
    """Yields what stands between the two parts of the verb, without the subject.

    What is known comes early: pronouns, time, recipient, definite object; then "nicht", the place,
    and last what is new or belongs closely to the verb: indefinite and prepositional objects.
    """
    preposition, _, case = meaning.verb.governs.rpartition(" ")
    case = case if case == "dat" else "acc"
    early, late, denied = "", "", False
    if isinstance(meaning.recipient, Pronoun):
        yield noun_phrase(meaning.recipient, "dat")
    if preposition and meaning.object:
        late = preposition_with(preposition, meaning.object, case)
    elif isinstance(meaning.object, Pronoun):
        yield noun_phrase(meaning.object, case)
    elif meaning.object:
        denied = meaning.object.determiner == "no"
        text = noun_phrase(meaning.object, case)
        early, late = (text, "") if meaning.object.is_definite else ("", text)
    yield meaning.time[1] if meaning.time else ""
    if isinstance(meaning.recipient, NounPhrase):
        yield noun_phrase(meaning.recipient, "dat")
    yield early
    yield "nicht" if meaning.negated and not denied else ""
    yield prepositional_phrase(meaning.place) if meaning.place else ""
    yield late
    yield meaning.complement[1] if meaning.complement else ""


def _verb_parts(meaning):
    """Returns the finite verb and the rest of the verb: "hat", "aufgemacht"."""
    verb, tense, person = meaning.verb, meaning.tense, meaning.subject.person
    if isinstance(tense, Modal):
        return tense.german[person], verb.prefix + verb.infinitive
    if tense == "past":
        if verb is BE:
            return _AUXILIARIES["war"][person], ""
        return _AUXILIARIES[verb.auxiliary][person], verb.participle
    if verb is BE:
        return _AUXILIARIES["sein"][person], ""
    if person == "first" and verb.infinitive != "wissen":  # ich weiß, er weiß
        return verb.infinitive.removesuffix("n").removesuffix("e") + "e", verb.prefix
    return verb.infinitive if person == "plural" else verb.third, verb.prefix


def _article(determiner, case, gender):
    if determiner.declension == "definite":
        return _ending("definite", case, gender)
    if determiner.german == "viele":
        return "vielen" if case == "dat" else "viele"
    if determiner.declension == "none":
        return determiner.german
    return determiner.german + _ending(determiner.declension, case, gender)


def _ending(kind, case, gender):
    ending = ENDINGS[kind][case].split()[_GENDERS.index(gender)]
    return "" if ending == "-" else ending
