"""Writes clauses in both languages at once: a pair is always (English, German).

Sentences begin small here; `make_phrases.py` capitalizes them.
"""

from phrases import english, german

_PLAIN = ("", "")


def fill(english_frame, german_frame, *pairs):
    """Fills both frames with the two sides of the pairs."""
    sides = zip(*pairs, strict=True)
    return tuple(f.format(*s) for f, s in zip((english_frame, german_frame), sides, strict=True))


def say(clause, front=_PLAIN):
    """A main clause, with the verb second in German; `front` may be a time or place."""
    return english.clause(clause, front=front[0]), german.clause(clause, front=front[1])


def ask(clause, front=_PLAIN):
    """A question, with the verb second after a question word, else first."""
    order = "second" if front[1] else "first"
    return english.clause(clause, True, front[0]), german.clause(clause, order, front[1])


def subordinate(clause, front=_PLAIN):
    """A subordinate clause, with the verb last; `front` may be a question word or pronoun."""
    return english.clause(clause, front=front[0]), german.clause(clause, "last", front[1])


def main_first(conjunction, main, side):
    """A main clause, followed by a subordinate one (already a pair)."""
    return fill("{} {} {}.", "{}, {} {}.", say(main), conjunction, side)


def side_first(conjunction, main, side):
    """A subordinate clause (already a pair), then a main one, with the verb first in German."""
    inverted = english.clause(main), german.clause(main, "first")
    return fill("{} {}, {}.", "{} {}, {}.", conjunction, side, inverted)
