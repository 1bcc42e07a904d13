"""Tags, entities and placeholders: out of a text, and into its translation."""

import collections
import html
import itertools
import random
import re

import numpy as np
import pytest

from keras_transformer.errors import InputError
from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.explanation import Explanation, Word
from keras_transformer.translation.markup import Markup
from keras_transformer.translation.markup_placement import word_spans
from keras_transformer.translation.markup_translator import MarkupTranslator

UNKNOWN = "\u0141\u017a\u0429\u6771\u4eac\U0001f392\U0001f600\u0915"


class Reordering:
    """Moves the words of each text, and looks at where they come from, with noise."""

    def __init__(self, seed=0):
        self._random = random.Random(seed)
        self._orders = {}

    def translate_chunks(self, chunks, n_best=1):
        for texts in chunks:
            yield [[self._translation(text, -n) for n in range(n_best)] for text in texts]

    def _translation(self, text, score):
        words = text.split()
        places = [i for i in range(len(words)) if self._random.random() < 0.9]
        self._random.shuffle(places)
        copied = self._random.random() < 0.3
        translation = " ".join(words[i] if copied else words[i].swapcase() for i in places)
        self._orders[text, translation] = places
        return Translation(translation, float(score), False)

    def unknown_characters(self, texts):
        return ["".join(filter(UNKNOWN.__contains__, text)) for text in texts]

    def explain(self, sources, targets):
        return [self._explanation(*sides) for sides in zip(sources, targets, strict=True)]

    def _explanation(self, source, target):
        places, size = self._orders[source, target], len(source.split())
        noise = [[self._random.random() ** 4 for _ in range(size)] for _ in places]
        attention = np.array(noise).reshape(len(places), size)
        for row, place in enumerate(places):
            attention[row, place] += self._random.random()
        words = [Word(word, 0.0, None) for word in target.split()]
        return Explanation(source.split(), words, attention)


def aligned(source, target, pairs, markup=None):
    """Returns what `restore` gives if the words are aligned as Pharaoh writes it."""
    marked = (markup or Markup()).parse(source)
    words = [Word(word, 0.0, None) for word in target.split()]
    attention = np.zeros((len(words), len(marked.plain.split())))
    for pair in pairs.split():
        place, row = map(int, pair.split("-"))
        attention[row, place] = 1.0
    return marked.restore(target, Explanation(marked.plain.split(), words, attention))


COPIED = ["<br>", '<x id="1"/>', "<!-- a > b -->", "{0}", "&nbsp;", "&own;"]
SPACED = ["a@b.org", "{name}", "%5.2f"]
TEXTS = 'a|bc| | |, |.|&amp;|&#8217;|&lt;b&gt;| &|(d)|<3 |é|/|"-'.split("|")


def random_markup(draw, depth=0):
    parts = []
    for _ in range(draw.randrange(1, 6)):
        kind = draw.random()
        if kind < 0.3 and depth < 3:
            name = draw.choice(["b", "I", "p", "my-tag"])
            parts += [f'<{name} n="{draw.random()}>">', random_markup(draw, depth + 1)]
            parts.append(f"</{name.lower()}>")
        elif kind < 0.5:
            parts += [draw.choice(["", " "]), draw.choice(COPIED), draw.choice(["", " "])]
            parts.append(f" {draw.choice(SPACED)} ")
        parts.append("".join(draw.choices(TEXTS, k=draw.randrange(1, 4))))
    return "".join(parts)


COPIES = "|".join(map(re.escape, COPIED + SPACED))
TOKEN = re.compile(rf"{COPIES}|(?P<open><[\w-]+ n=\"[\d.e-]+>\">)|</[\w-]+>")


def tree(text):
    """Returns the tags and placeholders of a text, with neighbours in the order of the alphabet."""
    levels = [[]]
    for match in TOKEN.finditer(text):
        if match["open"]:
            levels.append([match[0]])
        elif match[0].startswith("</"):
            opening, *parts = levels.pop()
            levels[-1].append(repr((opening, sorted(parts), match[0])))
        else:
            levels[-1].append(match[0])
    (parts,) = levels
    return sorted(parts)


def letters(text):
    return "".join(text.split())


def test_a_thousand_random_markups_come_back():
    draw, reordering = random.Random(7), Reordering()
    texts = [random_markup(draw) for _ in range(1000)]
    answers = MarkupTranslator(reordering).translate(texts)
    translations = collections.defaultdict(list)
    for source, target in reordering._orders:
        translations[source].append(letters(target))
    unplaced = 0
    for text, (found,) in zip(texts, answers, strict=True):
        assert tree(found.text) == tree(text)
        plain = letters(html.unescape(TOKEN.sub("", found.text)))
        assert plain in translations[Markup().plain(text)]
        assert letters(Markup().plain(found.text)) == plain
        unplaced += len(found.unplaced)
    assert 0 < unplaced < 2000


