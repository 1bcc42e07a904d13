"""Makes `phrases.tsv.bz2`, the English-German sentences of the quickstart.

    python tools/make_phrases.py

A small grammar, in the folder `phrases`, writes each sentence in both languages. It needs the
standard library alone, and makes the same sentences on every machine. After a change of the
grammar, run this, and measure the quickstart's BLEU score again.
"""

import bz2
import pathlib
import re

from phrases.compound import COMPOUND
from phrases.draw import Draw
from phrases.simple import SIMPLE

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
    """Returns (English, German) pairs in which no sentence of either language occurs twice."""
    draw, found, german_sentences = Draw(SEED), {}, set()
    while len(found) < NUM_SENTENCES:
        english, german = (finish(sentence) for sentence in draw.choice(PATTERNS)(draw))
        fits = MIN_WORDS <= len(english.split()) <= MAX_WORDS
        if fits and english not in found and german not in german_sentences:
            found[english] = german
            german_sentences.add(german)
    return list(found.items())


def finish(sentence):
    """Capitalizes each sentence and drops the comma of a relative clause before a full stop."""
    sentence = re.sub(r",(?=[.?,])", "", sentence)
    return re.sub(r"(^|[.?] )(\w)", lambda match: match[1] + match[2].upper(), sentence)


if __name__ == "__main__":
    main()
