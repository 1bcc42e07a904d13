"""Fonts for text in any script: those of matplotlib's settings, then other installed fonts.

From version 3.11 on, matplotlib joins the letters of scripts such as Arabic and Devanagari, and
draws text from right to left; earlier versions draw letter by letter from left to right.
"""

import contextlib
import pathlib
import unicodedata
import warnings

CJK = ("BOPOMOFO", "CJK", "FULLWIDTH", "HALFWIDTH", "HANGUL", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA")
"""First words of the Unicode names of letters that the font Noto Sans CJK has."""


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
