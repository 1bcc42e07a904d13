"""Prefixes and terms in a graph, held against those of the `Translator`."""

import re

import numpy as np
import tensorflow as tf

from keras_transformer.decoding.prefixes import Prefixes
from keras_transformer.decoding.terms import TermRows
from keras_transformer.export.constraints import PrefixGraph, TermGraph
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
