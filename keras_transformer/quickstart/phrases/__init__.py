"""A generated English-German corpus: a small grammar writes each sentence in both languages.

- lexicon: the words, as tables
- syntax: the parts of a clause
- english: writes a clause in English
- german: writes it in German, with its genders, cases, endings and word order
- draw: draws words that make sense together
- pairs: writes a clause in both languages
- simple, compound: the kinds of sentences
"""

import re
from collections import Counter
from typing import NamedTuple

from keras_transformer.errors import InputError
from keras_transformer.quickstart.phrases.compound import COMPOUND
from keras_transformer.quickstart.phrases.draw import Draw
from keras_transformer.quickstart.phrases.simple import SIMPLE

_PATTERNS = [pattern for pattern, times in SIMPLE + COMPOUND for _ in range(times)]
_MAX_SENTENCES = 50_000  # beyond that, new sentences become rare
_MIN_WORDS, _MAX_WORDS = 3, 18


class PhraseSplits(NamedTuple):
    """Three lists of (English, German) pairs. No English or German sentence is in two of them."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def phrase_corpus(num_sentences=6000, seed=1):
    """Returns a corpus of distinct sentences; a seed gives the same one on every machine.

    Held-out sentences are new, but their words are not: each word occurs in one of 750 training
    sentences, and in two at least. So they test the grammar that a model has learned.

    Args:
        num_sentences: number of pairs in all three splits together, 700 to 50,000. One pair in 24
            is for validation, and one in 24 for the test.
        seed: int.
    Returns:
        `PhraseSplits`.
    Raises:
        ValueError: `num_sentences` is too large, or too small for sentences of known words.
    """
    if not 0 < num_sentences <= _MAX_SENTENCES:
        raise InputError(
            f"Expected 1 to {_MAX_SENTENCES:,} sentences. "
            f"Received: num_sentences={num_sentences}. Choose a number in between."
        )
    draw, pairs, german_sentences = Draw(seed), {}, set()
    while len(pairs) < num_sentences:
        english, german = (_finish(text) for text in draw.choice(_PATTERNS)(draw))
        fits = _MIN_WORDS <= len(english.split()) <= _MAX_WORDS
        if fits and english not in pairs and german not in german_sentences:
            pairs[english] = german
            german_sentences.add(german)
    num_test = num_sentences // 24
    train, held_out = _split(list(pairs.items()), 2 * num_test)
    return PhraseSplits(train, held_out[:num_test], held_out[num_test:])


def _finish(text):
    """Capitalizes each sentence and drops the comma of a relative clause before a full stop."""
    text = re.sub(r",(?=[.?,])", "", text)
    return re.sub(r"(^|[.?] )(\w)", lambda found: found[1] + found[2].upper(), text)


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
