"""Prefixes, terms and explanations in an export, held against those of the `Translator`."""

import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.prefixes import Prefixes
from keras_transformer.decoding.terms import TermRows
from keras_transformer.export.constraints import PrefixGraph, TermGraph
from keras_transformer.translation.markup_translator import MarkupTranslator
from keras_transformer.translation.terminology import Terminology

PREFIXES = ["", "Der Hu", "Der Hu ", "D", "Wo  ist", "ubri", " Ich bin", "Die Katze schl", " "]
LONG = ["Die " + "Katze" * 9, "Bahnhofkatze" * 4]
TERMS = {
    "A dog": ["Bahnhof", "Katze"],
    "runs": "!Hund",
    "(a.b)": "Wo  ist?",
    "where": ["!Wo ist", "Haus"],
    "": "!nicht",
}
TEXTS = ["A dog runs.", "A cat.", "Where is a dog (a.b)?", "", "where  A dog", "Nothing runs."]


def test_prefixes_become_the_same_arrays(translator, tokenizer):
    """Also where the last word is longer than what may be written in other tokens."""
    prefixes = PREFIXES + LONG
    surfaces = tf.constant(tokenizer.surfaces)
    graph = PrefixGraph(tokenizer, translator.prefix_vocabulary, surfaces, 64)
    ids, (given, *tables, size) = (x for x in graph.read(tf.constant(prefixes)))
    rows = tokenizer.encode(prefixes).to_list()
    assert [[i for i in row if i] for row in ids.numpy().tolist()] == rows
    ends_word = [prefix != prefix.rstrip() for prefix in prefixes]
    expected = Prefixes(translator.prefix_vocabulary, list(zip(rows, ends_word, strict=True)))
    tokens, *expected_tables, expected_size = expected.arrays(range(len(rows)), len(rows))
    np.testing.assert_array_equal(size, expected_size)
    assert size.numpy().max() > 20 and (tokens != 0).any()
    for row, expected_row in zip(given.numpy(), tokens, strict=True):
        assert [i for i in row if i] == [i for i in expected_row if i]
    (low, high, inner), (expected_low, expected_high, expected_inner) = tables, expected_tables
    np.testing.assert_array_equal(low < high, expected_low < expected_high)
    np.testing.assert_array_equal(low, np.where(expected_low < expected_high, expected_low, 0))
    np.testing.assert_array_equal(high, np.where(expected_low < expected_high, expected_high, 0))
    np.testing.assert_array_equal(np.sort(inner), np.sort(expected_inner))


def test_terms_become_the_same_arrays(translator, tokenizer):
    terminology = Terminology(TERMS)
    prefixes = ["Katze, die", "", "Haus", "", "Hausa", "Die Katze"]
    cells = [terminology.cells(text) for text in TEXTS]
    assert cells[4] == ["!nicht", "Haus\t!Wo ist", "Bahnhof\tKatze"]
    width = max(map(len, cells))
    cells = [row + [""] * (width - len(row)) for row in cells]
    graph = TermGraph(tokenizer, translator.term_vocabulary)
    has_terms, arrays = graph.read(tf.constant(cells), tf.constant(prefixes))
    assert has_terms.numpy().all()  # of a text without a term, one form is forbidden
    ids = terminology.ids_of_forms(tokenizer)
    rows = [terminology.row(ids, *pair) for pair in zip(TEXTS, prefixes, strict=True)]
    expected = TermRows(translator.term_vocabulary, rows).arrays(range(len(rows)), len(rows))

    def forms(arrays):
        ids, sizes, forbidden, forbidden_sizes = map(np.asarray, arrays)
        for row in range(len(ids)):
            terms = [
                [tuple(form[:size]) for form, size in zip(*term, strict=True) if size]
                for term in zip(ids[row], sizes[row], strict=True)
            ]
            others = zip(forbidden[row], forbidden_sizes[row], strict=True)
            yield sorted(filter(None, terms)), sorted(tuple(f[:size]) for f, size in others if size)

    assert list(forms(arrays)) == list(forms(expected))
    nothing = graph.read(tf.constant([], shape=[2, 0], dtype=tf.string), tf.constant(["", "a"]))
    assert not nothing[0].numpy().any()


def test_terms_are_met_by_whole_words_of_a_translation(translator, tokenizer):
    translations = ["Die  Katze, sie", "Hauskatze", "", "Haus: Wo ist es?"]
    cells = ["", "Katze", "Hund\tKatze", "Haus\t!Katze", "!Katze", "!Wo  ist\t!Hund", "es?\tsie"]
    graph = TermGraph(tokenizer, translator.term_vocabulary)
    found = graph.met(tf.constant([cells] * len(translations)), tf.constant(translations))

    def is_met(translation, cell):
        text = " ".join(translation.split())
        forms = [" ".join(form.split()) for form in cell.split("\t") if form]
        wanted = [form for form in forms if form[0] != "!"]
        has = {f: re.search(rf"(?<!\w){re.escape(f.lstrip('!'))}(?!\w)", text) for f in forms}
        lacks = wanted and not any(has[form] for form in wanted)
        return not lacks and not any(has[form] for form in forms if form not in wanted)

    expected = [[is_met(translation, cell) for cell in cells] for translation in translations]
    assert found.numpy().tolist() == expected
    assert {True, False} <= set(sum(expected, []))


