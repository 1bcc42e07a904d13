"""The German of the corpus against tables that are not those of the grammar in tools/phrases."""

import re
from collections import Counter

import pytest

from keras_transformer.quickstart.phrases import phrase_corpus


@pytest.fixture(scope="module")
def german():
    return [sentence for split in phrase_corpus() for _, sentence in split]


# The order of words. All finite forms are listed, so that a new verb is looked at.

FINITE = """
    bin ist sind war waren habe hat haben werde wird werden kann können sollte sollten darf dürfen
    will wollen muss müssen liest lesen schreibt schreiben isst essen trinkt trinken kocht kochen
    backt backen kauft kaufen verkauft verkaufen sucht suchen trägt tragen wäscht waschen
    repariert reparieren malt malen füttert füttern besucht besuchen liebt lieben kennt kennen
    braucht brauchen sieht sehen hört hören hilft helfen dankt danken antwortet antworten folgt
    folgen wartet warten spricht sprechen spielt spielen arbeitet arbeiten singt singen tanzt
    tanzen lacht lachen weint weinen schläft schlafen geht gehen läuft laufen kommt kommen gibt
    geben zeigt zeigen bringt bringen schickt schicken liegt liegen sagt sagen glaube glaubt
    glauben hoffe hofft hoffen weiß wissen fragt fragen versucht versuchen macht machen schaltet
    schalten ruft rufen holt holen lädt laden wacht wachen regnet schneit scheint kam kamen
""".split()
JOINED = """
    aufmacht aufmachen zumacht zumachen einschaltet einschalten ausschaltet ausschalten ansieht
    ansehen anruft anrufen abholt abholen einlädt einladen zuhört zuhören aufwacht aufwachen
    aufwachte aufwachten einschläft einschlafen einschlief einschliefen ankommt ankommen ankam
    ankamen zurückkommt zurückkommen zurückkam zurückkamen
""".split()
CONJUNCTIONS = "weil dass ob wenn obwohl als bevor während wo wohin wann warum".split()
TIMES = "(?:Heute Abend|Heute Morgen|Letzte Woche|Nächste Woche|Jetzt|Heute|Gestern|Morgen)"


def clauses_of(sentence):
    """The words of each part between commas and stops."""
    return [part.split() for part in re.split(r"[,.?] ?", sentence) if part]


def is_subordinate(words, position):
    if position == 0:
        return words[0] in ("Weil", "Wenn", "Obwohl", "Als", "Bevor", "Während")
    starts_relative = words[0] in ("auf", "mit") or words[0] in "der die das den dem denen".split()
    return words[0] in CONJUNCTIONS or starts_relative and not is_infinitive(words)


def is_infinitive(words):
    """With zu in front of the last word or, in a separable verb, inside it."""
    return "zu" in words[-2:-1] or re.fullmatch("(auf|zu|ein|aus|an|ab)zu[a-zäöü]+en", words[-1])


def test_subordinate_clause_ends_with_its_finite_verb(german):
    openers = Counter()
    for sentence in german:
        for position, words in enumerate(clauses_of(sentence)):
            if is_subordinate(words, position):
                openers[words[0].lower()] += 1
                assert words[-1] in FINITE + JOINED, sentence
                assert words[-2] not in "auf zu ein aus an ab zurück".split(), sentence
                assert not {*words[1:-1]} & {"ist", "sind", "hat", "wird", "muss"}, sentence
    assert {*CONJUNCTIONS, "den", "dem"} <= {*openers}
    assert min(openers[word] for word in CONJUNCTIONS) > 15


def test_main_clause_behind_a_subordinate_one_starts_with_its_finite_verb(german):
    count = 0
    for sentence in german:
        first, *others = clauses_of(sentence)
        if others and is_subordinate(first, 0):
            count += 1
            assert others[0][0] in FINITE, sentence
    assert count > 300


def test_verb_stands_second_behind_a_time_and_first_in_a_question(german):
    behind_time = [re.match(f"{TIMES} (\\w+)", sentence) for sentence in german]
    behind_time = [found for found in behind_time if found]
    assert len(behind_time) > 200
    for found in behind_time:
        assert found[1] in FINITE, found.string
    for sentence in german:
        if sentence.endswith("?") and not re.match("W|Auf|Mit|Anna,|Maria,|Pe|Paul,", sentence):
            assert sentence.split()[0].lower() in FINITE, sentence


# Agreement

SINGULAR = {
    "m": """Mann Gast König Junge Vater Bruder Onkel Hund Vogel Bär Apfel Kuchen Kaffee Brief Mantel
        Hut Koffer Computer Ball Schlüssel Tisch Stuhl Garten Park Wald""",
    "f": """Frau Königin Mutter Schwester Tante Katze Suppe Milch Zeitung Jacke Tür Tasche Lampe Uhr
        Küche Schule Stadt""",
    "n": """Mädchen Kind Pferd Ei Brot Fleisch Wasser Buch Kleid Fenster Radio Auto Fahrrad Bild
        Bett Haus Zimmer""",
}
PLURAL = """
    Männer Gäste Könige Jungen Brüder Onkel Hunde Vögel Bären Äpfel Kuchen Briefe Mäntel Hüte Koffer
    Computer Bälle Schlüssel Tische Stühle Frauen Königinnen Schwestern Tanten Katzen Zeitungen
    Jacken Türen Taschen Lampen Uhren Mädchen Kinder Pferde Eier Bücher Kleider Fenster Radios Autos
    Fahrräder Bilder Betten""".split()
