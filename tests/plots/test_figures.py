import concurrent.futures
import os
import pathlib
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import pytest

from keras_transformer import plots
from keras_transformer.plots import figures


@pytest.fixture
def small_figure():
    return figures.new_figure((1, 1), layout=None)


def test_dollar_signs_draw_without_a_warning(attention_map, tmp_path):
    strange = attention_map._replace(target_pieces=["▁größer", "я\u200d", "$\\frac$"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.attention_maps(strange, tmp_path / "strange.png")


def test_letters_that_no_font_has_are_warned_of_once_with_what_to_install(
    attention_map, installed_fonts, tmp_path
):
    strange = attention_map._replace(target_pieces=["▁犬犬", "कु", "🐶"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plots.attention_maps(strange, tmp_path / "strange.png")
    (warning,) = caught
    assert str(warning.message) == (
        "No installed font has the letters क ु 犬 🐶, which are drawn as boxes. "
        "Install Noto Emoji, Noto Sans CJK, Noto Sans Devanagari."
    )


def test_installed_fonts_draw_what_the_first_has_not(attention_map, installed_fonts, tmp_path):
    installed_fonts(tmp_path / "Little.ttf", "犬")
    installed_fonts(tmp_path / "Greater.ttf", "犬猫क")
    installed_fonts(tmp_path / "Hindi.ttf", "कु")
    strange = attention_map._replace(target_pieces=["▁犬", "▁猫", "कु"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.attention_maps(strange, tmp_path / "strange.png")
    (label, *_) = figure.axes[0].yaxis.get_ticklabels()
    assert label.get_fontfamily()[-2:] == ["Greater", "Hindi"]
    assert "Little" not in label.get_fontfamily()


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("a.png", b"\x89PNG"),
        ("a.PNG", b"\x89PNG"),
        ("a.Pdf", b"%PDF"),
        ("a", b"\x89PNG"),
        ("a.b.pdf", b"%PDF"),
        ("a.svg", b"<?xml"),
    ],
)
def test_the_suffix_chooses_the_format(small_figure, tmp_path, name, start):
    path = tmp_path / name
    figures.write(small_figure, path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_fails_leaves_the_old_one(small_figure, tmp_path, monkeypatch):
    path = tmp_path / "attention.png"
    path.write_bytes(b"old")

    def fail(temporary, content):
        temporary.write_text("half")
        raise OSError("No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space"):
        figures.write(small_figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(small_figure, tmp_path):
    (tmp_path / "link.png").symlink_to("real.png")
    figures.write(small_figure, tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_format_is_refused_with_the_known_ones(attention_map, tmp_path):
    with pytest.raises(ValueError, match=r"\.png, \.pdf, \.svg\. Received: .*attention\.txt"):
        plots.attention_maps(attention_map, tmp_path / "attention.txt")
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_is_loaded_only_when_drawing():
    program = "import sys, keras_transformer.plots; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_broken_font_is_passed_over(installed_fonts, tmp_path):
    installed_fonts(tmp_path / "Broken.ttf", letters="")
    installed_fonts(tmp_path / "Good.ttf", "犬")
    assert figures.families_for(["犬"])[-1] == "Good"


def test_characters_that_svg_cannot_have_are_replaced(attention_map, tmp_path):
    strange = attention_map._replace(target_pieces=["a\x00\x1b", "\udc80\n", "b\x7f"])
    plots.attention_maps(strange, tmp_path / "a.svg")
    texts = [text.text for text in ElementTree.parse(tmp_path / "a.svg").iter() if text.text]
    assert {"a\ufffd\ufffd", "\ufffd\ufffd", "b\ufffd"} <= set(texts)


def test_a_legend_has_labels_with_any_letters(installed_fonts, tmp_path):
    installed_fonts(tmp_path / "Han.ttf", "犬")
    records = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    drawn = {
        "curves": plots.learning_curves({"_犬\udc80": records, "b": records}, tmp_path / "a.svg"),
        "lengths": plots.bleu_by_length(["a"], ["a"], {"_犬": ["a"]}),
        "schedules": plots.learning_rates({"_犬": lambda step: 1.0}, 2),
    }
    for name, figure in drawn.items():
        first, *_ = figure.axes[0].get_legend().get_texts()
        assert first.get_text().removeprefix("\u200b").startswith("_犬"), name
        assert first.get_fontfamily()[-1] == "Han", name


def test_a_picture_goes_through_a_pipe(small_figure, tmp_path):
    figures.write(small_figure, tmp_path / "file.png")
    os.mkfifo(tmp_path / "pipe.png")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        received = pool.submit((tmp_path / "pipe.png").read_bytes)
        figures.write(small_figure, tmp_path / "pipe.png")
        assert received.result(timeout=60) == (tmp_path / "file.png").read_bytes()
