"""Translations whose beginnings are given."""

import numpy as np

from keras_transformer.decoding.prefixes import Prefixes
from keras_transformer.errors import InputError
from keras_transformer.special_ids import UNKNOWN_ID


class BegunTexts:
    """The prefixes of the translations of some texts.

    Args:
        tokenizer: `Tokenizer` of the target.
        vocabulary: `PrefixVocabulary` of its tokens.
        prefixes: list of str.
        max_tokens: maximum tokens of a prefix.
    Attributes:
        shown: list of str, how the tokenizer writes each prefix; "" where there is none.
        searched: `Prefixes` for the search.
    Raises:
        ValueError: a prefix has more tokens, or characters that the tokenizer does not know.
    """

    def __init__(self, tokenizer, vocabulary, prefixes, max_tokens):
        self._given = prefixes
        rows = tokenizer.encode_on_host(prefixes)
        for row, prefix in zip(rows, prefixes, strict=True):
            if UNKNOWN_ID in row:
                raise InputError(
                    "Expected prefixes of characters that the tokenizer of the target knows. "
                    f"Received: {prefix!r:.200}. Leave the unknown ones out."
                )
            if len(row) > max_tokens:
                raise InputError(
                    f"Expected prefixes of at most {max_tokens} tokens. Received: {len(row)}, of "
                    f"{prefix!r:.200}. Shorten it, or split the text."
                )
        ends_word = [prefix != prefix.rstrip() for prefix in prefixes]
        written = zip(tokenizer.decode_on_host(rows), ends_word, strict=True)
        self.shown = [text + " " * (text != "" and ends) for text, ends in written]
        self.searched = Prefixes(vocabulary, list(zip(rows, ends_word, strict=True)))

    def with_tokens(self, ids, indices):
        """Returns the ids `(B, N, L)` of a batch behind the tokens that were given, and padding."""
        tokens = self.searched.tokens(indices, len(ids))
        tokens = np.broadcast_to(tokens[:, None], (*ids.shape[:2], tokens.shape[1]))
        return np.concatenate([tokens, ids], axis=2)

    def as_given(self, text, i):
        """Returns a translation of text `i` with its prefix as it was given, letter for letter.

        The tokenizer may have normalized it. A translation that has reached its limit within the
        prefix is the prefix alone.
        """
        is_whole = text.startswith(self.shown[i])
        return self._given[i] + text[len(self.shown[i]) :] if is_whole else self._given[i]
