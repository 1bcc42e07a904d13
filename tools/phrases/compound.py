"""Sentences of two clauses: pronouns, subordinate and relative clauses, infinitives.

Each function draws one and returns it in English and German.
"""

from phrases import english, german
from phrases.draw import (
    CAN,
    MAY,
    MUST,
    OBJECT_KINDS,
    WANT,
    WILL,
    adjectives_of,
    negate,
    nouns_of,
    pronoun_for,
    verb_named,
    verbs_of,
)
from phrases.lexicon import (
    BAD_WEATHER,
    BE,
    EVENTS,
    PEOPLE,
    PRONOUNS,
    SUNSHINE,
    Pronoun,
)
from phrases.pairs import (
    fill,
    main_first,
    say,
    side_first,
    subordinate,
)
from phrases.simple import adverb_gap
from phrases.syntax import (
    NUMBERS,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    loosely,
)

BECAUSE, ALTHOUGH, IF = ("because", "weil"), ("although", "obwohl"), ("if", "wenn")
WHEN, BEFORE, WHILE = ("when", "als"), ("before", "bevor"), ("while", "während")
_ORDERS = (main_first, side_first)
_WEAKNESSES = (("tired", "müde"), ("sick", "krank"))
_TROUBLES = (
    ("expensive", "buy", False, (WANT, WILL)),
    ("broken", "repair", None, (CAN, WANT, WILL)),
    ("dirty", "wash", None, (CAN, WANT, WILL)),
    ("heavy", "carry", None, (CAN, MUST)),
    ("long", "read", None, (WANT, MUST)),
    ("hungry", "feed", True, (CAN, WANT)),
)
_AFTERTHOUGHTS = (
    (("but", "aber"), ("old", "broken", "dirty", "heavy", "expensive")),
    (("and", "und"), ("new", "beautiful", "good", "red")),
)
_ATTEMPTS = (
    ("try", ("open", "close", "repair", "carry", "find", "sell", "call", "wash", "invite")),
    ("forget", ("close", "turn on", "turn off", "feed", "wash", "buy", "call", "pick up")),
)
_PURPOSES = (
    ("city", ("buy", "sell", "work", "pick up")),
    ("kitchen", ("cook", "bake", "eat", "drink")),
    ("room", ("sleep", "read", "write", "call")),
    ("garden", ("play", "sing", "dance", "read", "play with")),
)


def trouble(draw):
    """The car is broken, but Peter does not want to repair it."""
    quality, verb, negated, modals = draw.choice(_TROUBLES)
    verb = verb_named(verb)
    nouns = [
        noun
        for noun in nouns_of(*verb.objects)
        if quality in [a.english for a in adjectives_of(noun)] and noun.english_plural
    ]
    thing = draw.noun_phrase(draw.choice(nouns), definite=True)._replace(adjective=None)
    adjective = next(a for a in adjectives_of(thing.noun) if a.english == quality)
    first = Clause(thing, BE, complement=adjective[:2])
    negated = draw.chance(0.6) if negated is None else negated
    it, subject = pronoun_for(thing), draw.subject()
    while subject == it:  # they would be the things
        subject = draw.subject()
    second = Clause(subject, verb, draw.choice(modals), object=it)
    second = negate(second) if negated else second
    return fill("{}, but {}.", "{}, aber {}.", say(first), say(second))


def possession(draw):
    """Anna bought a lamp, but it is broken. The boy found two hats, and they are beautiful."""
    verb = verb_named(draw.choice(("buy", "find", "have")))
    nouns = nouns_of("text", "clothes", "device", "vehicle", "luggage", "picture", "watch")
    noun = draw.choice([noun for noun in nouns if noun.group in verb.objects])
    thing = draw.noun_phrase(noun)._replace(adjective=None)
    thing = thing._replace(determiner=draw.choice(NUMBERS) if thing.plural else "a")
    conjunction, qualities = draw.choice(_AFTERTHOUGHTS)
    adjective = draw.choice([a for a in adjectives_of(noun) if a.english in qualities])
    first = Clause(draw.subject(), verb, "past" if verb.past else "present", object=thing)
    second = Clause(pronoun_for(thing), BE, complement=adjective[:2])
    return fill("{}, {} {}.", "{}, {} {}.", say(first), conjunction, say(second))


