import collections
import pathlib

import matplotlib
import numpy as np
import pytest

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