@pytest.mark.parametrize(
    ("source", "target", "pairs", "expected"),
    [
        (  # elements in each other, and punctuation outside
            'A <b>man</b> reads <a t="1>0">a <U>red</u> book</a>.',
            "Ein Mann liest ein rotes Buch.", "0-0 1-1 2-2 3-3 4-4 5-5",
            'Ein <b>Mann</b> liest <a t="1>0">ein <U>rotes</u> Buch</a>.',
        ),
        (  # another order; punctuation inside
            "<i>Today</i> <b>she sings!</b>", "Sie singt heute!", "0-2 1-0 2-1",
            "<b>Sie singt</b> <i>heute</i>!",
        ),
        (  # what stands together, rather than all
            "He <b>looks</b> up", "Er schaut heute hinauf zu", "0-0 1-1 1-4 2-3",
            "Er <b>schaut</b> heute hinauf zu",
        ),
        ("<p>all of it</p>", "das, alles!", "2-0", "<p>das, alles!</p>"),
        ("<p><b>all</b>: this</p>", "»alles« das!", "0-0 1-1", "<p>»<b>alles</b>« das!</p>"),
        ("<i><b>a.</b> c</i> d", "D C A.", "0-2 1-1 2-0", "D <i>C <b>A</b></i>."),
        ("<b>x {0}y</b> c", "X C Y", "0-0 1-2 2-1", "<b>X {0}</b> C Y"),
        ("x<y/> <b>b c d</b>", "B X C D", "0-1 1-0 2-1 2-2 3-3", "<y/> <b>B X C D</b>"),
        ("<b>x {0} y</b> c", "X C Y", "0-0 1-2 2-1", "<b>X {0}</b> C Y"),
        ("A man {0} reads %s books.", "Ein Mann liest Bücher.", "1-1 2-2 3-3",
         "Ein Mann {0} liest %s Bücher."),
        ("Say, {name}: {{ b }} (%d) 5%-off!", "Sag jetzt (5%-Rabatt)!", "0-0 2-2",
         "Sag {name} {{ b }} %d jetzt (5%-Rabatt)!"),
        ("Say, {name}: {{ b }} (%d) 5%-off!", "Sag, jetzt () 5%-Rabatt!", "0-0 1-2 2-3",
         "Sag {name}, {{ b }} jetzt (%d) 5%-Rabatt!"),
        ("See<x/> <br/>http://a.b/?c=d&amp;e=f.", "Sieh da.", "0-0",
         "Sieh<x/> <br/>http://a.b/?c=d&amp;e=f da."),
        ("H<sub>2</sub>O is un<b>der</b> it", "darunter ist H2O", "0-2 1-1 2-0",
         "<b>darunter</b> ist H<sub>2</sub>O"),
        ("one<br>two", "eins zwei", "0-0 1-1", "eins <br>zwei"),
        ("3&nbsp;km &own; far", "weit 3 Kilometer", "0-1 1-2 2-0", "weit 3&nbsp;Kilometer &own;"),
        ("a <x/> far ball.", "ein Ball.", "0-0 2-1", "ein <x/> Ball."),
        ("a ball <x/> far.", "fern: ein Ball.", "0-1 1-2", "fern: ein Ball <x/>."),
        ("A<!-- > --> b", "B a", "0-1 1-0", "B a<!-- > -->"),
        ("Order <b>{0}</b>: a hat", "Ein Hut", "0-0 2-1", "Ein <b>{0}</b> Hut"),
        ("<b> {0} </b> <i></i>x", "y", "0-0", "<b> {0} </b> <i></i>y"),
    ],
)  # fmt: skip
def test_markup_goes_where_the_words_are(source, target, pairs, expected):
    assert aligned(source, target, pairs) == (expected, [])


def test_entities_stay_as_they_are_written():
    source = "<b>Tom</b> &amp; J&eacute; &lt;3 > &quot;I&quot; &#8217;"
    assert Markup().plain(source) == 'Tom & J\u00e9 <3 > "I" \u2019'
    target = 'J\u00e9 & Tom <x>3> \u2019 "'
    expected = "J&eacute; &amp; <b>Tom</b> &lt;x>3> &#8217; &quot;"
    assert aligned(source, target, "0-2") == (expected, [])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("a & b < {0} I <3", "A & B < I <3 >", "A & B {0} < I <3 >"),
        ("a & b {0}", "A &amp; B <b>", "A &amp;amp; B &lt;b> {0}"),  # would be read as markup
        ("a &gt; {0} b c", "A & B", "A &amp; {0} B"),
    ],
)
def test_text_that_is_no_markup_stays_text(source, target, expected):
    assert aligned(source, target, "0-0 1-1 2-2") == (expected, [])


