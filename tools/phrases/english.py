"""English: articles, verb forms, word order."""

import re

from phrases.lexicon import BE, DETERMINERS, Modal, Pronoun
from phrases.syntax import SIGNS, join, mark, plain

_PARTICLES = ("up", "on", "off")  # a pronoun stands before them: "pick her up"
_AUXILIARIES = {
    "be": {"first": "am", "third": "is", "plural": "are"},
    "was": {"first": "was", "third": "was", "plural": "were"},
    "do": {"first": "do", "third": "does", "plural": "do"},
    "did": {"first": "did", "third": "did", "plural": "did"},
}


def noun_phrase(phrase, is_object=False):
    """Returns a noun phrase or pronoun: "an old man", "two books", "him"."""
    if isinstance(phrase, Pronoun):
        return phrase.english_object if is_object else phrase.english
    noun, determiner = phrase.noun, DETERMINERS[phrase.determiner]
    as_plural = phrase.plural or not noun.english_plural  # "any milk" like "any apples"
    article = determiner.english_plural if as_plural else determiner.english
    words = [mark(phrase.adjective.english, phrase, "adjective")] if phrase.adjective else []
    words.append(mark(noun.english_plural if phrase.plural else noun.english, phrase, "noun"))
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    words.append(phrase.relative[0] if phrase.relative else "")
    return join(mark(article, phrase, "determiner"), *words)


def prepositional_phrase(phrase):
    """Returns a place or direction: "in the garden"."""
    preposition = mark(phrase.preposition, phrase, "preposition")
    return f"{preposition} {noun_phrase(phrase.noun_phrase, is_object=True)}"


def clause(meaning, question=False, front=""):
    """Returns a clause. In a question the auxiliary precedes the subject, and `front` both."""
    subject = _part(meaning, "subject")
    auxiliary, words = _verb_group(meaning, question)
    negation = mark("not", meaning, "not") if meaning.negated else ""
    start = (auxiliary, subject, negation) if question else (subject, auxiliary, negation)
    text = join(front, *start, *_predicate(meaning, words))
    return re.sub(f"can({SIGNS.pattern}*) not", r"cannot\1", text)


def infinitive(meaning):
    """Returns an infinitive with its objects: "to open the door"."""
    to = mark("to", meaning, "to")
    return join(to, *_predicate(meaning, _marked_verb(meaning.verb.english, meaning)))


def _predicate(meaning, words):
    verb, _, particle = words.rpartition(" ")
    moved = isinstance(meaning.object, Pronoun) and plain(particle) in _PARTICLES
    yield join(verb, _part(meaning, "object"), particle) if moved else words
    yield _part(meaning, "recipient") if meaning.recipient else ""
    yield _part(meaning, "object") if meaning.object and not moved else ""
    yield meaning.complement[0] if meaning.complement else ""
    yield prepositional_phrase(meaning.place) if meaning.place else ""
    yield meaning.time[0] if meaning.time else ""


def _part(meaning, role):
    """Returns the subject, object or recipient of a clause."""
    phrase = getattr(meaning, role)
    text = noun_phrase(phrase, is_object=role != "subject")
    return mark(text, meaning, role) if isinstance(phrase, Pronoun) else text


def _marked_verb(words, meaning, role="verb"):
    """Returns the words of a verb: its particle or preposition is no verb in German."""
    verb, _, others = words.partition(" ")
    return join(mark(verb, meaning, role), mark(others, meaning, role, sure=False))


def _verb_group(meaning, question):
    """Returns the auxiliary ("" where there is none) and the rest: "is", "reading"."""
    verb, tense, person = meaning.verb, meaning.tense, meaning.subject.person
    third = person == "third"
    modal, modal_inflected, role = "", "", "verb"
    if verb is BE:
        kind, words, inflected = ("be" if tense == "present" else "was"), "", ""
    elif isinstance(tense, Modal):
        kind, words, inflected, role = tense.auxiliary, verb.english, verb.english, "modal"
        modal, modal_inflected = tense.words, tense.third if third else tense.words
    elif tense == "past":
        kind, words, inflected = "did", verb.english, verb.past
    elif verb.is_action:
        kind, words, inflected = "be", verb.present, ""
    else:
        kind, words, inflected = "do", verb.english, verb.present if third else verb.english
    if kind in ("do", "did") and not question and not meaning.negated:
        modal = _marked_verb(modal_inflected, meaning, "modal")
        return "", join(modal, _marked_verb(inflected, meaning))
    auxiliary = _AUXILIARIES[kind][person] if kind in _AUXILIARIES else kind
    is_sure = verb is BE or (role == "modal" and not modal)  # nothing else says it
    words = join(_marked_verb(modal, meaning, "modal"), _marked_verb(words, meaning))
    return mark(auxiliary, meaning, role, is_sure), words
