"""Long text in an export: split into sentences inside the graph, translated, and joined again.

A sentence ends after . ! ? or an ellipsis, with the closing quotes and brackets that follow it, if
white space and the beginning of a sentence come next: a capital letter, a digit, a letter of a
script without case, an opening quote or bracket. Initials, numbers of one or two digits (as in
"3. Mai") and a few abbreviations do not end a sentence. A full stop of Chinese or Japanese always
does, and so does the end of a line, which is kept. The time grows linearly with the length of the
text.
"""

import tensorflow as tf

from keras_transformer.tokenizers.tokenizer import PIECE_CHARACTERS, valid_texts

MAX_PARTS = 256
"""Maximum parts of a text that are translated. The rest is cut off, and the text is flagged."""

BREAK, SPACE = "\x1e", "\x1f"  # control characters, which have no meaning in a text
ABBREVIATIONS = (
    r"(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Mt|No|Nr|Vol|Fig|vs|etc|al"
    r"|e\.g|i\.e|cf|ca|approx|z\.B|d\.h|u\.a|bzw|usw|Str|Hr|Fr|Mme|Mlle|Sra|\p{Lu}|\d{1,2})"
)
CLOSING = r"""["'\x{201D}\x{2019}\x{BB})\]]*"""
OPENING = r"""["'\x{201C}\x{2018}\x{201E}\x{AB}(\[\x{BF}\x{A1}]*"""
BLANK = r"[ \t\x{A0}\x{3000}]"
RULES = (  # applied in this order; the one for abbreviations twice, as two may follow each other
    (f"[{BREAK}{SPACE}]", " "),
    (r"\r\n?|\x{2028}|\x{2029}", "\n"),
    (rf"{BLANK}*\n", f"{BREAK}\n"),
    *[(rf"(^|[^\p{{L}}\p{{N}}])({ABBREVIATIONS}\.){BLANK}+", rf"\1\2{SPACE}")] * 2,
    (
        rf"([.!?\x{{2026}}]{CLOSING}){BLANK}+({OPENING}[\p{{Lu}}\p{{Lt}}\p{{Lo}}\p{{Nd}}])",
        rf"\1{BREAK}\2",
    ),
    (r"([\x{3002}\x{FF01}\x{FF1F}]+[\x{300D}\x{300F}\x{FF09}\x{201D}]*)", rf"\1{BREAK}"),
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
    for pattern, replacement in RULES:
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
