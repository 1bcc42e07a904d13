"""The page of a comparison."""

import html.parser

from keras_transformer.translation.comparison import compare, comparison_page

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
