import collections
import json
import pathlib
import subprocess
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from keras_transformer import fonts, plots

AttentionMap = collections.namedtuple(
    "AttentionMap", "source_pieces target_pieces target_inputs weights truncated", defaults=[False]
)
SOURCE = ["▁A", "▁dog", "▁run", "s", "</s>"]
TARGET = ["▁Ein", "▁Hund", "</s>"]
LAYERS, HEADS = 2, 6


@pytest.fixture
def attention_map():
    rng = np.random.default_rng(1)

    def weights(num_queries, num_keys):
        scores = np.exp(rng.normal(size=(LAYERS, HEADS, num_queries, num_keys)))
        return scores / scores.sum(axis=-1, keepdims=True)

    return AttentionMap(
        SOURCE,
        TARGET,
        ["<s>", "▁Ein", "▁Hund"],
        {"encoder": weights(5, 5), "decoder": weights(3, 3), "cross": weights(3, 5)},
    )


def panels_of(figure):
    """The axes of a figure without its colour bar."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("cross", ["␣Ein", "␣Hund", "</s>"], ["␣A", "␣dog", "␣run", "s", "</s>"]),
        ("decoder", ["␣Ein", "␣Hund", "</s>"], ["<s>", "␣Ein", "␣Hund"]),
        ("encoder", ["␣A", "␣dog", "␣run", "s", "</s>"], ["␣A", "␣dog", "␣run", "s", "</s>"]),
    ],
)
def test_every_head_is_drawn_as_it_is_with_pieces_on_the_axes(attention_map, kind, rows, columns):
    figure = plots.attention_maps(attention_map, layer=0, kind=kind)
    panels = panels_of(figure)
    assert [panel.get_title() for panel in panels] == [f"head {n}" for n in range(1, HEADS + 1)]
    highest = attention_map.weights[kind][0].max()
    for head, panel in enumerate(panels):
        (image,) = panel.images
        np.testing.assert_array_equal(image.get_array(), attention_map.weights[kind][0, head])
        assert image.get_clim() == (0, highest)  # one colour bar must be true of all
    assert tick_labels(panels[0].yaxis) == rows
    assert tick_labels(panels[-1].xaxis) == columns
    assert len(figure.axes) == HEADS + 1


def test_the_last_layer_is_drawn_unless_another_is_named(attention_map):
    (first,) = plots.attention_maps(attention_map).axes[0].images
    np.testing.assert_array_equal(first.get_array(), attention_map.weights["cross"][-1, 0])


@pytest.mark.parametrize("layer", [LAYERS, -LAYERS - 1])
def test_a_layer_that_is_not_there_is_refused(attention_map, layer):
    with pytest.raises(ValueError, match=f"one of the 2 layers. Received: layer={layer}"):
        plots.attention_maps(attention_map, layer=layer)


def test_an_unknown_kind_is_answered_with_the_known_ones(attention_map):
    with pytest.raises(ValueError, match="kind='self'.*encoder, decoder, cross"):
        plots.attention_maps(attention_map, kind="self")


@pytest.mark.parametrize(
    ("num_panels", "panel_aspect", "expected"),
    [(8, 1.0, 4), (4, 1.0, 2), (8, 8.0, 1), (8, 0.1, 8), (1, 3.0, 1), (7, 1.0, 7)],
)
def test_the_grid_fits_the_shape_of_its_panels(num_panels, panel_aspect, expected):
    assert plots._columns_of_grid(num_panels, panel_aspect) == expected


def test_dollar_signs_draw_without_a_warning(attention_map, tmp_path):
    strange = attention_map._replace(target_pieces=["▁größer", "я\u200d", "$\\frac$"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.attention_maps(strange, tmp_path / "strange.png")


@pytest.fixture
def installed_fonts(monkeypatch):
    """Makes fonts of the letters given, the only installed ones; returns how."""
    from matplotlib import font_manager

    own = pathlib.Path(matplotlib.get_data_path())
    fonts = font_manager.fontManager.ttflist
    fonts = [font for font in fonts if own in pathlib.Path(font.fname).parents]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    paths = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(path) for path in paths])

    def install(path, letters):
        from fontTools import fontBuilder, ttLib

        paths.append(path)
        if not letters:
            path.write_bytes(b"no font")
            return
        builder = fontBuilder.FontBuilder(1000)
        builder.setupGlyphOrder([".notdef", "box"])
        builder.setupCharacterMap({ord(letter): "box" for letter in letters})
        builder.setupGlyf({name: ttLib.tables._g_l_y_f.Glyph() for name in (".notdef", "box")})
        builder.setupHorizontalMetrics({name: (500, 0) for name in (".notdef", "box")})
        builder.setupHorizontalHeader(ascent=800, descent=-200)
        builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
        builder.setupOS2()
        builder.setupPost()
        builder.save(path)

    return install


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
    (label, *_) = panels_of(figure)[0].yaxis.get_ticklabels()
    assert label.get_fontfamily()[-2:] == ["Greater", "Hindi"]
    assert "Little" not in label.get_fontfamily()


def test_a_broken_font_is_passed_over(installed_fonts, tmp_path):
    installed_fonts(tmp_path / "Broken.ttf", letters="")
    installed_fonts(tmp_path / "Good.ttf", "犬")
    assert fonts.families_for(["犬"])[-1] == "Good"


def test_a_text_that_was_cut_is_warned_of(attention_map):
    with pytest.warns(UserWarning, match="shows the first 5 tokens of the text and 3 of the"):
        plots.attention_maps(attention_map._replace(truncated=True))


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
def test_the_suffix_chooses_the_format(attention_map, tmp_path, name, start):
    path = tmp_path / name
    plots.attention_maps(attention_map, path)
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_fails_leaves_the_old_one(attention_map, tmp_path, monkeypatch):
    path = tmp_path / "attention.png"
    path.write_bytes(b"old")

    def fail(figure, temporary, **arguments):
        temporary.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space"):
        plots.attention_maps(attention_map, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(attention_map, tmp_path):
    (tmp_path / "link.png").symlink_to("real.png")
    plots.attention_maps(attention_map, tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_format_is_refused_with_the_known_ones(attention_map, tmp_path):
    with pytest.raises(ValueError, match=r"\.png, \.pdf, \.svg\. Received: .*attention\.txt"):
        plots.attention_maps(attention_map, tmp_path / "attention.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_position_encoding_draws_the_papers_formula(tmp_path, layout):
    num_positions, d_model = 11, 6
    figure = plots.position_encoding(num_positions, d_model, layout, tmp_path / "positions.png")
    matrix, waves, _ = figure.axes
    drawn = np.asarray(matrix.images[0].get_array()).T
    for position in range(num_positions):
        for pair in range(d_model // 2):
            angle = position / 10000 ** (2 * pair / d_model)
            sine, cosine = (
                (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, d_model // 2 + pair)
            )
            assert drawn[position, sine] == pytest.approx(np.sin(angle), abs=1e-5)
            assert drawn[position, cosine] == pytest.approx(np.cos(angle), abs=1e-5)
    np.testing.assert_allclose(waves.lines[0].get_ydata(), drawn[:, 0])
    assert (tmp_path / "positions.png").stat().st_size > 0


RECORDS = [
    {"step": 10, "loss": 5.0, "learning_rate": 1e-3},
    {"step": 20, "loss": 4.0, "learning_rate": 2e-3, "val_loss": 4.5, "val_bleu": 3.0},
    {"step": 30, "loss": float("nan"), "learning_rate": 3e-3, "val_loss": None},
    {"step": 40, "loss": 2.0, "learning_rate": 2e-3, "val_loss": 2.5, "val_bleu": 2.0},
    {"minutes": 3.0},
    {"step": 40, "weights": "mean of 3 checkpoints'", "val_loss": 1.5, "val_bleu": 9.0},
]


def write_json_lines(path, records, end=""):
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + end)
    return path


def curves_of(figure):
    return [
        {line.get_color(): line.get_xydata().tolist() for line in axes.lines}
        for axes in figure.axes
    ]


def test_learning_curves_draw_what_is_there_and_skip_what_is_not(tmp_path):
    path = write_json_lines(tmp_path / "metrics.jsonl", RECORDS, end='{"step": 50, "lo')
    figure = plots.learning_curves(path, tmp_path / "curves.png")
    assert curves_of(figure) == [
        {
            plots.BLUE: [[10, 5.0], [20, 4.0], [40, 2.0]],
            plots.ORANGE: [[20, 4.5], [40, 2.5]],
        },
        {plots.GREEN: [[20, 3.0], [40, 2.0]]},
        {plots.PURPLE: [[10, 1e-3], [20, 2e-3], [30, 3e-3], [40, 2e-3]]},
    ]
    assert figure.axes[1].get_title(loc="right") == "best 3.0 at step 20"
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_a_step_logged_again_after_a_resume_counts_once():
    again = [{"step": 20, "loss": 3.5}, {"step": 30, "loss": 3.0}]
    (curves,) = curves_of(plots.learning_curves([{"step": 30, "loss": 9.0}, *again]))
    assert curves == {plots.BLUE: [[20, 3.5], [30, 3.0]]}


@pytest.mark.parametrize("records", [[], [{"step": 3}], [{"loss": 3.0}]])
def test_nothing_to_draw_is_refused(records):
    with pytest.raises(ValueError, match=f"Received: {len(records)} records"):
        plots.learning_curves(records)


def test_learning_curves_without_a_file_or_records_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none.jsonl: No such file"):
        plots.learning_curves(tmp_path / "none.jsonl")
    (tmp_path / "numbers.jsonl").write_text("5\n[6]\n")
    with pytest.raises(ValueError, match="Received: 0 records"):
        plots.learning_curves(tmp_path / "numbers.jsonl")


def brightness(panel):
    """The mean of each quarter of the image that a panel shows."""
    (image,) = panel.images
    pixels = np.asarray(image.get_array()).mean(axis=-1)
    return pixels.reshape(2, pixels.shape[0] // 2, 2, pixels.shape[1] // 2).mean(axis=(1, 3))


@pytest.mark.parametrize("num_channels", [1, 3])
def test_images_are_bright_where_attention_is(tmp_path, num_channels):
    images = np.ones((2, 8, 4, num_channels), "uint8")
    images[:, 0, 0] = 0
    maps = np.array([[[0.1, 0.6], [0.2, 0.1]], [[0.0, 0.0], [0.0, 1.0]]])
    path = tmp_path / "images.png"
    figure = plots.image_attention(images, {"last": maps, "rollout": maps[::-1]}, path)
    panels = np.reshape(figure.axes, (2, 3))
    assert [panel.get_title() for panel in panels[0]] == ["image", "last", "rollout"]
    for row, first, second in zip(panels, maps, maps[::-1], strict=True):
        assert brightness(row[0])[0, 1] == brightness(row[0])[1, 1] == 1.0
        for panel, drawn in ((row[1], first), (row[2], second)):
            found, light = brightness(panel), drawn / drawn.max()
            for cell in ((0, 1), (1, 0), (1, 1)):  # the corner has a dark pixel
                assert found[cell] == pytest.approx(0.15 + 0.85 * light[cell], abs=1e-5)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_caption_is_drawn_word_by_word(tmp_path):
    words = ["a", "dog", "on", "a", "$mat$", "sleeps", "</s>"]
    maps = np.random.default_rng(1).uniform(size=(7, 2, 2))
    path = tmp_path / "caption.png"
    image = np.ones((4, 4, 3))
    image[1, 1] = 0
    figure = plots.caption_attention(image, words, maps, path)
    assert [panel.get_title() for panel in figure.axes[:8]] == ["", *words]
    for panel, drawn in zip(figure.axes[1:8], maps, strict=True):
        (shown,) = panel.images
        light = np.asarray(shown.get_array())[::2, ::2, 0]
        np.testing.assert_allclose(light, 0.15 + 0.85 * drawn / drawn.max(), rtol=1e-5)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "maps",
    [
        {},
        np.ones((2, 2, 2)),
        {"last": np.ones((3, 2, 2))},
        {"last": np.ones((2, 4))},
        {"last": np.ones((2, 0, 2))},
    ],
)
def test_other_maps_than_images_are_refused(maps):
    with pytest.raises(ValueError, match="Expected (maps of 2 images|a dict from titles to maps)"):
        plots.image_attention(np.ones((2, 4, 4, 1)), maps)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 2), (0, 4, 3), (1, 4, 4, 3)])
def test_other_images_are_not_drawn(shape):
    with pytest.raises(ValueError, match="one channel or three. Received images of the shape"):
        plots.caption_attention(np.ones(shape), ["a"], np.ones((1, 2, 2)))
    with pytest.raises(ValueError, match="one channel or three. Received images of the shape"):
        plots.image_attention(np.ones((1, *shape)), {"last": np.ones((1, 2, 2))})


def test_other_maps_than_words_are_refused():
    with pytest.raises(ValueError, match=r"maps of 1 words.*maps.shape=\(2, 4, 4\)"):
        plots.caption_attention(np.ones((4, 4, 1)), ["a"], np.ones((2, 4, 4)))
    with pytest.raises(ValueError, match="maps of 1 words"):
        plots.caption_attention(np.ones((4, 4, 1)), ["a"], np.ones((1, 0, 0)))
    with pytest.raises(ValueError, match="a list of words. Received: words='dog'"):
        plots.caption_attention(np.ones((4, 4, 1)), "dog", np.ones((3, 4, 4)))


def test_an_image_of_one_colour_keeps_it():
    for value in (1.0, 0.25):
        figure = plots.caption_attention(np.full((4, 4, 1), value), ["a"], np.ones((1, 2, 2)))
        (shown,) = figure.axes[0].images
        np.testing.assert_allclose(shown.get_array(), value)


def test_matplotlib_is_loaded_only_when_drawing():
    program = "import sys, keras_transformer.plots; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
