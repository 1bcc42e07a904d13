"""A generated English-German corpus: a small grammar says each meaning in both languages.

- lexicon: the words, as tables
- syntax: what a clause consists of
- english: says a clause in English
- german: says it in German, with its genders, cases, endings and order of words
- draw: draws words that make sense together
- pairs: says a clause in both
- simple, compound: the kinds of sentences
"""

import re
from collections import Counter
from typing import NamedTuple

from keras_transformer.data.phrases.compound import COMPOUND
from keras_transformer.data.phrases.draw import Draw
from keras_transformer.data.phrases.simple import SIMPLE

_PATTERNS = [pattern for pattern, times in SIMPLE + COMPOUND for _ in range(times)]
_MAX_SENTENCES = 50_000  # beyond it new sentences become rare
_MIN_WORDS, _MAX_WORDS = 3, 18


class PhraseSplits(NamedTuple):
    """Three lists of (English, German) pairs; no sentence, English or German, stands in two."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def phrase_corpus(num_sentences=6000, held_out=None, seed=1):
    """Returns a corpus of distinct sentences, alike for a seed on every machine and Python.

    Held-out sentences are new, their words are not: each stands in one of 750 training sentences
    (in two at least), so that what is asked for is grammar.

    Args:
        num_sentences: pairs in all three splits together, 700 to 50,000.
        held_out: pairs in each of the validation and test splits; None is one in 24.
        seed: int.
    Returns:
        `PhraseSplits`.
    Raises:
        ValueError: too many sentences, or too few that know the words of the held-out ones.
    """
    held_out = num_sentences // 24 if held_out is None else held_out
    if not 0 <= held_out < num_sentences <= _MAX_SENTENCES:
        raise ValueError(
            f"Expected 0 <= held_out < num_sentences <= {_MAX_SENTENCES}. "
            f"Received: num_sentences={num_sentences}, held_out={held_out}. "
            "Ask for a number in between."
        )
    draw, pairs, german_sentences = Draw(seed), {}, set()
    while len(pairs) < num_sentences:
        english, german = (_finish(text) for text in draw.choice(_PATTERNS)(draw))
        fits = _MIN_WORDS <= len(english.split()) <= _MAX_WORDS
        if fits and english not in pairs and german not in german_sentences:
            pairs[english] = german
            german_sentences.add(german)
    train, held = _split(list(pairs.items()), 2 * held_out)
    return PhraseSplits(train, held[:held_out], held[held_out:])


def _finish(text):
    """Capitalizes each sentence and drops the comma of a relative clause before a full stop."""
    text = re.sub(r",(?=[.?,])", "", text)
    return re.sub(r"(^|[.?] )(\w)", lambda found: found[1] + found[2].upper(), text)


def _split(pairs, held_out):
    """Holds out the first pairs whose words are all known from enough others."""
    words = [set(re.findall(r"\w+", " ".join(pair))) for pair in pairs]
    occurrences = Counter(word for sentence in words for word in sentence)
    enough = max(2, len(pairs) // 750)
    train, held = [], []
    for pair, sentence in zip(pairs, words, strict=True):
        if len(held) < held_out and min(occurrences[word] for word in sentence) > enough:
            held.append(pair)
            occurrences.subtract(sentence)
        else:
            train.append(pair)
    if len(held) < held_out or not train:
        raise ValueError(
            f"Expected sentences of known words for validation and test: {held_out}. "
            f"Received: num_sentences={len(pairs)}, with {len(held)} of them. "
            "Ask for more sentences or hold out fewer."
        )
    return train, held
