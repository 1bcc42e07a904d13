"""Writes clauses in both languages at once: a pair is always (English, German).

Sentences begin small here; `make_phrases.py` capitalizes them.
"""

from phrases import english, german
from phrases.syntax import link

_PLAIN = ("", "")


def fill(english_frame, german_frame, *pairs):
    """Fills both frames with the two sides of the pairs."""
    frames = link((english_frame, german_frame))
    sides = zip(*map(link, pairs), strict=True)
    return tuple(frame.format(*side) for frame, side in zip(frames, sides, strict=True))


def _linked(clause, front=_PLAIN):
    """Returns a clause and its front, in which the words of pairs are linked."""
    time, complement = map(link, (clause.time, clause.complement))
    return clause._replace(time=time, complement=complement), link(front)


def say(clause, front=_PLAIN):
    """A main clause, with the verb second in German; `front` may be a time or place."""
    clause, front = _linked(clause, front)
    return english.clause(clause, front=front[0]), german.clause(clause, front=front[1])


def ask(clause, front=_PLAIN):
    """A question, with the verb second after a question word, else first."""
    clause, front = _linked(clause, front)
    order = "second" if front[1] else "first"
    return english.clause(clause, True, front[0]), german.clause(clause, order, front[1])


def subordinate(clause, front=_PLAIN):
    """A subordinate clause, with the verb last; `front` may be a question word or pronoun."""
    clause, front = _linked(clause, front)
    return english.clause(clause, front=front[0]), german.clause(clause, "last", front[1])


def main_first(conjunction, main, side):
    """A main clause, followed by a subordinate one (already a pair)."""
    return fill("{} {} {}.", "{}, {} {}.", say(main), conjunction, side)


def side_first(conjunction, main, side):
    """A subordinate clause (already a pair), then a main one, with the verb first in German."""
    main, _ = _linked(main)
    inverted = english.clause(main), german.clause(main, "first")
    return fill("{} {}, {}.", "{} {}, {}.", conjunction, side, inverted)
