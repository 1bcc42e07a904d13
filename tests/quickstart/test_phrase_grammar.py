"""The grammar of the phrase corpus against sentences translated by hand, construction by
construction, the way a textbook lists them."""

import pytest

from keras_transformer.quickstart.phrases.draw import (
    CAN,
    MAY,
    MUST,
    SHOULD,
    WANT,
    WILL,
    negate,
    verb_named,
)
from keras_transformer.quickstart.phrases.lexicon import (
    ADJECTIVES,
    BE,
    DETERMINERS,
    NOUNS,
    PRONOUNS,
)
from keras_transformer.quickstart.phrases.pairs import (
    ask,
    fill,
    main_first,
    say,
    side_first,
    subordinate,
)
from keras_transformer.quickstart.phrases.syntax import Clause, NounPhrase, PrepositionalPhrase

_PRONOUN_OF_OBJECT = {"me": "I", "him": "he", "her": "she", "us": "we", "them": "they"}
TODAY, YESTERDAY, TOMORROW = ("today", "heute"), ("yesterday", "gestern"), ("tomorrow", "morgen")


def noun_phrase(text):
    """Reads "the old men", "cold milk", "Anna", "her"."""
    pronoun = _PRONOUN_OF_OBJECT.get(text, text)
    if pronoun in PRONOUNS:
        return PRONOUNS[pronoun]
    *words, word = text.split()
    noun = next(noun for noun in NOUNS if word in (noun.english, noun.english_plural))
    determiner = {"these": "this", "an": "a", "any": "no"}.get(words[0], words[0]) if words else ""
    determiner = determiner if determiner in DETERMINERS else "bare"
    adjectives = [adjective for adjective in ADJECTIVES if adjective.english in words]
    adjective = adjectives[0] if adjectives else None
    return NounPhrase(determiner, noun, adjective, word == noun.english_plural)


def clause(subject, verb, object="", to="", at="", tense="present", time=None, governs="acc"):
    """A clause from texts; `at` is a preposition and a noun phrase, with a comma in between."""
    preposition, _, place = at.partition(", ")
    return Clause(
        noun_phrase(subject),
        verb_named(verb, governs),
        tense,
        object=noun_phrase(object) if object else None,
        recipient=noun_phrase(to) if to else None,
        place=PrepositionalPhrase(preposition, noun_phrase(place)) if at else None,
        time=time,
    )


def feels(subject, complement, tense="present"):
    return Clause(noun_phrase(subject), BE, tense, complement=complement)