@pytest.mark.parametrize(
    ("source", "expected", "unplaced"),
    [
        ("<b>a</b> b", "B<b></b>", ["<b>"]),
        ("a <b>lab</b> <i>coat</i>", "<b>B</b><i></i>", ["<i>"]),
        ("<i>a <b>a</b> {0} <u>b</u></i>", "<i>{0} <u>B</u><b></b></i>", ["<b>"]),
        ("<i>a {0} <b>a <u>{1} a</u></b></i> b", "B<i> {0}<b><u> {1}</u></b></i>",
         ["<i>", "{0}", "<b>", "<u>", "{1}"]),
    ],
)  # fmt: skip
def test_what_no_word_translates_is_at_the_end(source, expected, unplaced):
    size = len(Markup().plain(source).split())
    pairs = "1-0 2-0" if "lab" in source else f"{size - 1}-0"
    assert aligned(source, "B", pairs) == (expected, unplaced)


@pytest.mark.parametrize(
    ("source", "target", "attention", "expected"),
    [
        # the article looks at the noun, which another word looks at even more
        ("a <b>man</b>", "Ein Mann", [[0.3, 0.6], [0.0, 0.9]], "Ein <b>Mann</b>"),
        (
            "<b>a</b> <i>b</i> c",
            "X C",
            [[0.4, 0.6, 0], [0, 0, 1]],
            "<i>X</i> C<b></b>",
        ),  # the surest
    ],
)
def test_words_belong_together_as_far_as_each_chooses_the_other(
    source, target, attention, expected
):
    words = [Word(word, 0.0, None) for word in target.split()]
    marked = Markup().parse(source)
    explanation = Explanation(marked.plain.split(), words, np.array(attention))
    assert marked.restore(target, explanation)[0] == expected


def test_without_attention_each_word_has_one_of_the_source():
    words = [Word("B", 0.0, 1), Word("A", 0.0, 0), Word("?", 0.0, None)]
    found = Markup().parse("<b>a</b> b").restore("B A ?", Explanation(["a", "b"], words))
    assert found == ("B <b>A</b> ?", [])


def test_a_copy_has_the_markup_of_the_source():
    source = " a  <b>{0} b</b>&nbsp;c "
    marked = Markup().parse(source)
    assert marked.restore("a b c", Explanation([], [])) == (source.strip(), [])


