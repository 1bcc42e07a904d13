"""Long text: where it is split, and how its parts are joined."""

import time

import pytest
import tensorflow as tf

from keras_transformer.export import sentences


def parts_of(*texts, max_tokens=256):
    """Returns the parts of each text as lists of str, and whether it was cut."""
    parts, joints, truncated = sentences.split(list(texts), max_tokens)
    assert parts.row_lengths().numpy().tolist() == joints.row_lengths().numpy().tolist()
    rows = [[part.decode() for part in row] for row in parts.to_list()]
    return rows, truncated.numpy().tolist()


def joined(*texts):
    """Returns each text, split and joined again as it was."""
    parts, joints, _ = sentences.split(list(texts), 256)
    return [text.decode() for text in sentences.join(parts.flat_values, joints).numpy()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("no end", ["no end"]),
        ("A dog runs. A cat sleeps!", ["A dog runs.", "A cat sleeps!"]),
        ('Who? "Me." (Yes.) Well... So.', ["Who?", '"Me."', "(Yes.)", "Well...", "So."]),
        ("It was 3.5 km, i.e. far. 20 men left.", ["It was 3.5 km, i.e. far.", "20 men left."]),
        (
            "Mr. Smith met J. R. R. Tolkien. He left.",
            ["Mr. Smith met J. R. R. Tolkien.", "He left."],
        ),
        ("Er kam am 3. Mai. Na?", ["Er kam am 3. Mai.", "Na?"]),
        ("In 1990. Then.", ["In 1990.", "Then."]),
        ("А. С. Пушкин родился. Да.", ["А. С. Пушкин родился.", "Да."]),
        ("Herr Ö. Müller. Ja.", ["Herr Ö. Müller.", "Ja."]),
        ("Ein CAFÉ. Es ist zu.", ["Ein CAFÉ.", "Es ist zu."]),
        ("end. lower case goes on", ["end. lower case goes on"]),
        ("Ах! Да. Нет?", ["Ах!", "Да.", "Нет?"]),
        ("我来了。你呢？“好！”", ["我来了。", "你呢？", "“好！”"]),
        ("यह घर है। वह कुत्ता है।क्या? हाँ", ["यह घर है।", "वह कुत्ता है।", "क्या?", "हाँ"]),
        ("هل هذا بيت؟ نعم. لا", ["هل هذا بيت؟", "نعم.", "لا"]),
        ("یہ گھر ہے۔ وہ کتا ہے۔", ["یہ گھر ہے۔", "وہ کتا ہے۔"]),
        ("نعم؟، ثم لا", ["نعم؟، ثم لا"]),
        ("ｶﾀｶﾅ｡ｶﾀｶﾅ", ["ｶﾀｶﾅ｡", "ｶﾀｶﾅ"]),
        ("犬です．３．５匹です．", ["犬です．", "３．５匹です．"]),
        (
            "« Oui.\u00a0» Il part. «\u202fNon\u202f!\u202f» Si.",
            ["« Oui.\u00a0»", "Il part.", "«\u202fNon\u202f!\u202f»", "Si."],
        ),
        ("„Komm.“ Er kam. ‚So.‘ Ja.", ["„Komm.“", "Er kam.", "‚So.‘", "Ja."]),
        (
            "This is V 2.0. Then 3.14. On page 5. Mai",
            ["This is V 2.0.", "Then 3.14.", "On page 5. Mai"],
        ),
        ("I won! 😀 Then 👍🏽 we left. 🎉", ["I won!", "😀 Then 👍🏽 we left. 🎉"]),
        ("Yes.😀 World!👍🏽 So.", ["Yes.😀", "World!👍🏽", "So."]),
        ("He came. • Item. ◦ Other.", ["He came.", "• Item.", "◦ Other."]),
        ("Das sind z. B. Hunde. Ja.", ["Das sind z. B. Hunde.", "Ja."]),
        (
            "Er kam i. d. R. Montag. 5 v. Chr. Geburt.",
            ["Er kam i. d. R. Montag.", "5 v. Chr. Geburt."],
        ),
        ("Let x be y. Then go.", ["Let x be y.", "Then go."]),
        ("One.\n\nTwo.  \r\n Three", ["One.", "", "Two.", "Three"]),
        ("...", ["..."]),
        ("a\x1eb\x1fc. D", ["a b c.", "D"]),
    ],
)
def test_sentences_end_where_a_reader_sees_it(text, expected):
    assert parts_of(text) == ([expected], [False])


def test_joining_keeps_lines_and_one_space_between_sentences():
    texts = ["A dog.  A cat.", "One.\n\nTwo. Three.\r\nFour", "", "\n", "  B. "]
    assert joined(*texts) == ["A dog. A cat.", "One.\n\nTwo. Three.\nFour", "", "\n", "B."]


def test_no_texts_are_split_too():
    parts, joints, truncated = sentences.split(tf.constant([], tf.string), 256)
    assert parts.shape[0] == joints.shape[0] == truncated.shape[0] == 0
    assert sentences.join(parts.flat_values, joints).shape == (0,)


def test_what_is_too_much_is_cut_and_flagged():
    (many, few), truncated = parts_of("A dog runs. " * 300, "A dog runs. " * 256)
    assert len(many) == len(few) == sentences.MAX_PARTS and truncated == [True, False]
    (row,), truncated = parts_of("a" * 50_000, max_tokens=2)
    assert len(row[0]) == 256 * 2 * 64 and truncated == [True]


def test_bytes_that_are_no_utf8_are_replaced():
    parts, _, _ = sentences.split([b"A \xff dog. Two."], 256)
    assert [part.decode() for part in parts.flat_values.numpy()] == ["A \ufffd dog.", "Two."]


def test_time_grows_with_the_length_alone():
    def seconds(length):
        texts = ["." * length, "Mr. " * (length // 4), "。" * length, "\n" * length, "A. " * length]
        start = time.perf_counter()
        sentences.split(texts, 256)
        return time.perf_counter() - start

    seconds(1000)
    shorter, longer = (min(seconds(length) for _ in range(3)) for length in (8_000, 80_000))
    assert longer < 40 * shorter  # 10 times the length; with its square, 100 times