DATIVE_PLURAL = [word if word[-1] in "ns" else word + "n" for word in PLURAL]
WEAK = {"Jungen": "Junge", "Bären": "Bär"}  # accusative and dative singular: nominative
# der | dies-, welch- | ein-, mein-, ... | adjective behind the first two, the third, none of them
ENDINGS = {
    ("m", "nom"): "der er - e er er",
    ("m", "acc"): "den en en en en en",
    ("m", "dat"): "dem em em en en em",
    ("f", "nom"): "die e e e e e",
    ("f", "acc"): "die e e e e e",
    ("f", "dat"): "der er er en en er",
    ("n", "nom"): "das es - e es es",
    ("n", "acc"): "das es - e es es",
    ("n", "dat"): "dem em em en en em",
    ("plural", "nom"): "die e e en en e",
    ("plural", "acc"): "die e e en en e",
    ("plural", "dat"): "den en en en en en",
}
ADJECTIVES = """
    alt jung klein freundlich müd glücklich traurig krank hungrig groß schön neu teur schwer rot
    weiß schwarz frisch heiß kalt gut lang interessant kaputt schmutzig""".split()
EIN_WORDS = "ein kein mein unser sein ihr".split()
PREPOSITIONS = {"mit": "dat", "aus": "dat", "zu": "dat", "im": "dat", "zum": "dat", "zur": "dat"}
PREPOSITIONS |= {"unter": "dat", "hinter": "dat", "vor": "dat", "neben": "dat", "ins": "acc"}
WITHOUT_ENDING = {"zwei", "drei", "viele", "vielen", "Annas", "Peters"}
CONTRACTED = {"im": "dem", "zum": "dem", "zur": "der", "ins": "das"}


def genders_and_cases(noun):
    """All that a form of a noun can be."""
    found = {(gender, case) for gender, case in ENDINGS if noun in SINGULAR.get(gender, "").split()}
    if noun in WEAK.values():
        found &= {("m", "nom")}
    if noun in WEAK:
        found |= {("m", "acc"), ("m", "dat")}
    if noun in PLURAL:
        found |= {("plural", "nom"), ("plural", "acc")}
    if noun in DATIVE_PLURAL:
        found |= {("plural", "dat")}
    return found


def split_determiner(word):
    """Returns the column of ENDINGS for a determiner and for an adjective behind it, its ending."""
    if word in "der die das den dem".split():
        return 0, 3, word
    for stems, column, adjective_column in ((["dies", "welch"], 1, 3), (EIN_WORDS, 2, 4)):
        for stem in stems:
            if re.fullmatch(f"{stem}(e|er|es|en|em)?", word):
                return column, adjective_column, word.removeprefix(stem) or "-"
    return None, 5, ""


def noun_phrases(sentence):
    """Yields preposition, determiner, adjective and noun of a sentence, absent ones empty."""
    for position, words in enumerate(clauses_of(sentence[0].lower() + sentence[1:])):
        if position and is_subordinate(words, position):
            words = words[2 if words[0] in ("auf", "mit") else 1 :]  # not the relative pronoun
        for index, noun in enumerate(words):
            if genders_and_cases(noun):
                before = ["", "", "", *words[:index]]
                found = re.fullmatch(f"({'|'.join(ADJECTIVES)})(e[nmrs]?)", before[-1])
                adjective = found[2] if found else ""
                preposition, determiner = before[-3:-1] if found else before[-2:]
                if split_determiner(determiner)[0] is None and determiner not in WITHOUT_ENDING:
                    preposition, determiner = determiner, ""
                if preposition in CONTRACTED:
                    determiner = CONTRACTED[preposition]
                yield preposition, determiner, adjective, noun


def test_determiner_adjective_and_noun_agree(german):
    count = Counter()
    for sentence in german:
        for preposition, determiner, adjective, noun in noun_phrases(sentence):
            column, adjective_column, ending = split_determiner(determiner)
            possible = [
                (gender, case)
                for gender, case in genders_and_cases(noun)
                if (column is None or ENDINGS[gender, case].split()[column] == ending)
                and (not adjective or ENDINGS[gender, case].split()[adjective_column] == adjective)
                and PREPOSITIONS.get(preposition, case) == case
                and (determiner not in ("zwei", "drei", "viele", "vielen") or gender == "plural")
                and (determiner != "vielen" or case == "dat")
                and (determiner != "viele" or case != "dat")
            ]
            assert possible, (sentence, preposition, determiner, adjective, noun)
            count[column, bool(adjective)] += 1
    assert min(count.values()) > 100 and len(count) == 8


def test_every_noun_of_the_corpus_is_in_the_table(german):
    names = {"Anna", "Maria", "Peter", "Paul", "Annas", "Peters"}
    others = {"Abend", "Morgen", "Woche", "Hause", "Wetter", "Sonne"}
    for sentence in german:
        for words in clauses_of(sentence):
            for word in words[1:]:
                assert word[0].islower() or genders_and_cases(word) or word in names | others, word


def test_subject_at_the_start_agrees_in_number_with_its_verb(german):
    plural = {"sind", "waren", "haben", "werden", "können", "sollten", "dürfen", "müssen"}
    singular = {"ist", "war", "hat", "wird", "kann", "sollte", "darf", "muss"}
    no_subject = "W|Im|In|Vor|Hinter|Neben"  # a question, a place
    count = Counter()
    for sentence in german:
        words = clauses_of(sentence)[0]
        for noun, verb in zip(words[:3], words[1:], strict=False):
            forms = {gender for gender, case in genders_and_cases(noun) if case == "nom"}
            if forms and verb in plural | singular and not re.match(no_subject, sentence):
                count[verb in plural] += 1
                assert forms & {"plural"} if verb in plural else forms - {"plural"}, sentence
    assert min(count.values()) > 100
