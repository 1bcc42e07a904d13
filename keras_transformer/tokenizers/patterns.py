"""What tokenizers look for in a text, on the host and inside a TensorFlow graph alike."""

import functools
import re

import regex

PIECE_CHARACTERS = 64
"""More characters than any token has, including the white space around it."""

WHITE_SPACE = r"[\t-\r\x1c-\x20\x{85}\pZ]"  # what `str.strip` removes
TAG = re.compile(r">>.*?<<", re.DOTALL)
"""The tag of a target language, such as `>>deu<<`, at the beginning of a text."""

REMOVED = r"[\uFFFD\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\p{Cf}\p{Co}]"
SPACES = r"[\t\n\r\p{Z}]"
IDEOGRAPHS = (  # the blocks in BERT's own code, one of which ends too early there
    r"[\u4E00-\u9FFF\u3400-\u4DBF\U00020000-\U0002A6DF\U0002A700-\U0002B73F\U0002B740-\U0002B81F"
    r"\U0002B920-\U0002CEAF\uF900-\uFAFF\U0002F800-\U0002FA1F]"
)
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
MARKS = r"\p{Mn}"
"""Characters as BERT's normalizer and pre-tokenizer class them, for the library `regex`."""


@functools.cache
def ranges(pattern):
    """Returns one of these classes of characters for TensorFlow, as a list of ranges.

    TensorFlow and the library `regex` have Unicode's tables of different years. Spelled out, a
    class is the same in both.
    """
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    spans = (match.group() for match in regex.finditer(f"{pattern}+", characters))
    return "".join(rf"\x{{{ord(span[0]):X}}}-\x{{{ord(span[-1]):X}}}" for span in _within(spans))


def _within(spans):
    """Yields the parts of spans on each side of the surrogates, which no text has."""
    for span in spans:
        before = [character for character in span if character < "\ud800"]
        parts = span[: len(before)], span[len(before) :]
        yield from filter(None, parts)
