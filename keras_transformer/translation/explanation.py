"""The words of a translation: how sure the model is of each, and where it looked."""

from typing import NamedTuple

import numpy as np

from keras_transformer.special_ids import PAD_ID

SPACE = b" "


class Word(NamedTuple):
    """A word of a text, as its tokenizer splits it: a token that begins with a space begins one."""

    text: str
    score: float
    """Log-probability of its tokens, each after those before it."""
    source: int | None
    """Number of the word of the source at which the model looks most while it writes this one, from
    0; None where the model has no attention to the source."""


class Explanation(NamedTuple):
    """What a model says of one translation."""

    source: list[str]
    """The words of the source, as `Word.text`."""
    words: list[Word]
    """The words of the translation."""

    @property
    def alignment(self) -> str:
        """The pairs of words in the form of Pharaoh, such as `0-0 1-2`: source, then target."""
        pairs = ((word.source, i) for i, word in enumerate(self.words) if word.source is not None)
        return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def explain_tokens(source, target, log_probs, weights):
    """Returns the `Explanation` of a translation.

    Args:
        source, target: pairs of a tokenizer's `surfaces` and ids, which the end token ends.
        log_probs: `(T,)`, of the target's tokens.
        weights: `(T, S)`, how much each of them looks at each token of the source; None: unknown.
    """
    source_words, source_places = words_of(*source)
    words, places = words_of(*target)
    found = []
    for text, tokens in zip(words, places, strict=True):
        best = None
        if weights is not None and source_places:
            looks = weights[tokens].sum(axis=0)
            best = int(np.argmax([looks[each].sum() for each in source_places]))
        found.append(Word(text, float(log_probs[tokens].sum()), best))
    return Explanation(source_words, found)


def words_of(surfaces, ids):
    """Returns the words of some ids, and for each the list of the places of its tokens.

    Tokens without a surface, such as the unknown one, belong to the word before them; the end token
    and padding to none.
    """
    texts, places = [], []
    for place, i in enumerate(ids[:-1]):
        surface = surfaces[i] if i < len(surfaces) else b""
        if i == PAD_ID:
            continue
        if not texts or surface.startswith(SPACE):
            texts.append(b"")
            places.append([])
        texts[-1] += surface
        places[-1].append(place)
    return [text.decode("utf-8", "replace").strip() for text in texts], places
