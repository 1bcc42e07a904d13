"""English: articles, verb forms, word order."""

from phrases.lexicon import BE, DETERMINERS, Modal, Pronoun
from phrases.syntax import join

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
    words = [phrase.adjective.english] if phrase.adjective else []
    words.append(noun.english_plural if phrase.plural else noun.english)
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    words.append(phrase.relative[0] if phrase.relative else "")
    return join(article, *words)


def prepositional_phrase(phrase):
    """Returns a place or direction: "in the garden"."""
    return f"{phrase.preposition} {noun_phrase(phrase.noun_phrase, is_object=True)}"


def clause(meaning, question=False, front=""):
    """Returns a clause. In a question the auxiliary precedes the subject, and `front` both."""
    subject = noun_phrase(meaning.subject)
    auxiliary, words = _verb_group(meaning, question)
    negation = "not" if meaning.negated else ""
    start = (auxiliary, subject, negation) if question else (subject, auxiliary, negation)
    return join(front, *start, *_predicate(meaning, words)).replace("can not", "cannot")


def infinitive(meaning):
    """Returns an infinitive with its objects: "to open the door"."""
    return join("to", *_predicate(meaning, meaning.verb.english))


def _predicate(meaning, words):
    verb, _, particle = words.rpartition(" ")
    if isinstance(meaning.object, Pronoun) and particle in _PARTICLES:
        words = join(verb, meaning.object.english_object, particle)
        meaning = meaning._replace(object=None)
    yield words
    for phrase in (meaning.recipient, meaning.object):
        yield noun_phrase(phrase, is_object=True) if phrase else ""
    yield meaning.complement[0] if meaning.complement else ""
    yield prepositional_phrase(meaning.place) if meaning.place else ""
    yield meaning.time[0] if meaning.time else ""


def _verb_group(meaning, question):
    """Returns the auxiliary ("" where there is none) and the rest: "is", "reading"."""
    verb, tense, person = meaning.verb, meaning.tense, meaning.subject.person
    third = person == "third"
    if verb is BE:
        kind, words, inflected = ("be" if tense == "present" else "was"), "", ""
    elif isinstance(tense, Modal):
        kind, words = tense.auxiliary, join(tense.words, verb.english)
        inflected = join(tense.third if third else tense.words, verb.english)
    elif tense == "past":
        kind, words, inflected = "did", verb.english, verb.past
    elif verb.is_action:
        kind, words, inflected = "be", verb.present, ""
    else:
        kind, words, inflected = "do", verb.english, verb.present if third else verb.english
    if kind in ("do", "did") and not question and not meaning.negated:
        return "", inflected
    return _AUXILIARIES[kind][person] if kind in _AUXILIARIES else kind, words
