import pytest

from keras_transformer import plots
from keras_transformer.translation.evaluation import bleu

SOURCES = ["a dog", "a dog runs", "black dogs run here", "two dogs run on the wide beach"]
REFERENCES = [
    "ein Hund ist da",
    "ein Hund rennt hier",
    "ein schwarzer Hund rennt am Strand",
    "zwei Hunde rennen am weiten Strand",
]


def test_the_bleu_of_each_group_is_that_of_its_sentences(tmp_path):
    worse = [*REFERENCES[:2], "ein schwarzer Hund rennt an dem Strand", "zwei Hunde am Strand"]
    translations = {"equal": REFERENCES, "worse": worse}
    path = tmp_path / "lengths.png"
    figure = plots.bleu_by_length(SOURCES, REFERENCES, translations, path, edges=(4, 20))
    (axis,) = figure.axes
    equal, other = axis.lines
    assert equal.get_ydata() == pytest.approx([100.0, 100.0])
    expected = bleu(worse[2:], REFERENCES[2:]).value
    assert 0 < expected < 90
    assert other.get_ydata() == pytest.approx([100.0, expected])
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names == ["0-3\n2 sentences", "4-19\n2 sentences"]
    assert other.get_label() == f"worse ({bleu(worse, REFERENCES).value:.1f})"
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("sources", "translations", "edges", "message"),
    [
        (SOURCES[:3], {"a": REFERENCES}, (4,), "3 sources, 4 references"),
        (SOURCES, {"a": REFERENCES[:2]}, (4,), "2 hypotheses, 4 lines"),
        (SOURCES, {}, (4,), "a dict from labels to translations"),
        (SOURCES, REFERENCES, (4,), "a dict from labels to translations"),
        (SOURCES, {"a": REFERENCES}, (4, 4), r"rising edges, from 2 on. Received: edges=\[4, 4\]"),
    ],
)
def test_what_does_not_fit_together_is_refused(sources, translations, edges, message):
    with pytest.raises(ValueError, match=message):
        plots.bleu_by_length(sources, REFERENCES, translations, edges=edges)
