"""Makes `phrases.tsv.bz2`, the English-German sentences of the quickstart.

    python tools/make_phrases.py

A small grammar, in the folder `phrases`, writes each sentence in both languages. It needs the
standard library alone, and makes the same sentences on every machine. After a change of the
grammar, run this, and measure the quickstart's BLEU score again.
"""

import bz2
import contextlib
import pathlib
import re

from phrases.compound import COMPOUND
from phrases.draw import Draw
from phrases.simple import SIMPLE
from phrases.syntax import alignment, marking, plain

NUM_SENTENCES = 12_000
SEED = 1
OUTPUT = pathlib.Path(__file__).parents[1] / "keras_transformer/quickstart/phrases.tsv.bz2"
PATTERNS = [pattern for pattern, times in SIMPLE + COMPOUND for _ in range(times)]
MIN_WORDS, MAX_WORDS = 3, 18


def main():
    OUTPUT.write_bytes(bz2.compress(text().encode()))


def text():
    """Returns the lines of the file: an English sentence, a tab, the German one."""
    return "".join(f"{english}\t{german}\n" for english, german in pairs())


def pairs():
    """Yields (English, German) pairs in which no sentence of either language occurs twice."""
    return _drawn(contextlib.nullcontext)


def aligned_pairs():
    """Yields `(English, German, sure, possible)`: those pairs, and the links of their words.

    The links are two sets of pairs of word numbers, see `alignment`.
    """
    for marked in _drawn(marking):
        yield *map(plain, marked), *alignment(*marked)


def _drawn(context):
    draw, english_sentences, german_sentences = Draw(SEED), set(), set()
    while len(english_sentences) < NUM_SENTENCES:
        with context():
            pair = tuple(map(finish, draw.choice(PATTERNS)(draw)))
        english, german = map(plain, pair)
        fits = MIN_WORDS <= len(english.split()) <= MAX_WORDS
        if fits and english not in english_sentences and german not in german_sentences:
            english_sentences.add(english)
            german_sentences.add(german)
            yield pair


def finish(sentence):
    """Capitalizes each sentence and drops the comma of a relative clause before a full stop."""
    sentence = re.sub(r",(?=[.?,])", "", sentence)
    return re.sub(r"(^|[.?] )(\w)", lambda match: match[1] + match[2].upper(), sentence)


if __name__ == "__main__":
    main()
