"""The generated corpus as a whole, and its English and German side by side."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import keras_transformer
from keras_transformer.quickstart.phrases import phrase_corpus
from keras_transformer.quickstart.phrases.compound import COMPOUND
from keras_transformer.quickstart.phrases.draw import Draw
from keras_transformer.quickstart.phrases.simple import SIMPLE

# Of the default corpus, on which the numbers of the README were measured.
CHECKSUM = "010a6edbcec6a5c8"

# Sentences of the default corpus, translated by hand.
GOLD = [
    (
        "When Maria came home, a sick dog fell asleep.",
        "Als Maria nach Hause kam, ist ein kranker Hund eingeschlafen.",
    ),
    (
        "Before a boy arrived, Peter looked at Anna's black dress.",
        "Bevor ein Junge ankam, hat Peter Annas schwarzes Kleid angesehen.",
    ),
    (
        "While the king is calling the sad children, a girl is opening the bag.",
        "Während der König die traurigen Kinder anruft, macht ein Mädchen die Tasche auf.",
    ),
    (
        "The boy is not allowed to turn off the expensive lamps if he is tired.",
        "Der Junge darf die teuren Lampen nicht ausschalten, wenn er müde ist.",
    ),
    (
        "If the sun shines, our brothers will give their mother Anna's egg.",
        "Wenn die Sonne scheint, werden unsere Brüder ihrer Mutter Annas Ei geben.",
    ),
    (
        "Although the guest is sick, he is bringing her his long letter.",
        "Obwohl der Gast krank ist, bringt er ihr seinen langen Brief.",
    ),
    (
        "Because the weather is bad, Anna does not want to go into the old forest.",
        "Weil das Wetter schlecht ist, will Anna nicht in den alten Wald gehen.",
    ),
    (
        "Paul does not know where the tired children can go.",
        "Paul weiß nicht, wohin die müden Kinder gehen können.",
    ),
    (
        "My brother asks whether Maria will help her in a garden.",
        "Mein Bruder fragt, ob Maria ihr in einem Garten helfen wird.",
    ),
    (
        "I hope that Paul sent us the picture.",
        "Ich hoffe, dass Paul uns das Bild geschickt hat.",
    ),
    (
        "The sad child is going into the garden to play with the cat.",
        "Das traurige Kind geht in den Garten, um mit der Katze zu spielen.",
    ),
    (
        "The child is trying to close the small bag.",
        "Das Kind versucht, die kleine Tasche zuzumachen.",
    ),
    (
        "Paul forgot to turn off three lamps.",
        "Paul hat vergessen, drei Lampen auszuschalten.",
    ),
    (
        "The girl who the white bear waited for is very tired.",
        "Das Mädchen, auf das der weiße Bär gewartet hat, ist sehr müde.",
    ),
    (
        "The king who Anna's tired mother is helping is hungry.",
        "Der König, dem Annas müde Mutter hilft, ist hungrig.",
    ),
    (
        "The suitcase that Anna found is big.",
        "Der Koffer, den Anna gefunden hat, ist groß.",
    ),
    (
        "The bag is heavy, but Paul does not have to carry it.",
        "Die Tasche ist schwer, aber Paul muss sie nicht tragen.",
    ),
    (
        "The watches are broken, but she does not want to repair them.",
        "Die Uhren sind kaputt, aber sie will sie nicht reparieren.",
    ),
    (
        "Where is Anna's new jacket? It is on Peter's small bed.",
        "Wo ist Annas neue Jacke? Sie ist auf Peters kleinem Bett.",
    ),
    (
        "Peter's hats are not as new as the jackets.",
        "Peters Hüte sind nicht so neu wie die Jacken.",
    ),
    (
        "The bicycle is not more expensive than the cars.",
        "Das Fahrrad ist nicht teurer als die Autos.",
    ),
    (
        "How many letters is our tired mother writing?",
        "Wie viele Briefe schreibt unsere müde Mutter?",
    ),
    (
        "Who are they talking to?",
        "Mit wem sprechen sie?",
    ),
    (
        "Maria, is she bringing them the keys?",
        "Maria, bringt sie ihnen die Schlüssel?",
    ),
    (
        "This evening they are allowed to look for the letter.",
        "Heute Abend dürfen sie den Brief suchen.",
    ),
    (
        "In front of the school Anna's uncles are talking to the sick women.",
        "Vor der Schule sprechen Annas Onkel mit den kranken Frauen.",
    ),
]


@pytest.fixture(scope="module")
def splits():
    return phrase_corpus()


@pytest.fixture(scope="module")
def pairs(splits):
    return [pair for split in splits for pair in split]


def checksum(splits):
    return hashlib.sha256(repr(tuple(splits)).encode()).hexdigest()[:16]


def words_of(pair):
    return set(re.findall(r"\w+", " ".join(pair)))


# The corpus


def test_sizes_and_lengths(splits, pairs):
    assert [len(split) for split in splits] == [5500, 250, 250]
    lengths = {len(english.split()) for english, _ in pairs}
    assert (min(lengths), max(lengths)) == (3, 18)


def test_no_sentence_stands_twice_in_either_language(pairs):
    english, german = zip(*pairs, strict=True)
    assert len(set(english)) == len(set(german)) == 6000


def test_an_english_sentence_has_one_rendering_however_often_it_is_drawn():
    draw, renderings = Draw(seed=5), defaultdict(set)
    for pattern, times in SIMPLE + COMPOUND:
        for _ in range(300 * times):
            english, german = pattern(draw)
            renderings[english].add(german)
    assert len(renderings) > 18_000
    assert [english for english, found in renderings.items() if len(found) > 1] == []


@pytest.mark.parametrize("num_sentences, times", [(6000, 8), (1201, 2)])
def test_every_word_of_a_held_out_sentence_is_known_from_training(num_sentences, times):
    splits = phrase_corpus(num_sentences)
    known = Counter(word for pair in splits.train for word in words_of(pair))
    for pair in splits.valid + splits.test:
        assert min(known[word] for word in words_of(pair)) >= times, pair


def test_corpus_is_the_same_in_every_process_and_needs_the_standard_library_alone():
    room = Path(keras_transformer.__file__).parent
    program = f"""
