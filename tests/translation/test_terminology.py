"""Terms of the source, and what translations then say."""

import time

import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.translation.terminology import Terminology
from keras_transformer.translation.translator import Translator

TERMS = {
    "fire": "Feuer",
    "fire  truck": ["Löschzug", "Feuerwehr"],
    "US": "USA",
    "c++": "Zeh",
    "dog": ["Hund", "!Katze", "!Hunde"],
    "": ["!Bus", "!der  Mann"],
}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("A Fire\ttruck and a fire.", ["fire  truck", "fire"]),
        ("Fires; firetruck; campfire", []),
        ("US and us and Us", ["US"]),
        ("(c++) C++!", ["c++"]),
        ("", []),
        ("fire fire FIRE", ["fire"]),
    ],
)
def test_terms_are_whole_words_and_the_longest_counts(text, terms):
    assert Terminology(TERMS).terms_of(text) == [" ".join(term.split()) for term in terms]
    assert Terminology({"": "!x"}).terms_of(text) == []


def test_what_a_translation_lacks_or_may_not_say():
    terminology = Terminology(TERMS)
    assert terminology.not_met("A dog.", "Ein Hund.") == []
    assert terminology.not_met("A dog in a fire truck.", "Ein Hundehaus") == ["dog", "fire truck"]
    assert terminology.not_met("No term.", "Der  Bus, der Mann,") == ["!Bus", "!der Mann"]
    assert terminology.not_met("A dog.", "Hund, Hunde") == ["!Hunde"]
    assert terminology.not_met("A cat.", "Hunde") == []


def test_rows_have_the_ids_of_the_terms_that_a_text_has():
    ids = {form: [i] for i, form in enumerate(
        ("Feuer", "Löschzug", "Feuerwehr", "USA", "Hund", "Katze", "Hunde", "Bus", "der Mann")
    )}  # fmt: skip
    terminology = Terminology(TERMS)
    row = terminology.row(ids, "The dog has a fire truck.")
    assert row == ([[[4]], [[1], [2]]], [[7], [8], [5], [6]])
    assert terminology.row(ids, "The dog has a fire truck.", "Hund und")[0] == [[[1], [2]]]


def test_a_file_has_a_term_and_its_forms_in_each_line(write_file):
    path = write_file("dog\tHund\tKöter\r\n\n cat \tKatze\ndog\t!Hunde\n\t!Bus\n")
    terminology = Terminology.read(path)
    assert terminology.not_met("dog cat", "Bus, Hunde") == ["dog", "cat", "!Bus", "!Hunde"]
    assert terminology.not_met("dog cat", "Köter Katze") == []


@pytest.fixture
def write_file(tmp_path):
    def write_file(text):
        path = tmp_path / "terms.tsv"
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write_file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "a term in each line. Received: .*terms.tsv, which has none"),
        ("dog\tHund\ncat", "terms.tsv, line 2: 'cat'. Write a form behind a tab"),
        ("dog\t \n", "line 1: 'dog\\\\t '"),
        ("dog\t!\n", "forms of each term that are not blank. Received: 'dog'"),
        ("\tHund\n", "a term for each form. Received: 'Hund' without one"),
        ("dog\tHund\t!Hund\n", "not also forbidden. Received: 'Hund', of 'dog'"),
        ("\t!Hund\ndog\tHund\n", "not also forbidden. Received: 'Hund', of 'dog'"),
        ("dog\tHund\n\t!Hund\n", "not also forbidden. Received: 'Hund'"),
    ],
)
def test_files_that_cannot_be_obeyed_are_refused(write_file, text, message):
    with pytest.raises(ValueError, match=message):
        Terminology.read(write_file(text))


@pytest.fixture(scope="module")
def steered(translator, tokenizer):
    return Translator(translator.model, tokenizer, decoding=DecodingConfig(3))


def test_translations_have_the_terms_and_others_do_not_change(
    steered, translator, corpus, monkeypatch
):
    """The model knows these sentences by heart, so that it says something else by itself."""
    texts = corpus.source[:12]
    words = sorted({word.strip(".,?!") for text in texts for word in text.split()})[::3]
    terminology = Terminology({word: "Bahnhof" for word in words} | {"": "!nicht"})
    before = steered.translate(texts)
    found = steered.translate(texts, terms=terminology)
    lacking = [terminology.not_met(t, b.text) for t, (b,) in zip(texts, found, strict=True)]
    assert sum(map(len, lacking)) == 0
    plain = [terminology.not_met(t, b.text) for t, (b,) in zip(texts, before, strict=True)]
    assert sum(map(len, plain)) > 5
    monkeypatch.setattr(steered._batch_search, "batch_size", 2)
    again = steered.translate([*texts[::-1], ""], terms=terminology)[-2::-1]
    assert [best.text for (best,) in again] == [best.text for (best,) in found]
    only = Terminology({words[0]: "Bahnhof"})
    for text, (old,), (new,) in zip(
        texts, before, steered.translate(texts, terms=only), strict=True
    ):
        assert only.terms_of(text) or new.text == old.text
    begun = steered.translate(texts, prefixes="Der Bahnhof ", terms={words[0]: "Bahnhof"})
    assert all(best.text.startswith("Der Bahnhof ") for (best,) in begun)
    assert all(best.text.count("Bahnhof") == 1 for (best,) in begun)


def test_forms_that_the_tokenizer_cannot_write_are_refused(steered):
    for form, reason in (("\u4e16", "with unknown ones"), ("Bahnhof " * 40, r"\d+ tokens\. ")):
        with pytest.raises(ValueError, match=f"at most 32 tokens, without .*{reason}"):
            steered.translate(["A dog runs."], terms={"cat": form})


def test_a_long_list_of_terms_takes_little_time():
    terminology = Terminology({f"t{number} e": "f" for number in range(3000)} | {"\u0131 x": "y"})
    begin = time.process_time()
    for number in range(40):
        assert terminology.terms_of(f"{'word ' * 12} T{number} E") == [f"t{number} e"]
    assert time.process_time() - begin < 0.3  # 0.02; with a group for each term 0.9
    assert terminology.terms_of("I  X") == ["\u0131 x"]  # which `re` takes for its small letter
