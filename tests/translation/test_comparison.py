"""Systems beside each other, against sacreBLEU's own scores, and the page of a comparison."""

import html.parser
import random

import pytest
import sacrebleu

from keras_transformer.translation.comparison import NUM_DIFFERENT, compare, comparison_page

WORDS = "der die das ein Hund Mann Kind läuft steht spielt im am Park Haus Schnee".split()

METRICS = {
    "BLEU": sacrebleu.corpus_bleu,
    "chrF2": sacrebleu.corpus_chrf,
    "TER": sacrebleu.corpus_ter,
}


def made(seed, number, wrong=0.0, errors_seed=0):
    """Returns sentences of 5 to 14 words, of which a share is wrong."""
    words, errors = random.Random(seed), random.Random(errors_seed)
    sentences = [
        [words.choice(WORDS) for _ in range(words.randrange(5, 15))] for _ in range(number)
    ]
    return [" ".join("x" if errors.random() < wrong else w for w in each) for each in sentences]


def test_scores_are_those_of_sacrebleu_and_the_test_sees_a_difference():
    reference = made(1, 60)
    systems = {"a": made(1, 60, 0.3), "b": made(1, 60, 0.1), "c": made(1, 60, 0.3, 5)}
    systems["same"] = list(systems["a"])
    found = compare(systems, [reference])
    for name, metric in METRICS.items():
        for system, texts in systems.items():
            assert found.scores[name][system]["score"] == pytest.approx(
                metric(texts, [reference]).score
            )
        assert "p" not in found.scores[name]["a"]
        assert found.scores[name]["b"]["p"] < 0.05 < found.scores[name]["c"]["p"]
        assert found.scores[name]["same"]["p"] == 1 and found.scores[name]["b"]["ci"] > 0
        assert "nrefs:1|bs:1000|seed:" in found.signatures[name]
    rows = [i for i, text in enumerate(reference) if len(text.split()) < 10]
    parts = [[texts[i] for i in rows] for texts in (systems["b"], reference)]
    expected = sacrebleu.corpus_bleu(parts[0], parts[1:]).score
    assert found.by_length["0-9"]["b"] == pytest.approx(expected)
    assert list(found.by_length) == ["0-9", "10-19"] and found.by_tag == {}
    sources = [f"{'' if i in rows else '>>fr<<'} x" for i in range(len(reference))]
    tagged = compare({name: systems[name] for name in "ab"}, [reference], sources=sources)
    assert list(tagged.by_tag) == [">>fr<<", "no tag"]
    assert tagged.by_tag["no tag"]["b"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="Received: 1 sources, 60 targets"):
        compare(systems, [reference], sources=["x"])


def test_the_sentences_that_differ_most_come_first():
    reference = made(2, 40)
    systems = {"a": list(reference), "b": list(reference)}
    systems["b"][7] = "ganz anders"
    systems["a"][30] = reference[30] + " x"
    first, second = compare(systems, [reference]).different
    assert (first["line"], second["line"]) == (8, 31)
    assert first["translations"]["a"] == {"text": reference[7], "chrF2": pytest.approx(100)}
    assert first["translations"]["b"]["text"] == "ganz anders"
    assert first["reference"] == reference[7]
    systems["b"] = made(3, 40)
    assert len(compare(systems, [reference]).different) == NUM_DIFFERENT


def test_one_system_is_refused():
    with pytest.raises(ValueError, match="two systems to compare. Received: a. Name another"):
        compare({"a": ["x"]}, [["x"]])


REFERENCE = ["Ein Hund läuft im Park.", "Die Katze <schläft> & träumt.", "Das ist ein Haus."]
OTHER = ["Ein Hund rennt im Park.", "Die Katze <schläft> & träumt.", "Das war das Haus."]


class Reader(html.parser.HTMLParser):
    """The tags that are open, and the text of marks and of table cells."""

    def __init__(self):
        super().__init__()
        self.open, self.marked, self.cells = [], [], []

    def handle_starttag(self, tag, attributes):
        assert not {"src", "href"} & dict(attributes).keys()
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag in ("mark", "td"):
            (self.marked if tag == "mark" else self.cells).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "mark" in self.open:
            self.marked[-1] += data
        if "td" in self.open:
            self.cells[-1] += data


def test_the_page_has_all_that_was_found_and_asks_for_nothing_else():
    systems = {"<b>first": REFERENCE, "line": OTHER}
    assert "tag of the source" not in comparison_page(compare(systems, [REFERENCE]))
    found = compare(systems, [REFERENCE], sources=[">>fr<< x", ">>fr<< y", ">>it<< z"])
    page = comparison_page(found)
    reader = Reader()
    reader.feed(page)
    assert reader.open == [] and "://" not in page
    assert reader.marked == ["war das", "rennt"]
    score = found.scores["BLEU"]["line"]
    assert "<b>first" in reader.cells
    assert f"{score['score']:.2f} ± {score['ci']:.2f} (p = {score['p']:.3f})" in reader.cells
    for each in found.different:
        assert each["reference"] in reader.cells
        assert {text["text"] for text in each["translations"].values()} <= set(reader.cells)
    for groups in (found.by_length, found.by_tag):
        assert list(groups) == [cell for cell in reader.cells if cell in groups]
    assert all(signature in page for signature in found.signatures.values())