def test_an_export_translates_with_prefixes_and_terms(exported_translator, translator, texts):
    sources = [*texts[:36], "", *texts[-3:]]  # more than are searched at once
    words = sorted({word.strip(".,?!") for text in sources for word in text.split()})[::3]
    terms = Terminology({word: ["Bahnhof", "!Hund"] for word in words})
    prefixes = [PREFIXES[i % len(PREFIXES)] for i in range(len(sources))]
    options = {"prefixes": prefixes, "terms": terms}
    found = exported_translator.translate(sources, **options)
    expected = translator.translate(sources, **options)
    for (ours,), (theirs,), prefix in zip(found, expected, prefixes, strict=True):
        assert (ours.text, ours.truncated) == (theirs.text, theirs.truncated)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
        assert ours.text.startswith(prefix) or not ours.text
    given = [[*terms.cells(text), *[""] * 9][:9] for text in sources]
    answers = exported_translator.signatures["constrained"](
        text=tf.constant(sources), prefix=tf.constant(prefixes), terms=tf.constant(given)
    )
    assert answers["terms_met"].shape == (len(sources), 9) and answers["terms_met"].numpy().all()
    lacking = [terms.not_met(t, best.text) for t, (best,) in zip(sources, found, strict=True)]
    assert sum(map(len, lacking)) == 0 and sum(map(bool, map(terms.terms_of, sources))) > 3
    ((alone,),) = exported_translator.translate(sources[1:2], 1, prefixes[1:2], terms)
    assert alone.text == found[1][0].text
    with pytest.raises(ValueError, match="Expected one translation of each text"):
        exported_translator.translate(sources, n_best=2, terms=terms)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"prefixes": "\u4e16"}, "prefixes of at most 64 tokens, .* Received: \u4e16"),
        ({"terms": {"dog": "Bahnhof " * 40}}, "terms of at most 32 tokens, .* Received: Bahnhof"),
        ({"terms": {"dog": ["Hund"] * 129}}, "at most 128 forms for each text"),
    ],
)
def test_what_the_tokenizer_cannot_write_is_refused(exported_translator, options, expected):
    limit = exported_translator.decoding.max_length
    with pytest.raises(ValueError, match=expected.replace("64", str(limit))):
        exported_translator.translate(["A dog runs."], **options)


def test_every_text_has_a_prefix_and_a_row_of_terms(signatures):
    inputs = {"text": ["A dog."] * 2, "prefix": ["", ""], "terms": [[""], [""]]}
    for name, expected in (("prefix", "a prefix"), ("terms", "a row of terms")):
        unequal = {**inputs, name: inputs[name][:1]}
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Expected {expected} for each"):
            signatures["constrained"](**{k: tf.constant(x) for k, x in unequal.items()})


def test_an_export_explains_as_the_translator_does(exported_translator, translator, texts):
    targets = [best.text for (best,) in translator.translate(texts)]
    found = exported_translator.explain(texts, targets)
    expected = translator.explain(texts, targets)
    assert sum(len(each.words) for each in expected) > 200
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.source, ours.alignment) == (theirs.source, theirs.alignment)
        assert ours.token_alignment == theirs.token_alignment
        assert [word.text for word in ours.words] == [word.text for word in theirs.words]
        scores = ([word.score for word in each.words] for each in (ours, theirs))
        np.testing.assert_allclose(*scores, atol=1e-4)
        assert (ours.attention is None) == (theirs.attention is None)
        if ours.attention is not None:
            np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-5)
    marked = [f"{{0}} <b>{text}</b> %s" for text in texts[:5]]
    with_markup = MarkupTranslator(exported_translator)(marked)
    assert with_markup == MarkupTranslator(translator)(marked)
    assert all("<b>" in text for text in with_markup)
    with pytest.raises(ValueError, match="Expected a target for each source"):
        exported_translator.explain(texts, targets[1:])


def test_an_explanation_tells_of_unknown_and_cut_texts(exported_translator, translator):
    texts = ["A dog.", "A 🎒 dog 🎒.", "a dog " * 300, ""]
    explain = exported_translator.signatures["explain"]
    found = explain(text=tf.constant(texts), target=tf.constant(["Ein Hund."] * len(texts)))
    ids = translator.tokenizer.encode(texts).to_list()
    unknown = [sum(i in translator.tokenizer.unknown_ids for i in row) for row in ids]
    assert found["num_unknown"].numpy().tolist() == unknown and unknown[1] > 1
    assert found["truncated"].numpy().tolist() == [False, False, True, False]
