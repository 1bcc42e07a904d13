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
from phrases.syntax import SIGNS, NounPhrase, join, mark, plain

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
    words = [mark(_article(determiner, case, gender), phrase, "determiner")]
    if phrase.adjective:
        kind = _ADJECTIVE_ENDINGS[determiner.declension]
        adjective = phrase.adjective.stem + _ending(kind, case, gender)
        words.append(mark(adjective, phrase, "adjective"))
    if phrase.plural:
        takes_n = case == "dat" and noun.german_plural[-1] not in "ns"
        form = noun.german_plural + ("n" if takes_n else "")
    else:
        form = noun.german if case == "nom" else noun.oblique
    words.append(mark(form, phrase, "noun"))
    return join(*words) + (f", {phrase.relative[1]}," if phrase.relative else "")


def prepositional_phrase(phrase):
    """Returns a place or direction: "im Garten", "in den Garten", "zur Tante"."""
    preposition = PREPOSITIONS[phrase.preposition]
    word = mark(preposition.german, phrase, "preposition")
    return preposition_with(word, phrase.noun_phrase, preposition.case)


def preposition_with(preposition, phrase, case):
    """Returns a noun phrase after a preposition, which may be contracted with the article."""
    words = join(preposition, noun_phrase(phrase, case)).split()
    start = " ".join(words[:2])
    if plain(start) in _CONTRACTIONS:
        start = _CONTRACTIONS[plain(start)] + "".join(SIGNS.findall(start))
    return join(start, *words[2:])


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
    subject = _part(meaning, "subject", "nom")
    finite, rest = _verb_parts(meaning)
    middle = list(_middle_field(meaning))
    if order == "last":
        if plain(rest) == meaning.verb.prefix:
            finite, rest = rest + finite, ""  # macht ... auf -> aufmacht
        return join(front, subject, *middle, rest, finite)
    if order == "second" and not front:
        return join(subject, finite, *middle, rest)
    return join(front, finite, subject, *middle, rest)


def infinitive(meaning):
    """Returns an infinitive with zu and its objects: "die Tür aufzumachen"."""
    zu, infinitive = mark("zu", meaning, "to"), mark(meaning.verb.infinitive, meaning, "verb")
    prefix = meaning.verb.prefix
    text = f"{prefix}{zu}{infinitive}" if prefix else join(zu, infinitive)
    return join(*_middle_field(meaning), text)


def _middle_field(meaning):
    """Yields what stands between the two parts of the verb, without the subject.

    What is known comes early: pronouns, time, recipient, definite object; then "nicht", the place,
    and last what is new or belongs closely to the verb: indefinite and prepositional objects.
    """
    preposition, _, case = meaning.verb.governs.rpartition(" ")
    case = case if case == "dat" else "acc"
    early, late, denied = "", "", False
    if isinstance(meaning.recipient, Pronoun):
        yield _part(meaning, "recipient", "dat")
    if preposition and meaning.object:
        word = mark(preposition, meaning, "verb", sure=False)
        late = preposition_with(word, meaning.object, case)
        if isinstance(meaning.object, Pronoun):
            late = join(word, _part(meaning, "object", case))
    elif isinstance(meaning.object, Pronoun):
        yield _part(meaning, "object", case)
    elif meaning.object:
        denied = meaning.object.determiner == "no"
        text = noun_phrase(meaning.object, case)
        if denied and meaning.negated:  # kein: not a
            article, _, others = text.partition(" ")
            text = join(mark(article, meaning, "not"), others)
        early, late = (text, "") if meaning.object.is_definite else ("", text)
    yield meaning.time[1] if meaning.time else ""
    if isinstance(meaning.recipient, NounPhrase):
        yield noun_phrase(meaning.recipient, "dat")
    yield early
    yield mark("nicht", meaning, "not") if meaning.negated and not denied else ""
    yield prepositional_phrase(meaning.place) if meaning.place else ""
    yield late
    yield meaning.complement[1] if meaning.complement else ""


def _part(meaning, role, case):
    """Returns the subject, object or recipient of a clause."""
    phrase = getattr(meaning, role)
    text = noun_phrase(phrase, case)
    return mark(text, meaning, role) if isinstance(phrase, Pronoun) else text


def _verb_parts(meaning):
    """Returns the finite verb and the rest of the verb: "hat", "aufgemacht"."""
    finite, rest = _verb_forms(meaning)
    has_modal = isinstance(meaning.tense, Modal)
    # "hat" in "hat gelesen", and "auf" in "macht auf", are less than the verb
    is_main = not rest or rest == meaning.verb.prefix or has_modal
    finite = mark(finite, meaning, "modal" if has_modal else "verb", is_main)
    return finite, mark(rest, meaning, "verb", rest != meaning.verb.prefix)


def _verb_forms(meaning):
    """Returns the words of `_verb_parts`, without their signs."""
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
