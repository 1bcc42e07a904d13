"""What all figures share: style, colours, labels in any script, and files written whole.

The fonts are those of matplotlib's settings, then other installed ones. From version 3.11 on,
matplotlib joins the letters of scripts such as Arabic and Devanagari, and draws text from right to
left; earlier versions draw letter by letter from left to right.
"""

import contextlib
import io
import pathlib
import unicodedata
import warnings

from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.types import StrPath

FORMATS = ("png", "pdf", "svg")
BLUE, ORANGE, GREEN, PURPLE = "#2f6ca8", "#d1632f", "#2f8f5b", "#6b5b95"
OTHER_COLOURS = "#b8860b", "#c2477f", "#3a9ca6", "#7a4a2b", "#7f7f7f", "#111111"
COLOURS = BLUE, ORANGE, GREEN, PURPLE, *OTHER_COLOURS
STYLE = pathlib.Path(__file__).with_name("figures.mplstyle")
SENTENCE_PIECE_SPACE = "\u2581"
READABLE_SPACE = "\u2423"
ZERO_WIDTH_SPACE = "\u200b"
CJK = ("BOPOMOFO", "CJK", "FULLWIDTH", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA")
"""First words of the Unicode names of letters that the font Noto Sans CJK has."""


def check_format(path: StrPath, formats: tuple[str, ...] = FORMATS) -> None:
    """Raises `ValueError` where `path` has a suffix that is not among `formats`."""
    if _format_of(path) not in formats:
        raise InputError(
            f"Expected a file name that ends in .{', .'.join(formats)}. Received: {path}. "
            "Change the suffix."
        )


@contextlib.contextmanager
def figure_style():
    """Sets the style and silences matplotlib on missing letters: `families_for` names them."""
    import matplotlib

    with matplotlib.rc_context(fname=STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(size, layout):
    """Returns a figure of `size` (width, height) in inches."""
    # not pyplot, which would keep every figure in memory and choose a window system
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout=layout)


def colour_bar(figure, image, panels, label, size=9):
    """Draws the colour bar of `image` beside `panels`, with text of `size` points."""
    bar = figure.colorbar(image, ax=panels, aspect=25, pad=0.02)
    bar.set_label(label, size=size)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=size)


def colours_of(curves):
    """Returns a colour for each of several curves; after the tenth, they begin again."""
    return [COLOURS[number % len(COLOURS)] for number, _ in enumerate(curves)]


def labels(tokens):
    """Returns the tokens as they are drawn, with a visible space and without control characters."""
    spaced = [token.replace(SENTENCE_PIECE_SPACE, READABLE_SPACE) for token in tokens]
    return ["".join(map(_drawable, token)) for token in spaced]


def curve_label(text):
    """Returns the label of a curve; matplotlib's legend leaves out one that begins with `_`."""
    (label,) = labels([text])
    return f"{ZERO_WIDTH_SPACE}{label}" if label.startswith("_") else label


def legend(axis, **arguments):
    """Draws the legend of the curves, in fonts that have the letters of their labels."""
    texts = [line.get_label() for line in axis.lines]
    axis.legend(prop={"family": families_for(texts)}, **arguments)


def label_inches(tokens, size):
    """Returns the approximate length of the longest label in a font of `size` points."""
    is_wide = [[unicodedata.east_asian_width(x) in "WF" for x in token] for token in tokens]
    return max(sum(1.0 if wide else 0.6 for wide in each) for each in is_wide) * size / 72


def write(figure, path):
    """Writes the figure to `path`, whole or not at all; None: nowhere."""
    if path is None:
        return
    check_format(path)
    content = io.BytesIO()  # matplotlib cannot write to a pipe, in which it cannot go back
    figure.savefig(content, format=_format_of(path))
    with replacing(path) as partial:
        partial.write_bytes(content.getvalue())


def _format_of(path):
    return pathlib.Path(path).suffix.removeprefix(".").lower() or "png"


def _drawable(letter):
    """Returns the letter, or another for what neither fonts nor SVG files can have."""
    is_no_character = ord(letter) & 0xFFFE == 0xFFFE
    is_drawable = unicodedata.category(letter) not in ("Cc", "Cs") and not is_no_character
    return letter if is_drawable else "\ufffd"


def families_for(texts):
    """Returns the names of fonts that together have the letters of some texts.

    The fonts of matplotlib's `rcParams["font.family"]` come first. Letters that no installed font
    has are drawn as boxes, and a warning names the fonts to install.
    """
    import matplotlib
    from matplotlib import font_manager

    families = list(matplotlib.rcParams["font.family"])
    missing = {letter for text in texts for letter in text if _is_drawn(letter)}
    for family in families:
        path = font_manager.findfont(font_manager.FontProperties(family=[family]))
        missing -= set(map(chr, font_manager.get_font(path).get_charmap()))
    if not missing:
        return families
    fonts = _installed_fonts()
    while any(missing & letters for letters in fonts.values()):
        best = max(fonts, key=lambda name: len(missing & fonts[name]))
        families.append(best)
        missing -= fonts[best]
    if missing:
        warnings.warn(
            f"No installed font has the letters {' '.join(sorted(missing))}, which are drawn as "
            f"boxes. Install {', '.join(sorted(set(map(_font_to_install, missing))))}.",
            stacklevel=3,
        )
    return families


def _is_drawn(letter):
    selects_variation = unicodedata.name(letter, "").startswith("VARIATION SELECTOR")
    return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zs") and not selects_variation


def _installed_fonts():
    """Returns the letters of all upright fonts except matplotlib's own: dict from name to set."""
    import matplotlib
    from matplotlib import font_manager

    manager = font_manager.fontManager
    for path in set(font_manager.findSystemFonts()) - {entry.fname for entry in manager.ttflist}:
        with contextlib.suppress(Exception):  # a broken font that nobody asked for
            manager.addfont(path)  # installed since matplotlib made its list
    own = pathlib.Path(matplotlib.get_data_path())
    regular_first = sorted(manager.ttflist, key=lambda entry: (entry.weight != 400, entry.name))
    fonts = {}
    for entry in regular_first:
        is_last_resort = "lastresort" in entry.name.lower().replace(" ", "")  # boxes for all
        is_own = own in pathlib.Path(entry.fname).parents
        if entry.name in fonts or entry.style != "normal" or is_own or is_last_resort:
            continue
        with contextlib.suppress(OSError, RuntimeError):
            fonts[entry.name] = set(map(chr, font_manager.get_font(entry.fname).get_charmap()))
    return fonts


def _font_to_install(letter):
    script = unicodedata.name(letter, "").partition(" ")[0]
    if script in CJK:
        return "Noto Sans CJK"
    if script and unicodedata.category(letter)[0] in "LMN":
        return f"Noto Sans {script.title()}"
    return "Noto Emoji" if script else "a font of your own that has them"