def contrast(draw):
    """Peter is reading a book, but Anna is sleeping. The king is sick, but he wants to sing."""
    if draw.chance(0.5):
        person = draw.known_person()
        first = Clause(person, BE, complement=draw.choice(_WEAKNESSES))
        tense = draw.choice((WANT, MUST))
        second = draw.clause(None, pronoun_for(person), tense, negated=False)
    else:
        first = draw.clause(tense=draw.choice(("present", "past")), negated=False, place=False)
        second = _clause_beside(draw, first, tense=first.tense, place=False)
    return fill("{}, but {}.", "{}, aber {}.", say(first), say(second))


def reason(draw):
    """Because Anna is tired, she does not want to work. I am happy because Paul came back."""
    kind = draw.choice(("feeling", "weakness", "weather"))
    if kind == "weakness":
        main = draw.clause(None, draw.known_person(), draw.choice((CAN, WANT)), negated=True)
        return _weakened(draw, BECAUSE, main)
    if kind == "weather":
        main = draw.outing(tense=WANT, negated=True)
        now, _, deutsch = draw.choice(BAD_WEATHER)
        return draw.choice(_ORDERS)(BECAUSE, main, loosely((now, deutsch)))
    feeling, negated = draw.choice(((("happy", "glücklich"), False), (("sad", "traurig"), True)))
    main = Clause(draw.known_person(), BE, complement=feeling)
    tense = draw.choice(("past", CAN, MAY) if negated else ("past", CAN, WILL))
    side = _clause_beside(draw, main, tense=tense, negated=negated)
    return draw.choice(_ORDERS)(BECAUSE, main, subordinate(side))


def concession(draw):
    """Although it is cold, the children are playing in the garden."""
    if draw.chance(0.5):
        main = draw.outing(tense=draw.choice(("present", WANT)), negated=False)
        now, _, deutsch = draw.choice(BAD_WEATHER)
        return draw.choice(_ORDERS)(ALTHOUGH, main, loosely((now, deutsch)))
    tense = draw.choice(("present", WANT, MUST))
    main = draw.clause(None, draw.known_person(), tense, negated=False, action=True)
    return _weakened(draw, ALTHOUGH, main)


def condition(draw):
    """If it rains, we will read a book. Peter does not have to work if he is sick."""
    if draw.chance(0.5):
        _, then, deutsch = draw.choice((*BAD_WEATHER, SUNSHINE))
        main = draw.clause(tense=WILL, negated=False)
        return draw.choice(_ORDERS)(IF, main, loosely((then, deutsch)))
    tense = draw.choice((MAY, MUST, WILL))
    return _weakened(draw, IF, draw.clause(None, draw.known_person(), tense, negated=True))


def moment(draw):
    """When the guest arrived, Anna opened the door. Before the child fell asleep, ..."""
    who = draw.subject()
    event, singular, plural = draw.choice(EVENTS)
    names = english.noun_phrase(who), german.noun_phrase(who, "nom")
    happened = event, plural if who.person == "plural" else singular
    main = _clause_beside(draw, Clause(who, BE), tense="past", negated=False, action=True)
    side = fill("{} {}", "{} {}", names, happened)
    return draw.choice(_ORDERS)(draw.choice((WHEN, BEFORE)), main, side)


def simultaneity(draw):
    """While Anna is cooking the soup, Peter is sleeping."""
    main = draw.clause(tense="present", negated=False, action=True)
    side = _clause_beside(draw, main, tense="present", negated=False, action=True)
    return draw.choice(_ORDERS)(WHILE, main, subordinate(side))


def report(draw):
    """The woman says that the dog is sleeping. I do not think that the queen can dance."""
    verb = verb_named(draw.choice(("say", "think", "hope", "know")), "clause")
    negated = verb.english == "think" and draw.chance(0.3)
    main = Clause(_subject_of(verb, draw), verb, negated=negated)
    side = _clause_beside(draw, main, negated=False if negated else None)
    return fill("{} that {}.", "{}, dass {}.", say(main), subordinate(side))


def indirect_question(draw):
    """Anna asks whether Paul is working. I do not know where the child is playing."""
    verb = verb_named(draw.choice(("ask", "know")), "clause")
    main = Clause(_subject_of(verb, draw), verb, negated=verb.english == "know")
    if draw.chance(0.4):
        side = subordinate(_clause_beside(draw, main, negated=False))
        return fill("{} whether {}.", "{}, ob {}.", say(main), side)
    side, question_word = adverb_gap(draw)
    while side.subject.english == main.subject.english:
        side, question_word = adverb_gap(draw)
    return fill("{} {}.", "{}, {}.", say(main), subordinate(side, question_word))


