"""The words of a translation: how sure the model is of each, and where it looked."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformer.decoding.prefixes import SPACE
from keras_transformer.layers.decoder import alignment_layer
from keras_transformer.special_ids import PAD_ID, UNKNOWN_ID, shift_right

UNKNOWN = "\u2047".encode()
"""What is written for an unknown token, as in SentencePiece."""


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
    attention: np.ndarray | None = None
    """NumPy `(words, source)`: how much the tokens of each word look at each word of the source, on
    average; None where the model has no attention to the source."""
    tokens: Sequence[int] = ()
    """For each token of the translation, the number of the token of the source at which the model
    looks most, as for `Word.source`; empty where the model has no attention to the source."""

    @property
    def alignment(self) -> str:
        """The pairs of words in the form of Pharaoh, such as `0-0 1-2`: source, then target."""
        return _pharaoh([word.source for word in self.words])

    @property
    def token_alignment(self) -> str:
        """The pairs of tokens, as `alignment` has those of words; without the end tokens."""
        return _pharaoh(self.tokens)


def _pharaoh(sources):
    pairs = sorted((source, i) for i, source in enumerate(sources) if source is not None)
    return " ".join(f"{source}-{target}" for source, target in pairs)


def force(model, source_ids, labels):
    """Returns what a model computes when it is given the translations.

    Args:
        model: `TranslationModel`.
        source_ids, labels: `(B, S)` and `(B, T)`, each row ended by the end token.
    Returns:
        `(logits, weights)`: `(B, T, V)`, and the list of the weights `(B, H, T, S)` of each layer's
        attention to the source; it is empty if the model does not give them.
    """
    inputs = {"source_ids": source_ids, "target_ids": shift_right(labels, ops)}
    if not model.gives_cross_weights:
        return model(inputs, training=False), []
    logits, weights = model(inputs, return_attention_weights=True, training=False)
    return logits, weights["cross"]


def alignment_of(weights, head=None):
    """Returns how much each token looks at each token of the source, `(B, T, S)`.

    Args:
        weights: list of `(B, H, T, S)`, those of each layer.
        head: `(layer, head)`, whose weights they are; None: the mean of all heads of the layer
            `alignment_layer`.
    """
    if head is not None:
        layer, number = head
        return ops.cast(weights[layer][:, number], "float32")
    return ops.mean(ops.cast(weights[alignment_layer(len(weights))], "float32"), axis=1)


def token_log_probs(logits, labels):
    """Returns the log-probability `(B, T)` of each of the labels `(B, T)`."""
    log_probs = ops.log_softmax(ops.cast(logits, "float32"))
    return ops.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]


def explain_tokens(source, target, log_probs, weights):
    """Returns the `Explanation` of a translation.

    Args:
        source, target: pairs of a tokenizer's `surfaces` and ids, which the end token ends.
        log_probs: `(T,)`, of the target's tokens.
        weights: `(T, S)`, how much each of them looks at each token of the source; None: unknown.
    """
    source_words, source_places = words_of(*source)
    words, places = words_of(*target)
    attention, best, tokens = None, [None] * len(words), ()
    if weights is not None and source_places and words:
        looks = [weights[tokens].mean(axis=0) for tokens in places]
        attention = np.array([[look[each].sum() for each in source_places] for look in looks])
        best = attention.argmax(axis=1).tolist()
        sides = (list(itertools.chain(*each)) for each in (places, source_places))
        tokens = weights[np.ix_(*sides)].argmax(axis=1).tolist()
    scores = [float(log_probs[tokens].sum()) for tokens in places]
    found = [Word(*each) for each in zip(words, scores, best, strict=True)]
    return Explanation(source_words, found, attention, tokens)


def words_of(surfaces, ids):
    """Returns the words of some ids, and for each the list of the places of its tokens.

    Tokens without a surface belong to the word before them; the end token and padding to none.
    """
    texts, places = [], []
    for place, i in enumerate(ids[:-1]):
        surface = surfaces[i] if i < len(surfaces) else b""
        surface = UNKNOWN if i == UNKNOWN_ID else surface
        if i == PAD_ID:
            continue
        if not texts or surface.startswith(SPACE):
            texts.append(b"")
            places.append([])
        texts[-1] += surface
        places[-1].append(place)
    return [text.decode("utf-8", "replace").strip() for text in texts], places
