"""The generated corpus as a whole, and its German against tables that the generator does not have."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import keras_transformer
from keras_transformer.data.phrases import phrase_corpus
from keras_transformer.data.phrases.compound import COMPOUND
from keras_transformer.data.phrases.draw import Draw
from keras_transformer.data.phrases.simple import SIMPLE

# The numbers that the README reports were measured on this corpus.
CHECKSUM = "PINNED"

# Made up and translated by hand; they stand in the corpus.
GOLD = {
    "The boy is going into the garden to play.": "Der Junge geht in den Garten, um zu spielen.",
}


@pytest.fixture(scope="module")
def splits():
    return phrase_corpus()


@pytest.fixture(scope="module")
def german(splits):
    """All German sentences."""
    return [sentence for split in splits for _, sentence in split]


def checksum(splits):
    return hashlib.sha256(repr(tuple(splits)).encode()).hexdigest()


# The corpus


def test_sizes_and_lengths(splits):
    assert [len(split) for split in splits] == [5500, 250, 250]
    lengths = {len(english.split()) for split in splits for english, _ in split}
    assert min(lengths) == 3 and max(lengths) == 18


def test_splits_share_no_sentence_in_either_language(splits):
    for side in (0, 1):
        sentences = [pair[side] for split in splits for pair in split]
        assert len(set(sentences)) == len(sentences) == 6000


def test_an_english_sentence_has_one_german_rendering_however_often_it_is_drawn():
    draw, renderings = Draw(seed=5), defaultdict(set)
    for _ in range(300):
        for pattern, times in SIMPLE + COMPOUND:
            for _ in range(times):
                english, german = pattern(draw)
                renderings[english].add(german)
    assert len(renderings) > 15_000
    assert [english for english, germans in renderings.items() if len(germans) > 1] == []


def test_words_of_held_out_sentences_stand_in_five_training_sentences_or_more(splits):
    def words(pair):
        return set(re.findall(r"\w+", " ".join(pair)))

    known = Counter(word for pair in splits.train for word in words(pair))
    for pair in splits.valid + splits.test:
        assert min(known[word] for word in words(pair)) >= 5, pair


def test_corpus_is_the_same_in_every_process_and_needs_the_standard_library_alone():
    room = Path(keras_transformer.__file__).parent
    program = (
        "import hashlib, sys, types\n"
        f"for name, path in {[('keras_transformer', str(room)), ('keras_transformer.data', str(room / 'data'))]}:\n"
        "    sys.modules[name] = types.ModuleType(name)\n"  # as importing the room loads TensorFlow
        "    sys.modules[name].__path__ = [path]\n"
        "from keras_transformer.data.phrases import phrase_corpus\n"
        "print(hashlib.sha256(repr(tuple(phrase_corpus())).encode()).hexdigest())\n"
        "print(*({'numpy', 'tensorflow', 'keras'} & set(sys.modules)))\n"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(
            [sys.executable, "-S", "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert output.split() == [CHECKSUM]


def test_seed_changes_the_corpus_and_nothing_else_does(splits):
    assert checksum(phrase_corpus()) == checksum(splits) == CHECKSUM
    other = phrase_corpus(seed=2)
    assert [len(split) for split in other] == [5500, 250, 250]
    assert len(set(other.train) & set(splits.train)) < 1500


def test_sizes_are_arguments():
    splits = phrase_corpus(num_sentences=701, held_out=13, seed=3)
    assert [len(split) for split in splits] == [675, 13, 13]


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"num_sentences": 50_001}, "Received: num_sentences=50001, held_out=250"),
        ({"num_sentences": 200}, "Received: num_sentences=200, held_out=250"),
        ({"num_sentences": 300, "held_out": 149}, "Received: num_sentences=300, with "),
    ],
)
def test_impossible_sizes_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        phrase_corpus(**sizes)


# English and German together


@pytest.mark.parametrize("english", GOLD)
def test_sentence_of_the_corpus_is_translated_as_by_hand(splits, english):
    assert dict(pair for split in splits for pair in split)[english] == GOLD[english]


def test_sentences_are_written_as_sentences(splits):
    for split in splits:
        for pair in split:
            for text in pair:
                assert re.fullmatch(r"(?:[A-ZÄÖÜ][\w' ,]*[\w'][.?](?: |$))+", text), text
                assert "  " not in text and ",." not in text and " ," not in text, text
            assert re.findall("[.?]", pair[0]) == re.findall("[.?]", pair[1]), pair


def test_article_before_a_vowel_is_an(splits):
    for split in splits:
        for english, _ in split:
            assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", english), english


def test_negation_is_kein_for_an_indefinite_object_and_else_nicht(splits):
    seen = Counter()
    for split in splits:
        for english, german in split:
            denials = re.findall(r"\b(?:not|cannot)\b", english)
            found = re.findall(r"\b(nicht|kein\w*)\b", german)
            assert len(denials) == len(found), (english, german)
            if len(found) == 1 and re.search(r"\bany\b", english):
                assert found[0].startswith("kein"), (english, german)
            seen.update(word[:4] for word in found)
    assert min(seen["nich"], seen["kein"]) > 50


# German alone: the order of words

# Every finite form, singular and plural, that verbs of the corpus have.
FINITE = set(
    """
    bin ist sind war waren habe hat haben werde wird werden kann können sollte sollten darf dürfen
    will wollen muss müssen liest lesen schreibt schreiben isst essen trinkt trinken kocht kochen
    backt backen kauft kaufen verkauft verkaufen sucht suchen trägt tragen wäscht waschen
    repariert reparieren malt malen füttert füttern besucht besuchen liebt lieben kennt kennen
    braucht brauchen sieht sehen hört hören hilft helfen dankt danken antwortet antworten
    folgt folgen wartet warten spricht sprechen spielt spielen arbeitet arbeiten singt singen
    tanzt tanzen lacht lachen weint weinen schläft schlafen geht gehen läuft laufen kommt kommen
    gibt geben zeigt zeigen bringt bringen schickt schicken liegt liegen sagt sagen glaubt glauben
    glaube hofft hoffen hoffe weiß wissen fragt fragen versucht versuchen regnet schneit scheint
    macht machen schaltet schalten ruft rufen holt holen lädt laden steht stehen wacht wachen
    """.split()
)
PREFIXES = "auf zu ein aus an ab zurück".split()
JOINED = {prefix + verb for prefix in PREFIXES for verb in FINITE} | {
    prefix + verb
    for prefix, verbs in {
        "an": ("kam", "kamen"),
        "zurück": ("kam", "kamen"),
        "auf": ("wachte", "wachten"),
        "ein": ("schlief", "schliefen"),
        "": ("kam", "kamen"),
    }.items()
    for verb in verbs
}
OPENERS = "weil dass ob wenn obwohl als bevor während".split()
QUESTION_WORDS = "wo wohin wann warum".split()
RELATIVES = "der die das den dem denen".split()
TIMES = [
    "Heute Abend",
    "Heute Morgen",
    "Letzte Woche",
    "Nächste Woche",
    "Jetzt",
    "Heute",
    "Gestern",
    "Morgen",
]


def clauses(sentence):
    """The parts of a sentence between its commas and stops, as lists of words."""
    return [part.split() for part in re.split(r"[,.?] ?", sentence) if part]


def test_subordinate_clauses_end_with_their_finite_verb(german):
    counts = Counter()
    for sentence in german:
        for index, words in enumerate(clauses(sentence)):
            opener = words[0].lower()
            is_relative = index > 0 and (
                opener in RELATIVES
                or (opener in ("auf", "mit") and words[1] in RELATIVES and len(words) > 3)
            )
            follows_main = index > 0 and opener in QUESTION_WORDS
            if (
                opener in OPENERS
                and (opener != "als" or index > 0 or words[0] == "Als")
                or follows_main
            ):
                counts[opener] += 1
                assert words[-1] in FINITE | JOINED, sentence
            elif is_relative:
                counts["relative"] += 1
                assert words[-1] in FINITE | JOINED, sentence
    assert set(counts) == {*OPENERS, *QUESTION_WORDS, "relative"}
    assert min(counts.values()) > 20, counts
