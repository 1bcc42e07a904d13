"""Sentences of one clause: statements, comparisons, positions, questions.

Each function draws one and returns it in English and German.
"""

from phrases import english, german
from phrases.draw import (
    CAN,
    OBJECT_KINDS,
    SHOULD,
    WILL,
    adjectives_of,
    nouns_of,
    pronoun_for,
    verb_named,
    verbs_of,
)
from phrases.lexicon import BE, NOUNS, PEOPLE, PRONOUNS, TIMES, VERBS
from phrases.pairs import ask, fill, say
from phrases.syntax import Clause


def statement(draw):
    """Anna is not buying the coat. Today Anna is buying a coat. Anna is buying a coat today."""
    clause = draw.clause()
    time = draw.time(clause) if draw.chance(0.5) else None
    if time and draw.chance(0.5):
        return fill("{}.", "{}.", say(clause, front=time))
    if clause.verb.governs != "transfer":
        clause = clause._replace(time=time)
    return fill("{}.", "{}.", say(clause))


def place_first(draw):
    """In the garden the boy is reading a book."""
    verb = draw.choice([verb for verb in VERBS if verb.places and verb.is_action])
    clause = draw.clause(verb, negated=False, place=False)
    place = draw.place(verb.places, clause.subject)
    front = english.prepositional_phrase(place), german.prepositional_phrase(place)
    return fill("{}.", "{}.", say(clause, front))


def description(draw):
    """The red coat is not very expensive. Yesterday the child was tired."""
    noun = draw.choice([noun for noun in NOUNS if noun.group not in ("name", *_SCENES)])
    subject = draw.noun_phrase(noun, definite=True)._replace(adjective=None)
    clause = Clause(subject, BE, complement=draw.quality(noun), negated=draw.chance(0.25))
    if clause.complement[0].split()[-1] in _PASSING and draw.chance(0.5):
        clause = clause._replace(tense="past")
        if noun.group in PEOPLE:
            return fill("{}.", "{}.", say(clause, draw.choice(TIMES["past"])))
    return fill("{}.", "{}.", say(clause))


_SCENES = ("thing", "home", "place")
_PASSING = ("tired", "happy", "sad", "sick", "hungry", "dirty", "broken")


def comparison(draw):
    """The dog is bigger than the cat. Anna's car is not as old as my bicycle."""
    group = draw.choice(("adult", "animal", "text", "clothes", "vehicle", "device", "furniture"))
    subject, other = (draw.noun_phrase(draw.choice(nouns_of(group)), definite=True) for _ in "ab")
    while other.noun == subject.noun:
        other = draw.noun_phrase(draw.choice(nouns_of(group)), definite=True)
    adjective = draw.choice([a for a in adjectives_of(subject.noun) if a.english_comparative])
    subject, other = subject._replace(adjective=None), other._replace(adjective=None)
    pair = english.noun_phrase(other), german.noun_phrase(other, "nom")
    if draw.chance(0.6):
        quality = adjective.english_comparative, adjective.german_comparative
        complement = fill("{} than {}", "{} als {}", quality, pair)
    else:
        complement = fill("as {} as {}", "so {} wie {}", adjective[:2], pair)
    clause = Clause(subject, BE, complement=complement, negated=draw.chance(0.3))
    return fill("{}.", "{}.", say(clause))


def position(draw):
    """The key is lying on the table. Where is the key? It is under my bed."""
    thing = draw.noun_phrase(draw.choice(nouns_of("text", "clothes", "thing")), definite=True)
    place = draw.resting_place()
    if draw.chance(0.5):
        verb = verb_named("lie", "position") if draw.chance(0.7) else BE
        clause = Clause(thing, verb, negated=draw.chance(0.2), place=place)
        return fill("{}.", "{}.", say(clause))
    question = Clause(thing, BE)
    answer = Clause(pronoun_for(thing), BE, place=place)
    return fill("{}? {}.", "{}? {}.", ask(question, ("where", "wo")), say(answer))


def yes_no_question(draw):
    """Did the boy read the letter yesterday? Anna, is the boy reading the letter?"""
    clause = draw.clause(negated=False, definite=True)
    if clause.verb.governs != "transfer" and draw.chance(0.3):
        clause = clause._replace(time=draw.time(clause))
    question = fill("{}?", "{}?", ask(clause))
    if clause.tense != "present":
        return question
    names = [noun.english for noun in nouns_of("name") if noun.english not in question[0]]
    name = draw.choice(names)
    return fill("{}, {}", "{}, {}", (name, name), question)


def who_question(draw):
    """Who is repairing the car? Who is Anna helping? Who did the dog wait for?"""
    if draw.chance(0.5):
        verb = draw.choice(verbs_of(*OBJECT_KINDS, "nothing", "direction", "transfer"))
        clause = draw.clause(verb, PRONOUNS["who"], negated=False)
        return fill("{}?", "{}?", say(clause))
    verb = draw.choice([v for v in verbs_of(*OBJECT_KINDS) if "name" in v.objects])
    clause = draw.clause(verb, negated=False, place=False, definite=True)._replace(object=None)
    preposition, _, case = verb.governs.rpartition(" ")
    whom = german.preposition_with(preposition, PRONOUNS["who"], case)
    return fill("{}?", "{}?", ask(clause, ("who", whom)))


def object_question(draw):
    """What did Peter buy? Which book is the girl reading? How many apples can we eat?"""
    things = [v for v in verbs_of("acc") if "name" not in v.objects]
    clause = draw.clause(draw.choice(things), negated=False, definite=True)
    noun = clause.object.noun
    clause = clause._replace(object=None)
    kind = draw.choice(("what", "which", "how many"))
    if kind == "what" or not noun.is_counted:
        return fill("{}?", "{}?", ask(clause, ("what", "was")))
    if kind == "which":
        which = draw.noun_phrase(noun)._replace(determiner="which")
        front = english.noun_phrase(which), german.noun_phrase(which, "acc")
    else:
        front = f"how many {noun.english_plural}", f"wie viele {noun.german_plural}"
    return fill("{}?", "{}?", ask(clause, front))


def adverb_question(draw):
    """Where is the child sleeping? When did Anna come back? Why does Peter not want to sing?"""
    return fill("{}?", "{}?", ask(*adverb_gap(draw)))


def adverb_gap(draw):
    """Returns a clause that leaves out where, when or why, and the question word."""
    kind = draw.choice((("where", "wo"), ("where", "wohin"), ("when", "wann"), ("why", "warum")))
    if kind[1] == "wo":
        verb = draw.choice([verb for verb in VERBS if verb.places and verb.is_action])
        return draw.clause(verb, negated=False, place=False, definite=True), kind
    if kind[1] == "wohin":
        verb = verb_named("go", "direction")
        return draw.clause(verb, negated=False, definite=True)._replace(place=None), kind
    if kind[1] == "wann":
        tense = draw.choice(("past", "past", WILL, CAN, SHOULD))
        return draw.clause(tense=tense, negated=False, action=True, definite=True), kind
    return draw.clause(negated=draw.chance(0.4), action=True, definite=True), kind


# How often each is drawn.
SIMPLE = (
    (statement, 14),
    (place_first, 2),
    (description, 3),
    (comparison, 3),
    (position, 3),
    (yes_no_question, 4),
    (who_question, 3),
    (object_question, 3),
    (adverb_question, 3),
)