import hashlib, sys, types
sys.modules["keras_transformer"] = types.ModuleType("keras_transformer")
sys.modules["keras_transformer"].__path__ = [{str(room)!r}]
from keras_transformer.quickstart.phrases import phrase_corpus
print(hashlib.sha256(repr(tuple(phrase_corpus())).encode()).hexdigest()[:16])
"""
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-S", "-c", program],  # without site-packages
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.split() == [CHECKSUM]


def test_seed_and_nothing_else_changes_the_corpus(splits):
    assert checksum(phrase_corpus()) == checksum(splits) == CHECKSUM
    other = phrase_corpus(seed=2)
    assert len(set(other.train) & set(splits.train)) < 1100  # short ones, by chance


def test_sizes_are_arguments():
    assert [len(split) for split in phrase_corpus(1201)] == [1101, 50, 50]
    assert [len(split) for split in phrase_corpus(701, seed=3)] == [643, 29, 29]


@pytest.mark.parametrize(
    "num_sentences, message",
    [
        (50_001, "Received: num_sentences=50001"),
        (0, "Received: num_sentences=0"),
        (-1, "Received: num_sentences=-1"),
        (100, "Received: num_sentences=100, with "),
    ],
)
def test_impossible_sizes_are_refused(num_sentences, message):
    with pytest.raises(ValueError, match=message):
        phrase_corpus(num_sentences)


# English and German together


@pytest.mark.parametrize("english, german", GOLD)
def test_sentence_of_the_corpus_is_rendered_as_by_hand(pairs, english, german):
    assert dict(pairs)[english] == german


def test_sentences_are_written_as_sentences(pairs):
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"(?:[A-ZÄÖÜ][\w']*(?:,? [\w']+)*[.?](?: |$))+", text), text
        assert re.findall("[.?]", pair[0]) == re.findall("[.?]", pair[1]), pair


def test_article_before_a_vowel_is_an(pairs):
    for english, _ in pairs:
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", english), english


def test_her_is_either_a_recipient_or_an_owner(pairs):
    """ "He showed her cats" could mean both."""
    count = 0
    kin = "(mother|father|sisters?|brothers?|aunts?|uncles?)"
    determiners = "(the|this|these|an?|any|my|our|his|her|their|Anna's|Peter's)"
    for english, _ in pairs:
        found = re.search(r"\b(give|giving|gave|show|bring|brought|send|sent)\w* her (.*)", english)
        if found:
            count += 1
            assert re.match(f"{determiners} |([a-z]+ )?{kin} ", found[2]), english
    assert count > 10


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
