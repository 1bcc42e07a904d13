"""A small English-German corpus about everyday things, such as "The boy is reading a long letter."

The sentences are in `phrases.tsv.bz2`, which `tools/make_phrases.py` makes from a grammar.
"""

import bz2
import pathlib
import re
from collections import Counter
from typing import NamedTuple

from keras_transformer.errors import InputError

PHRASES = pathlib.Path(__file__).with_name("phrases.tsv.bz2")


class PhraseSplits(NamedTuple):
    """Three lists of (English, German) pairs. No English or German sentence is in two of them."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def phrase_corpus(num_sentences: int = 6000) -> PhraseSplits:
    """Returns the first sentences of the corpus, all of them different, in three splits.

    Held-out sentences are new, but their words are not: each word occurs in at least two training
    sentences, and in at least one of 750. So they test the grammar that a model has learned.

    Args:
        num_sentences: number of pairs in all three splits together, from about 600 to 12,000. One
            pair in 24 is for validation, and one in 24 for the test.
    Raises:
        ValueError: there are not that many sentences, or too few for held-out ones of known words.
    """
    lines = bz2.decompress(PHRASES.read_bytes()).decode().splitlines()
    if not 0 < num_sentences <= len(lines):
        raise InputError(f"Expected 1 to {len(lines):,} sentences. Received: {num_sentences=}.")
    pairs = [(english, german) for english, _, german in (line.partition("\t") for line in lines)]
    num_test = num_sentences // 24
    train, held_out = _split(pairs[:num_sentences], 2 * num_test)
    return PhraseSplits(train, held_out[:num_test], held_out[num_test:])


def _split(pairs, num_held_out):
    """Holds out the first pairs whose words all occur in enough others."""
    words = [set(re.findall(r"\w+", " ".join(pair))) for pair in pairs]
    occurrences = Counter(word for sentence in words for word in sentence)
    enough = max(2, len(pairs) // 750)
    train, held_out = [], []
    for pair, sentence in zip(pairs, words, strict=True):
        if len(held_out) < num_held_out and min(occurrences[word] for word in sentence) > enough:
            held_out.append(pair)
            occurrences.subtract(sentence)
        else:
            train.append(pair)
    if len(held_out) < num_held_out:
        raise InputError(
            f"Expected {num_held_out} sentences of known words for validation and test. "
            f"Received: num_sentences={len(pairs)}, with {len(held_out)} of them. "
            "Ask for more sentences."
        )
    return train, held_out
