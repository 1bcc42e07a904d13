import itertools
import random
import sys
import types

import numpy as np
import pytest

from keras_transformer.data import cleaning, pair_filters
from keras_transformer.data.cleaning import Cleaner, CleaningReport
from keras_transformer.data.pair_filters import FILTERS, MENDERS, NEAR, HeldOut, Known, _word_pairs

GOOD = ("A small boy sees the sea.", "Ein kleiner Junge sieht das Meer.")
FAULTS = [  # a pair that is left out, and one like it that is kept
    ("blank", ("Water!", "\xad\u200d "), ("!", "?")),
    ("control", ("The hou\x07se", "Das Haus"), ("The\thouse", "Das\x0cHaus")),
    ("control", ("The house", "Das H\ufffdus"), ("The house 👍🏽", "Das Haus 👩\u200d🚀")),
    ("long", ("a " * 60, "b " * 60), ("a " * 49, "b " * 49)),
    ("ratio", ("Where is the bus, and where are you, my dear child?", "@@"), ("Hi!", "Guten Tag")),
    ("identical", ("Some Text 5", "some text 5"), ("Taxi!", "Taxi.")),
    ("tags", ("a <b>red</b> house", "ein rotes Haus"), ("<b>red</b> x < y", "x < <b id=1>r</b>")),
    ("digits", ("It is 37 now.", "Es ist 36 jetzt."), ("2,000 at 2:30 pm", "2000 um 14.30")),
    ("digits", ("1 and 2", "1 und ٣"), ("two dogs and 3", "2 Hunde und ٣٠")),
    ("script", ("дом стоит", "Das Haus"), ("the house дом", "Das Haus μ")),
    ("swapped", GOOD[::-1], ("boy Junge", "boy Junge!")),
    ("untranslated", ("The house stands on a hill.", GOOD[0]), ("OK!", "Ach so!")),
    ("untranslated", (GOOD[1], "Das Haus steht auf einem Hügel."), ("5", "5!")),
    ("leaked", ("It is cold, so she shuts the door.", "Kalt!"), ("It is so cold!", "Kalt!")),
    ("language", ("le chat dort", "Das Haus"), ("le", "Das Haus")),
    ("duplicate", ("Where is\xa0the bus?", "Wo ist der Bus? "), ("Where is the bus?", "Wo?")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def language_library(monkeypatch):
    """Knows French by its word "le", and is sure of it only where there are more words."""

    def classify(text):
        french, sure = "le" in text.split(), len(text.split()) > 1
        return (
            "fr" if french else "en" if text.isascii() and "h" in text else "de"
        ), 0.4 + sure / 2

    identifier = types.SimpleNamespace(classify=classify, labels=["de", "en", "fr"])
    made = types.SimpleNamespace(from_model_file=lambda path, norm_probs: identifier)
    library = types.SimpleNamespace(LanguageIdentifier=made, MODEL_FILE="")
    monkeypatch.setitem(sys.modules, "py3langid", types.SimpleNamespace(langid=library))
    pair_filters._identifier.cache_clear()
    yield
    pair_filters._identifier.cache_clear()


@pytest.mark.parametrize("name, bad, good", FAULTS)
def test_a_filter_leaves_out_its_fault_and_nothing_like_it(name, bad, good, sentence_pairs):
    known = Known(max_length=100, languages=("en", "de"))
    known.held_out = HeldOut(["IT is cold; so she closes the door!"])
    cleaner = Cleaner([name], known=known)
    *others, first, second = cleaner.clean([*sentence_pairs, good, bad])
    assert (first.reason, second.reason) == ("", name)
    if name not in ("language", "leaked"):  # which know little here
        assert {pair.reason for pair in others} == {""}


def test_words_of_different_languages_are_told_apart():
    words = pair_filters._words
    assert not set(words("I don't")) & set(words("T’es"))  # both end or begin with a t
    assert words("中文 test") == ["中", "文", "test"]


def test_every_filter_has_a_reason_and_a_fault_above():
    assert {name for name, _, _ in FAULTS} == set(FILTERS)
    assert all(function.__doc__ for function in (*FILTERS.values(), *MENDERS.values()))


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("entities", "a &lt; b &amp;amp; &#39;c&#x27; &uuml; AT&T &region; ?a=1&copy=2 &#10;B&Tab;",
         "a < b & 'c' ü AT&T &region; ?a=1&copy=2  B "),
        ("invisible", "\ufeffzero\u200b width so\xadft \u202eby\u202c", "zero width soft by"),
        ("unicode", "u\u0308ber", "über"),
        ("spaces", "\xa0a \u202f b\t\u3000c \u2028", "a b c"),
    ],
)  # fmt: skip
def test_each_mender_mends_and_is_counted(name, text, expected):
    (pair,) = Cleaner([], [name]).clean([(text, "fine")])
    assert pair == (expected, "fine", "", (text, "fine"), (name,))
    (pair,) = Cleaner([], [each for each in MENDERS if each != name]).clean([["fine", "fine"]])
    assert pair.menders == ()


def test_what_is_mended_needs_no_mending():
    """For random texts of what menders look for, and for marks that must stay."""
    parts = [
        "&",
        "amp;",
        "&lt;",
        "\u200b",
        "\u200d",
        "e",
        "\u0301",
        " ",
        "\xa0",
        "\u3000",
        "中",
        "\n",
    ]
    rng = random.Random(1)
    texts = ["".join(rng.choices(parts, k=9)).replace("&&", "") for _ in range(1000)]
    once = [pair.source for pair in Cleaner([]).clean(zip(texts, texts, strict=True))]
    for name in ("invisible", "unicode", "spaces"):  # &amp;amp; is text about entities at last
        assert [MENDERS[name](text) for text in once] == once
    assert all(
        "\u200d" in after for before, after in zip(texts, once, strict=True) if "\u200d" in before
    )