TIRED = ("tired", "müde")
GOLD = [
    # weak endings after der, weak nouns, dative plural
    (
        say(clause("the old man", "read", "the long letter")),
        "the old man is reading the long letter",
        "der alte Mann liest den langen Brief",
    ),
    (
        say(clause("Peter", "see", "the little boy")),
        "Peter sees the little boy",
        "Peter sieht den kleinen Jungen",
    ),
    (
        say(clause("the queen", "follow", "the bear", governs="dat")),
        "the queen is following the bear",
        "die Königin folgt dem Bären",
    ),
    (
        say(clause("Maria", "play with", "the children", governs="mit dat")),
        "Maria is playing with the children",
        "Maria spielt mit den Kindern",
    ),
    (
        say(clause("Paul", "play with", "two cars", governs="mit dat")),
        "Paul is playing with two cars",
        "Paul spielt mit zwei Autos",
    ),
    (
        say(clause("these tired women", "help", "these girls", governs="dat")),
        "these tired women are helping these girls",
        "diese müden Frauen helfen diesen Mädchen",
    ),
    # mixed endings after ein, kein, mein
    (
        say(clause("a happy child", "sleep", governs="nothing")),
        "a happy child is sleeping",
        "ein glückliches Kind schläft",
    ),
    (
        say(clause("my friendly uncle", "buy", "an expensive watch")),
        "my friendly uncle is buying an expensive watch",
        "mein freundlicher Onkel kauft eine teure Uhr",
    ),
    (
        say(clause("our dogs", "wait for", "their sad father", governs="auf acc")),
        "our dogs are waiting for their sad father",
        "unsere Hunde warten auf ihren traurigen Vater",
    ),
    (
        say(clause("Anna", "talk to", "her old aunt", governs="mit dat")),
        "Anna is talking to her old aunt",
        "Anna spricht mit ihrer alten Tante",
    ),
    # strong endings without an article, after numbers and after a name's genitive
    (
        say(clause("Anna", "drink", "cold milk")),
        "Anna is drinking cold milk",
        "Anna trinkt kalte Milch",
    ),
    (
        say(clause("Paul", "drink", "hot coffee")),
        "Paul is drinking hot coffee",
        "Paul trinkt heißen Kaffee",
    ),
    (
        say(clause("we", "eat", "fresh bread")),
        "we are eating fresh bread",
        "wir essen frisches Brot",
    ),
    (
        say(clause("many old men", "visit", "two young women")),
        "many old men are visiting two young women",
        "viele alte Männer besuchen zwei junge Frauen",
    ),
    (
        say(clause("I", "help", "many old men", tense="past", governs="dat")),
        "I helped many old men",
        "ich habe vielen alten Männern geholfen",
    ),
    (
        say(clause("she", "wear", "Peter's white hat")),
        "she is wearing Peter's white hat",
        "sie trägt Peters weißen Hut",
    ),
    (
        say(feels("Anna's red bicycle", ("new", "neu"))),
        "Anna's red bicycle is new",
        "Annas rotes Fahrrad ist neu",
    ),
    # separable verbs: apart, together, around the participle's ge
    (
        say(clause("the boy", "open", "the window")),
        "the boy is opening the window",
        "der Junge macht das Fenster auf",
    ),
    (
        say(clause("the boy", "open", "the window", tense="past")),
        "the boy opened the window",
        "der Junge hat das Fenster aufgemacht",
    ),
    (
        say(clause("the boy", "open", "the window", tense=MUST)),
        "the boy has to open the window",
        "der Junge muss das Fenster aufmachen",
    ),
    (
        subordinate(clause("the boy", "open", "the window")),
        "the boy is opening the window",
        "der Junge das Fenster aufmacht",
    ),
    # the perfect with haben and sein
    (
        say(clause("they", "come back", tense="past", governs="nothing")),
        "they came back",
        "sie sind zurückgekommen",
    ),
    (
        say(clause("I", "follow", "him", tense="past", governs="dat")),
        "I followed him",
        "ich bin ihm gefolgt",
    ),
    (
        say(clause("my sisters", "sleep", tense="past", governs="nothing")),
        "my sisters slept",
        "meine Schwestern haben geschlafen",
    ),
    # modal verbs and the future
    (
        say(clause("the king", "write", "a letter", tense=CAN)),
        "the king can write a letter",
        "der König kann einen Brief schreiben",
    ),
    (
        say(clause("we", "visit", "our aunt", tense=SHOULD)),
        "we should visit our aunt",
        "wir sollten unsere Tante besuchen",
    ),
    (
        say(clause("I", "call", "her", tense=WILL, time=TOMORROW)),
        "I will call her tomorrow",
        "ich werde sie morgen anrufen",
    ),
    (
        say(clause("the girls", "dance", tense=MAY, governs="nothing")),
        "the girls are allowed to dance",
        "die Mädchen dürfen tanzen",
    ),
    # pronouns in the accusative and dative
    (say(clause("Paul", "love", "me")), "Paul loves me", "Paul liebt mich"),
    (
        say(clause("Paul", "thank", "us", governs="dat")),
        "Paul is thanking us",
        "Paul dankt uns",
    ),
    (
        say(clause("he", "pick up", "them")),
        "he is picking them up",
        "er holt sie ab",
    ),
    # somebody gives somebody something
    (
        say(clause("the mother", "give", "an apple", to="the child", governs="transfer")),
        "the mother is giving the child an apple",
        "die Mutter gibt dem Kind einen Apfel",
    ),
    (
        say(clause("Maria", "show", "the dogs", to="them", tense="past", governs="transfer")),
        "Maria showed them the dogs",
        "Maria hat ihnen die Hunde gezeigt",
    ),
    # nicht and kein
    (
        say(negate(clause("Peter", "buy", "the coat"))),
        "Peter is not buying the coat",
        "Peter kauft den Mantel nicht",
    ),
    (
        say(negate(clause("Peter", "buy", "a coat", tense=WANT))),
        "Peter does not want to buy a coat",
        "Peter will keinen Mantel kaufen",
    ),
    (
        say(negate(clause("she", "have", "red hats"))),
        "she does not have any red hats",
        "sie hat keine roten Hüte",
    ),
    (
        say(negate(clause("they", "drink", "milk", tense="past"))),
        "they did not drink any milk",
        "sie haben keine Milch getrunken",
    ),
    (
        say(negate(clause("the cat", "sleep", at="in, the garden", governs="nothing"))),
        "the cat is not sleeping in the garden",
        "die Katze schläft nicht im Garten",
    ),
    (
        say(negate(clause("Anna", "wait for", "him", governs="auf acc"))),
        "Anna is not waiting for him",
        "Anna wartet nicht auf ihn",
    ),
    (
        say(negate(clause("the guest", "turn off", "the lamp"))),
        "the guest is not turning off the lamp",
        "der Gast schaltet die Lampe nicht aus",
    ),
    (
        say(negate(clause("the men", "carry", "the table", tense=CAN))),
        "the men cannot carry the table",
        "die Männer können den Tisch nicht tragen",
    ),
    (
        say(negate(clause("Maria", "work", tense=MUST, governs="nothing"))),
        "Maria does not have to work",
        "Maria muss nicht arbeiten",
    ),
    # time and place, in front and in the middle
    (
        say(clause("the girl", "read", "a book"), TODAY),
        "today the girl is reading a book",
        "heute liest das Mädchen ein Buch",
    ),
    (
        say(clause("the girl", "read", "a book", at="in, the small room", time=TODAY)),
        "the girl is reading a book in the small room today",
        "das Mädchen liest heute im kleinen Zimmer ein Buch",
    ),
    (
        say(clause("the girl", "read", "the book", at="behind, the school", tense="past")),
        "the girl read the book behind the school",
        "das Mädchen hat das Buch hinter der Schule gelesen",
    ),
    (
        say(clause("Peter", "hear", "the birds", tense="past"), YESTERDAY),
        "yesterday Peter heard the birds",
        "gestern hat Peter die Vögel gehört",
    ),
    # in with the accusative of direction, zu and aus
    (
        say(clause("the horse", "run", at="into, the forest", governs="direction")),
        "the horse is running into the forest",
        "das Pferd läuft in den Wald",
    ),
    (
        say(clause("we", "go", at="into, the old house", tense="past", governs="direction")),
        "we went into the old house",
        "wir sind ins alte Haus gegangen",
    ),
    (
        say(clause("Paul", "go", at="to, the queen", governs="direction")),
        "Paul is going to the queen",
        "Paul geht zur Königin",
    ),
    (
        say(clause("Paul", "go", at="to, his brother", tense=WILL, governs="direction")),
        "Paul will go to his brother",
        "Paul wird zu seinem Bruder gehen",
    ),
    (
        say(clause("my cat", "come", at="out of, this kitchen", governs="direction")),
        "my cat is coming out of this kitchen",
        "meine Katze kommt aus dieser Küche",
    ),
    # questions
    (
        ask(clause("the king", "look for", "his hat")),
        "is the king looking for his hat",
        "sucht der König seinen Hut",
    ),
    (
        ask(clause("they", "arrive", tense="past", governs="nothing"), ("when", "wann")),
        "when did they arrive",
        "wann sind sie angekommen",
    ),
    (
        say(clause("who", "need", "a chair")),
        "who needs a chair",
        "wer braucht einen Stuhl",
    ),
    (
        ask(clause("his sister", "invite"), ("who", "wen")),
        "who is his sister inviting",
        "wen lädt seine Schwester ein",
    ),
    (
        ask(negate(clause("the bears", "wake up", governs="nothing")), ("why", "warum")),
        "why are the bears not waking up",
        "warum wachen die Bären nicht auf",
    ),
    # subordinate clauses, behind and in front
    (
        main_first(
            ("because", "weil"),
            negate(clause("Anna", "dance", tense=WANT, governs="nothing")),
            subordinate(feels("she", TIRED)),
        ),
        "Anna does not want to dance because she is tired.",
        "Anna will nicht tanzen, weil sie müde ist.",
    ),
    (
        side_first(
            ("although", "obwohl"),
            clause("he", "carry", "two heavy suitcases"),
            subordinate(feels("the boy", TIRED)),
        ),
        "although the boy is tired, he is carrying two heavy suitcases.",
        "obwohl der Junge müde ist, trägt er zwei schwere Koffer.",
    ),
    (
        side_first(
            ("while", "während"),
            clause("Peter", "call", "his father"),
            subordinate(clause("the guests", "fall asleep", governs="nothing")),
        ),
        "while the guests are falling asleep, Peter is calling his father.",
        "während die Gäste einschlafen, ruft Peter seinen Vater an.",
    ),
    (
        fill(
            "{} that {}.",
            "{}, dass {}.",
            say(clause("I", "know", governs="clause")),
            subordinate(negate(clause("Maria", "sell", "the car", tense=WILL))),
        ),
        "I know that Maria will not sell the car.",
        "ich weiß, dass Maria das Auto nicht verkaufen wird.",
    ),
    (
        fill(
            "{} whether {}.",
            "{}, ob {}.",
            say(clause("the man", "ask", governs="clause")),
            subordinate(clause("the woman", "find", "her key", tense="past")),
        ),
        "the man asks whether the woman found her key.",
        "der Mann fragt, ob die Frau ihren Schlüssel gefunden hat.",
    ),
    (
        subordinate(clause("I", "go", tense=SHOULD, governs="direction"), ("where", "wohin")),
        "where I should go",
        "wohin ich gehen sollte",
    ),
    # was and were
    (
        say(feels("the children", ("very hungry", "sehr hungrig"), "past"), YESTERDAY),
        "yesterday the children were very hungry",
        "gestern waren die Kinder sehr hungrig",
    ),
]


@pytest.mark.parametrize("pair, english, german", GOLD, ids=[row[1] for row in GOLD])
def test_clause_is_said_as_a_teacher_would(pair, english, german):
    assert pair == (english, german)