@pytest.mark.parametrize(
    ("words", "spans"),
    [
        (["Two", "fish", "", "x."], [(1, 4), (5, 8), (9, 10), (11, 13)]),
        (["two", "\u2581fi", "sh", "x", "."], [(1, 4), (5, 6), (6, 8), (11, 12), (12, 13)]),
        (["two"], [(1, 4)]),
        (["two", "", "fish", "q", "x."], [(1, 4), None, (5, 8), None, (11, 13)]),
    ],
)
def test_words_are_found_whatever_the_tokenizer_makes_of_them(words, spans):
    assert word_spans(" Two \ufb01sh \u2603 x.", words) == spans


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a </b>", "Received: </b> without an opening tag. Open"),
        ("<b><i>a</b></i>", "Received: </b> where <i> is open. Open"),
        ("a <b t='>'> <br>", "Received: <b t='>'> that is never closed. Open"),
        ("<b>" * 101, "Received: <b> in 100 elements that are open. Open"),
    ],
)
def test_tags_must_be_balanced(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Markup().parse(text)


def test_patterns_are_those_of_a_file(tmp_path):
    path = tmp_path / "patterns.txt"
    path.write_text("[A-Z]+-\\d+\n\n<cap \\w+>\nx*\n")
    found = aligned("<b>see AB-1</b> <cap d> x {0}", "da schau", "0-1", Markup.read(path))
    assert found == ("<b>da schau AB-1</b> <cap d> x {0}", [])
    path.write_text("\n(a\n")
    with pytest.raises(InputError, match=r"patterns.txt, line 2: '\(a': missing \), un"):
        Markup.read(path)
    for pattern, reason in (("(a", "missing"), ("a{99999999999}", "the repetition number")):
        with pytest.raises(InputError, match=rf"Received: {re.escape(repr(pattern))}: {reason}"):
            Markup([pattern])


@pytest.mark.parametrize(
    ("text", "plain", "copied"),
    [
        ("A &lt;http://a.b/c&gt; c", "A <> c", ["http://a.b/c"]),
        ("A http://a.b/c&nbsp;is c", "A is c", ["http://a.b/c&nbsp;"]),
        ("A https://x.de/{user} c", "A  c", ["https://x.de/{user}"]),
        ("A https://x.de/{{ id }}/d c", "A  c", ["https://x.de/{{ id }}/d"]),
        ("A https://x.de/a_(b) c", "A  c", ["https://x.de/a_(b)"]),
        ("A (http://a.b/c).", "A ().", ["http://a.b/c"]),
        ("A http://a.b/?x=1&amp;y=2&z=3; c", "A; c", ["http://a.b/?x=1&amp;y=2&z=3"]),
    ],
)
def test_the_address_of_a_page_ends_where_it_ends(text, plain, copied):
    found = Markup().parse(text)
    assert (found.plain, [part.opening for part in found._root.parts]) == (plain, copied)


@pytest.mark.parametrize(
    ("text", "plain", "copied"),
    [
        ("A \U0001f392.", "A.", ["\U0001f392"]),
        ("c\U0001f392\u200d\U0001f600\ufe0f!", "c!", ["\U0001f392\u200d\U0001f600\ufe0f"]),
        ("the \u0141ód\u017a-bus", "the -bus", ["\u0141ód\u017a"]),
        ("abc\u0429", "", ["abc\u0429"]),
        ("ist\u6771\u4eac\u5927\u5b66\u6771", "ist\u5927\u5b66", ["\u6771\u4eac", "\u6771"]),
        ("a < b & <b> {0} \u0429 &amp;", "a < b & <b> {0}  &amp;", ["\u0429"]),
    ],
)  # fmt: skip
def test_words_with_unknown_characters_are_copied(text, plain, copied):
    found = Markup(tags=False).parse(text, UNKNOWN)
    assert (found.plain, [part.opening for part in found._root.parts]) == (plain, copied)


def test_a_thousand_random_texts_keep_what_is_unknown():
    draw = random.Random(3)
    words = [*"abcdef", "<b>", "&amp;", "\u0141ód\u017a", "\u0429", "\u6771\u4eac", "\U0001f392"]
    texts = [" ".join(draw.choices(words, k=draw.randrange(12))) for _ in range(1000)]
    translator = MarkupTranslator(Reordering(), Markup(tags=False), copy_unknown=True)
    for text, (best,) in zip(texts, translator.translate(texts), strict=True):
        for word in words[8:]:
            assert best.text.count(word) == text.count(word), (text, best.text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a {0} b", "a  b"),
        ("a \u0429{name} b", "a  b"),
        ("\u0429@b.org \U0001f392 {1} a {", "   a "),
    ],
)
def test_what_is_unknown_in_a_placeholder_is_no_word(text, plain, monkeypatch):
    monkeypatch.setitem(globals(), "UNKNOWN", UNKNOWN + "{}")
    reordering = Reordering()
    MarkupTranslator(reordering, copy_unknown=True)([text])
    assert [source for source, _ in reordering._orders] == [plain]


@pytest.mark.parametrize("copy_unknown", [False, True])
def test_entities_of_unknown_characters_are_copied(copy_unknown, monkeypatch):
    monkeypatch.setitem(globals(), "UNKNOWN", "<")
    reordering = Reordering()
    translator = MarkupTranslator(reordering, copy_unknown=copy_unknown)
    (found,) = translator(["a &lt; <b>b</b> &amp; c &#60;."])
    assert [source for source, _ in reordering._orders] == ["a  b & c."]
    assert found.count("&lt;") == found.count("&#60;") == 1


def test_the_texts_before_a_bad_one_are_translated():
    chunks = MarkupTranslator(Reordering()).translate_chunks([["a"], ["b", "</i>", "c"]], first=2)
    assert [len(answers) for answers in itertools.islice(chunks, 2)] == [1, 1]
    with pytest.raises(InputError, match="Received: line 5: </i> without"):
        next(chunks)


def test_a_model_translates_the_text_without_its_markup(translator, texts):
    texts = texts[:33]
    translations = translator(texts)
    marked = [f"<p>{{0}} <b>{text[:9]}</b>{text[9:]}</p>" for text in texts]
    answers = MarkupTranslator(translator).translate(marked)
    for text, (found,) in zip(translations, answers, strict=True):
        assert found.text.startswith("<p>{0} ") and found.text.endswith("</p>")
        assert found.text.count("<b>") == found.text.count("</b>") == 1
        assert re.sub(r"<[^>]*>|\{0\} ", "", found.text).strip() == text
        assert found.unplaced in ([], ["<b>"])
