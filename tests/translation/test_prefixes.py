"""Translations that begin as they are told."""

import numpy as np
import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.models import Transformer
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.translator import Translator

PREFIXES = ["", "Der Hu", "Der Hu ", "D", "Wo  ist", "ubri", " Ich bin", "Die Katze schl"]


@pytest.fixture(scope="module")
def begun(translator, tokenizer):
    """Asked for the two best of each text by all tests, which so share its compiled searches."""
    decoding = DecodingConfig(3, length_penalty=0.0)
    return Translator(translator.model, tokenizer, decoding=decoding)


@pytest.fixture(scope="module")
def sources(corpus):
    return corpus.source[: len(PREFIXES)]


def test_each_translation_begins_with_its_prefix_letter_for_letter(begun, sources, monkeypatch):
    found = begun.translate(sources, 2, PREFIXES)
    for row, prefix, source in zip(found, PREFIXES, sources, strict=True):
        assert all(translation.text.startswith(prefix) for translation in row)
        assert begun.translate([source], 2, [prefix])[0][0].text == row[0].text
    assert found[0][0].text == begun.translate(sources[:1], 2)[0][0].text
    (whole_word, _) = begun.translate(sources[1:2], 2, ["Der "])[0]
    assert whole_word.text[4:5] != " "
    monkeypatch.setattr(begun._batch_search, "batch_size", 3)
    others = begun.translate(sources, 2, PREFIXES)
    assert [row[0].text for row in others] == [row[0].text for row in found]


def test_a_text_without_a_prefix_does_not_depend_on_its_neighbours(
    translator, tokenizer, corpus, compiling_nothing
):
    """With shortlists, which have no effect where there is a prefix."""
    rows = [tokenizer.encode(side).to_list() for side in (corpus.source[:5], corpus.target[:5])]
    lexicon = Lexicon.learn(*rows, tokenizer.vocab_size)
    decoding = DecodingConfig(1, max_length=8, shortlist=1)
    few = Translator(translator.model, tokenizer, decoding=decoding, lexicon=lexicon)
    texts, prefixes = corpus.source[5:9], ["", "", "", "Der "]
    with compiling_nothing():
        alone = few.translate(texts)
        assert alone != few.translate(texts, prefixes=" ")
        beside = few.translate(texts, prefixes=prefixes)
        for (ours,), (theirs,) in zip(beside[:3], alone, strict=False):
            assert ours.text == theirs.text and ours.score == pytest.approx(theirs.score, abs=1e-4)
        (drawn,), (expected,) = (
            few.sample_chunks([texts], prefixes=each) for each in (prefixes, None)
        )
        assert [one.text for (one,) in drawn[:3]] == [one.text for (one,) in expected[:3]]


def test_white_space_is_a_prefix_too(begun, sources):
    ((plain, _),) = begun.translate(sources[:1], 2)
    for texts, prefixes in ((sources[:1], ["  "]), (sources[:2], ["  ", "Der "])):
        assert begun.translate(texts, 2, prefixes)[0][0].text == f"  {plain.text}"


def test_the_beginning_of_what_it_would_say_changes_nothing(begun, corpus):
    """The tokens before the last word are given, and the score is that of the rest."""
    sources = corpus.source[:20]
    answers = [row[0] for row in begun.translate(sources, 2)]
    texts = [best.text for best in answers]
    cuts = [len(text) // 2 for text in texts]
    prefixes = [text[:cut] for text, cut in zip(texts, cuts, strict=True)]
    found = [row[0] for row in begun.translate(sources, 2, prefixes)]
    same = [best.text == text for best, text in zip(found, texts, strict=True)]
    assert np.mean(same) > 0.7  # within a word, other tokens may be more probable at first
    rises = [new.score - old.score for new, old in zip(found, answers, strict=True)]
    assert min(np.array(rises)[same]) > -1e-4


def test_a_text_that_is_copied_has_no_prefix(begun):
    assert begun.translate([""], prefixes=["Der"])[0][0] == ("", 0.0, False)
    assert begun.translate([], prefixes=[]) == []


def test_samples_begin_so_too(begun, sources):
    (drawn,) = begun.sample_chunks([sources], 4, temperature=2.0, seed=1, prefixes=PREFIXES)
    for row, prefix in zip(drawn, PREFIXES, strict=True):
        assert all(translation.text.startswith(prefix) for translation in row)
    assert len({translation.text for translation in drawn[1]}) > 1


def test_learned_positions_end_a_translation_as_early_as_its_prefix_demands(
    tokenizer, sources, eagerly
):
    sizes = dict(num_layers=1, d_model=16, ff_dim=16, num_heads=2)
    model = Transformer(tokenizer.vocab_size, **sizes, positions="learned", max_length=12)
    learned = Translator(model, tokenizer, decoding=DecodingConfig(1))
    sources, prefixes = sources[:3], ["", "Der Hu", "Die Katze"]
    pairs = zip(sources, prefixes, strict=True)
    alone = [learned.translate([source], prefixes=[prefix])[0][0] for source, prefix in pairs]
    found = [best for (best,) in learned.translate(sources, prefixes=prefixes)]
    assert [best.text for best in found] == [best.text for best in alone]
    assert all(best.text.startswith(p) for best, p in zip(found, prefixes, strict=True))


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        (["Der", "\u4e16"], "characters that the tokenizer of the target knows. .*'\u4e16'"),
        (["Der"], "fewer prefixes than texts"),
        (["Der"] * 3, "more prefixes than texts"),
        (["Der", "Der Hund " * 99], r"at most \d+ tokens. Received: \d+, of 'Der Hund Der"),
        (7, "Expected prefixes: a text, or an iterable of texts. Received: 7"),
        ([None, "Der"], "Received: None as item 0"),
    ],
)
def test_prefixes_that_cannot_begin_a_translation_are_refused(begun, sources, prefixes, message):
    with pytest.raises(ValueError, match=message):
        begun.translate(sources[:2], prefixes=prefixes)
