"""The corpus of the quickstart, its splits, and the program that makes it."""

import bz2
import hashlib
import importlib
import itertools
import pathlib
import re
from collections import Counter, defaultdict

import pytest

from keras_transformer.quickstart import phrases, tour
from keras_transformer.quickstart.phrases import phrase_corpus

TOOLS = pathlib.Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def splits():
    return phrase_corpus()


@pytest.fixture(scope="module")
def pairs(splits):
    return [pair for split in splits for pair in split]


@pytest.fixture
def make_phrases(monkeypatch):
    """The module tools/make_phrases.py."""
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("make_phrases")


def words_of(pair):
    return set(re.findall(r"\w+", " ".join(pair)))


def test_the_program_makes_the_file_again(make_phrases, monkeypatch, tmp_path):
    monkeypatch.setattr(make_phrases, "OUTPUT", tmp_path / "phrases.tsv.bz2")
    make_phrases.main()
    made, stored = (bz2.decompress(p.read_bytes()) for p in (make_phrases.OUTPUT, phrases.PHRASES))
    assert made == stored


def test_an_english_sentence_has_one_rendering_however_often_it_is_drawn(make_phrases):
    draw, renderings = make_phrases.Draw(seed=5), defaultdict(set)
    for pattern in make_phrases.PATTERNS:
        for _ in range(100):
            english, german = pattern(draw)
            renderings[english].add(german)
    assert len(renderings) > 7000
    assert [english for english, found in renderings.items() if len(found) > 1] == []


def test_the_text_is_that_on_which_the_score_of_the_readme_was_measured():
    splits = phrase_corpus(tour.NUM_SENTENCES)
    assert [len(split) for split in splits] == [7334, 333, 333]
    checksum = hashlib.sha256(repr(tuple(splits)).encode()).hexdigest()
    assert checksum.startswith("ada57d27f47cb622")


def test_no_sentence_stands_twice_in_either_language(splits, pairs):
    assert [len(split) for split in splits] == [5500, 250, 250]
    english, german = zip(*pairs, strict=True)
    assert len(set(english)) == len(set(german)) == 6000


@pytest.mark.parametrize("num_sentences, times", [(6000, 8), (1201, 2)])
def test_every_word_of_a_held_out_sentence_is_known_from_training(num_sentences, times):
    splits = phrase_corpus(num_sentences)
    assert len(splits.valid) == len(splits.test) == num_sentences // 24
    known = Counter(word for pair in splits.train for word in words_of(pair))
    for pair in splits.valid + splits.test:
        assert min(known[word] for word in words_of(pair)) >= times, pair


def test_the_whole_file_can_be_had():
    assert sum(map(len, phrase_corpus(12_000))) == 12_000


@pytest.mark.parametrize(
    "num_sentences, message",
    [
        (12_001, "Expected 1 to 12,000 sentences. Received: num_sentences=12001"),
        (0, "Received: num_sentences=0"),
        (-1, "Received: num_sentences=-1"),
        (100, "Expected 8 sentences of known words .* Received: num_sentences=100, with "),
    ],
)
def test_impossible_sizes_are_refused(num_sentences, message):
    with pytest.raises(ValueError, match=message):
        phrase_corpus(num_sentences)


def test_sentences_are_written_as_sentences(pairs):
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"(?:[A-ZÄÖÜ][\w']*(?:,? [\w']+)*[.?](?: |$))+", text), text
        assert 3 <= len(pair[0].split()) <= 18
        assert re.findall("[.?]", pair[0]) == re.findall("[.?]", pair[1]), pair
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", pair[0]), pair[0]


def test_not_any_is_kein_and_all_else_that_is_denied_has_nicht(pairs):
    seen = Counter()
    for english, german in pairs:
        denials = re.findall(r"\bnot\b|\bcannot\b", english)
        found = re.findall(r"\bnicht\b|\b[Kk]ein", german)
        assert len(denials) == len(found), (english, german)
        assert not re.search(r"\bnicht eine?[mnrs]? \w", german), german
        if " any " in english:
            assert "kein" in found, (english, german)
        seen.update(found)
    assert seen["nicht"] > 500 and seen["kein"] > 50


ALIGNED = {
    "These dogs are not coming out of the house.": "These-Diese dogs-Hunde coming-kommen "
    "not-nicht out-aus of-aus the-dem house.-Haus.; are-kommen",
    "Our aunts have to go into the garden to sing.": "Our-Unsere aunts-Tanten have-müssen "
    "go-gehen, into-in the-den garden-Garten to-zu sing.-singen.; to-müssen",
    "Who is picking up the women?": "Who-Wer picking-holt the-die women?-Frauen; "
    "is-holt is-ab? picking-ab? up-holt up-ab?",
    "Peter's mother does not have to bring him a letter if she is sick.": "Peter's-Peters "
    "mother-Mutter have-muss him-ihm not-keinen a-keinen letter-Brief bring-bringen, if-wenn "
    "she-sie sick.-krank is-ist.; does-muss to-muss",
}


def test_it_is_known_which_words_translate_one_another(make_phrases):
    plain, aligned = (
        list(itertools.islice(drawn(), 60))
        for drawn in (make_phrases.pairs, make_phrases.aligned_pairs)
    )
    seen = {}
    for pair, (english, german, sure, possible) in zip(plain, aligned, strict=True):
        assert (english, german) == pair and sure <= possible
        words = english.split(), german.split()
        seen[english] = [
            {f"{words[0][i]}-{words[1][j]}" for i, j in links} for links in (sure, possible - sure)
        ]
        linked = [{link[side] for link in possible} for side in (0, 1)]
        assert linked[0] == set(range(len(words[0])))
        assert {words[1][j] for j in {*range(len(words[1]))} - linked[1]} <= {"um"}
    for english, expected in ALIGNED.items():
        assert seen[english] == [set(links.split()) for links in expected.split(";")]
