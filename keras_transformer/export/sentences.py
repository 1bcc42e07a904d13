"""Long text in an export: split into sentences inside the graph, translated, and joined again.

A sentence ends after . ! ? or an ellipsis, with the closing quotes, brackets and symbols such as
emoji that follow it, if white space and the beginning of a sentence come next: a capital letter, a
digit, a letter of a script without case, also behind opening quotes, brackets, bullets and symbols.
Initials, numbers of one or two digits (as in "3. Mai") and a few abbreviations (as "z. B.") do not
end a sentence.

The other characters that end sentences in Unicode (`Sentence_Break=STerm`,
https://www.unicode.org/reports/tr29/), such as the full stops of Chinese, Japanese and Hindi and
the question mark of Arabic, always do, unless a comma or another `SContinue` follows, and so does
the full-width full stop. So does the end of a line, which is kept. The time grows linearly with the
length of the text.
"""

import functools

import regex
import tensorflow as tf

from keras_transformer.tokenizers.graph.base import valid_texts
from keras_transformer.tokenizers.patterns import PIECE_CHARACTERS

MAX_PARTS = 256
"""Maximum parts of a text that are translated. The rest is cut off, and the text is flagged."""

BREAK, SPACE = "\x1e", "\x1f"  # control characters, which have no meaning in a text
ABBREVIATIONS = (
    r"(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Mt|No|Nr|Vol|Fig|vs|etc|al"
    r"|e\.g|i\.e|cf|ca|approx|z\.B|d\.h|u\.a|bzw|usw|Chr|Str|Hr|Fr|Mme|Mlle|Sra|\p{Lu})"
)
CLOSING = r"""["'\p{Pe}\p{Pf}]"""
GERMAN_CLOSING = r"[\x{201C}\x{2018}]"  # which open a quotation in other languages
SYMBOL = r"[\p{So}\p{Sk}\x{FE0F}\x{200D}]"
OPENING = rf"""(?:["'\p{{Ps}}\p{{Pi}}\x{{BF}}\x{{A1}}\x{{2022}}\x{{2023}}\x{{2043}}]|{SYMBOL})"""
BLANK = r"[\t\p{Zs}]"


@functools.cache
def _rules():
    """Returns the patterns and what replaces them, in the order in which they are applied."""
    letters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    terminators, continuing = (
        "".join(rf"\x{{{ord(found):X}}}" for found in regex.findall(pattern, letters))
        for pattern in (r"(?V1)[\p{SB=STerm}--[!?]]", r"\p{SB=SContinue}")
    )
    return (
        (f"[{BREAK}{SPACE}]", " "),
        (r"\r\n?|\x{2028}|\x{2029}", "\n"),
        (rf"{BLANK}*\n", f"{BREAK}\n"),
        # as in "z. B." and "v. Chr."
        (rf"(^|[^\p{{L}}\p{{N}}])(\p{{Ll}}\.){BLANK}+((?:\p{{Lu}}|Chr)\.)", rf"\1\2{SPACE}\3"),
        # twice, as two abbreviations may follow each other
        *[(rf"(^|[^\p{{L}}\p{{N}}])({ABBREVIATIONS}\.){BLANK}+", rf"\1\2{SPACE}")] * 2,
        (rf"(^|[^\p{{L}}\p{{N}}.,])(\p{{Nd}}{{1,2}}\.){BLANK}+", rf"\1\2{SPACE}"),  # but not 2.0
        (
            rf"([.!?\x{{2026}}](?:[\x{{A0}}\x{{202F}}]?{CLOSING}|{GERMAN_CLOSING}|{SYMBOL})*)"
            rf"{BLANK}+((?:{OPENING}|{BLANK})*[\p{{Lu}}\p{{Lt}}\p{{Lo}}\p{{Nd}}])",
            rf"\1{BREAK}\2",
        ),
        (
            rf"([{terminators}\x{{FF0E}}]+(?:[\x{{A0}}\x{{202F}}]?{CLOSING})*){BLANK}*",
            rf"\1{BREAK}",
        ),
        (rf"{BREAK}([{continuing}])", r"\1"),
        (rf"(\p{{Nd}}\x{{FF0E}}){BREAK}(\p{{Nd}})", r"\1\2"),  # a decimal point
        (rf"(?:{BREAK}{BLANK}*)+({BREAK}\n|$)", r"\1"),  # the end of a line is a break already
        (SPACE, " "),
    )


def split(texts, max_tokens):
    """Returns the parts of each text, and what joins them.

    Args:
        texts: strings `(B,)`.
        max_tokens: maximum tokens of a part that are translated.
    Returns:
        `(parts, joints, truncated)`: ragged strings `(B, None)`, at least one per text; ragged
        strings of the same shape, which stand before each part in the joined text; and bool `(B,)`,
        True where something was cut off.
    """
    texts = valid_texts(texts)
    heads = tf.strings.substr(texts, 0, MAX_PARTS * max_tokens * PIECE_CHARACTERS, "UTF8_CHAR")
    marked = heads
    for pattern, replacement in _rules():
        marked = tf.strings.regex_replace(marked, pattern, replacement)
    parts = tf.strings.split(marked, BREAK)
    truncated = tf.strings.length(heads) < tf.strings.length(texts)
    truncated |= parts.row_lengths() > MAX_PARTS
    parts = parts[:, :MAX_PARTS]
    begins_line = tf.strings.regex_full_match(parts.flat_values, r"(?s)\n.*")
    joints = parts.with_flat_values(tf.where(begins_line, "\n", " "))
    first = tf.zeros([parts.nrows(), 1], tf.string)
    joints = tf.concat([tf.RaggedTensor.from_tensor(first), joints[:, 1:]], axis=1)
    return tf.ragged.map_flat_values(tf.strings.strip, parts), joints, truncated


def join(translations, joints):
    """Returns the joined text of each row of parts: strings `(B,)`.

    Args:
        translations: strings, one for each part, in the order of `joints.flat_values`.
        joints: the second result of `split`.
    """
    return tf.strings.reduce_join(
        joints.with_flat_values(joints.flat_values + translations), axis=1
    )