def relative_subject(draw):
    """The man who is repairing the car is tired. Peter knows the girls who are singing."""
    noun = draw.choice(nouns_of("adult", "youth", "animal"))
    head = draw.noun_phrase(noun)._replace(adjective=None, determiner="the")
    clause = draw.clause(subject=head, negated=False)
    person = head._replace(relative=subordinate(clause._replace(subject=_relative_pronoun(head))))
    if draw.chance(0.5):
        return fill("{}.", "{}.", say(Clause(person, BE, complement=draw.quality(noun))))
    verb = verb_named(draw.choice(("see", "know", "love", "look for")))
    return fill("{}.", "{}.", say(Clause(draw.subject(tense="present"), verb, object=person)))


def relative_object(draw):
    """The coat that Anna bought is too expensive. The man who Peter is helping is old."""
    verb = draw.choice([verb for verb in verbs_of(*OBJECT_KINDS) if verb.objects])
    clause = draw.clause(verb, negated=False, place=False)
    while isinstance(clause.object, Pronoun) or clause.object.noun.group in ("name", "kin"):
        clause = draw.clause(verb, negated=False, place=False)
    head = clause.object._replace(adjective=None, determiner="the")
    pronoun = _relative_pronoun(head)
    preposition, _, case = verb.governs.rpartition(" ")
    front = pronoun.english, german.preposition_with(preposition, pronoun, case)
    head = head._replace(relative=subordinate(clause._replace(object=None), front))
    return fill("{}.", "{}.", say(Clause(head, BE, complement=draw.quality(head.noun))))


def attempt(draw):
    """Anna is trying to open the door. We forgot to turn off the lamp."""
    matrix, verbs = draw.choice(_ATTEMPTS)
    verb = verb_named(matrix, "infinitive")
    tense = draw.choice(("present", "past")) if verb.is_action else "past"
    subject = draw.subject(tense=tense)
    main = Clause(subject, verb, tense)
    return fill("{} {}.", "{}, {}.", say(main), _infinitive(draw, verbs, subject))


def purpose(draw):
    """Peter is going into the city to buy a coat."""
    place, verbs = draw.choice(_PURPOSES)
    (noun,) = nouns_of(place)
    into = PrepositionalPhrase("into", NounPhrase("the", noun))
    tense = draw.choice(("present", "past", WANT, MUST, WILL))
    subject = draw.subject(tense=tense)
    main = Clause(subject, verb_named("go", "direction"), tense, place=into)
    return fill("{} {}.", "{}, um {}.", say(main), _infinitive(draw, verbs, subject))


def _weakened(draw, conjunction, main):
    """Joins a main clause and "because he is tired"; the subject is named in the first of them."""
    weakness, person = draw.choice(_WEAKNESSES), main.subject
    if draw.chance(0.5):
        side = Clause(pronoun_for(person), BE, complement=weakness)
        return main_first(conjunction, main, subordinate(side))
    main = main._replace(subject=pronoun_for(person))
    return side_first(conjunction, main, subordinate(Clause(person, BE, complement=weakness)))


def _clause_beside(draw, other, **given):
    """A clause with another subject than that of a given clause."""
    clause = draw.clause(**given)
    while clause.subject.english == other.subject.english:
        clause = draw.clause(**given)
    return clause


def _subject_of(verb, draw):
    """Who says, asks, thinks, hopes or knows something; with the last three, often "I"."""
    if verb.english not in ("say", "ask") and draw.chance(0.3):
        return PRONOUNS["I"]
    return draw.subject(definite=True)


def _relative_pronoun(phrase):
    """The relative pronoun for a noun phrase: "who" or "that", in German by gender and case."""
    word = "who" if phrase.noun.group in PEOPLE else "that"
    forms = (german.relative_pronoun(phrase, case) for case in ("nom", "acc", "dat"))
    return Pronoun(phrase.person, word, word, *forms)


def _infinitive(draw, names, subject):
    """An infinitive of one of a few verbs, with its objects."""
    verbs = [verb for verb in verbs_of(*OBJECT_KINDS, "nothing") if verb.english in names]
    verb = draw.choice(verbs)
    deed = draw.clause(verb, subject, "past", negated=False, place=False)
    return english.infinitive(deed), german.infinitive(deed)


# How often each is drawn.
COMPOUND = (
    (trouble, 3),
    (possession, 3),
    (contrast, 2),
    (reason, 4),
    (concession, 3),
    (condition, 3),
    (moment, 3),
    (simultaneity, 2),
    (report, 4),
    (indirect_question, 3),
    (relative_subject, 3),
    (relative_object, 3),
    (attempt, 2),
    (purpose, 2),
)