def test_near_texts_are_those_of_a_comparison_with_all():
    rng = random.Random(2)
    texts = [" ".join(rng.choices("abcd", k=rng.randint(0, 12))) for _ in range(400)]
    held_out, others = texts[:100], texts[100:]

    sets = list(map(_word_pairs, held_out))

    def is_near(text):
        found = _word_pairs(text)
        return any(len(found & each) >= NEAR * len(found | each) for each in sets)

    expected = list(map(is_near, others))
    assert 20 < sum(expected) < 280
    leaks = HeldOut(held_out)
    assert [text in leaks for text in others] == expected


def test_a_corpus_is_read_as_it_is_cleaned(monkeypatch, sentence_pairs):
    monkeypatch.setattr(cleaning, "SAMPLE", 50)
    read = []
    endless = (read.append(pair) or pair for pair in itertools.cycle(sentence_pairs))
    cleaned = Cleaner().clean(endless)
    pairs = list(itertools.islice(cleaned, 2 * len(sentence_pairs)))
    assert len(read) <= max(50, len(pairs)) + 1
    assert [pair[:2] for pair in pairs] == 2 * sentence_pairs
    assert [pair.reason for pair in pairs] == [""] * len(sentence_pairs) + ["duplicate"] * len(
        sentence_pairs
    )


@pytest.mark.parametrize("min_score", [None, 12.5])
def test_pairs_of_a_low_score_are_left_out(monkeypatch, min_score):
    """Of those that no filter leaves out, in chunks; by default the lowest 5 % of the sample."""
    monkeypatch.setattr(cleaning, "SAMPLE", 40)
    monkeypatch.setattr(cleaning, "CHUNK", 7)
    numbers = np.random.default_rng(3).permutation(100)
    pairs = [(f"text {n}", "" if n % 2 else "Text") for n in numbers.tolist()]
    scored = []

    def score(sources, targets):
        scored.extend(targets)
        return np.array([float(source.split()[1]) for source in sources], "float32")

    cleaner = Cleaner(["blank"], score=score, min_score=min_score)
    reasons = [pair.reason for pair in cleaner.clean(pairs)]
    assert scored == ["Text"] * 50
    if min_score is None:
        first = [n for n in numbers[:40] if n % 2 == 0]
        assert cleaner.min_score == pytest.approx(np.quantile(first, 0.05))
    low = ["blank" if n % 2 else "score" if n < cleaner.min_score else "" for n in numbers]
    assert reasons == low and "score" in low


def test_text_of_both_directions_has_no_exchanged_sides(sentence_pairs):
    rng = random.Random(4)
    pairs = [pair[:: rng.choice([1, -1])] for _ in range(9) for pair in sentence_pairs]
    assert {pair.reason for pair in Cleaner(["swapped", "untranslated"]).clean(pairs)} == {""}


def test_the_order_of_the_names_and_of_the_corpus_changes_nothing(sentence_pairs):
    pairs = [*sentence_pairs, *(bad for _, bad, _ in FAULTS)]
    names = list(FILTERS)[:10]
    found = [list(Cleaner(each).clean(pairs)) for each in (names, names[::-1])]
    assert found[0] == found[1]
    backwards = list(Cleaner(names).clean(pairs[::-1]))
    assert backwards[::-1] == found[0]


def test_names_and_what_they_need_are_checked():
    for arguments, message in (
        ({"filters": ["lang"]}, "filters, some of: blank, control.*Received: lang"),
        ({"menders": ["space"]}, "menders, some of: .*Did you mean spaces"),
        ({"filters": ["leaked"]}, "held_out, which the filter leaked needs"),
        ({"known": Known(languages=("en", "ger"))}, "languages, such as: de, en, fr. Rec.*ger"),
    ):
        with pytest.raises(ValueError, match=message):
            Cleaner(**arguments)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    with pytest.raises(ValueError, match="Install it: pip install .*py3langid"):
        Cleaner(known=Known(languages=("en", "de")))


def test_the_report_counts_and_shows_examples():
    pairs = [("a", ""), ("b", ""), ("c", ""), ("x\x07", "y"), ("&lt;", "<"), ("e\u200b", "f")]
    report = CleaningReport()
    for pair in Cleaner(["blank", "control"]).clean(pairs):
        report.add(pair)
    found = report.as_dict()
    assert (found["pairs"], found["kept"]) == (6, 2)
    assert found["left_out"] == {
        "blank": {"pairs": 3, "examples": [("a", ""), ("b", "")]},
        "control": {"pairs": 1, "examples": [("x\x07", "y")]},
    }
    assert found["mended"]["entities"] == {"pairs": 1, "examples": [("&lt;", "<")]}
    assert "left out: blank                    3    50.00%\n    a | \n" in str(report)
    assert "    x\\x07 | y\n" in str(report) and "    e\\u200b | f" in str(report)
    report.check_some_kept()
    nothing = CleaningReport()
    for pair in Cleaner(["blank"]).clean([("a", "")]):
        nothing.add(pair)
    with pytest.raises(ValueError, match="1 pairs, 1 of them left out by blank"):
        nothing.check_some_kept()
