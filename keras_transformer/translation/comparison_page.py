"""The page of a comparison of systems: one HTML file that needs nothing else."""

import difflib
import html

from keras_transformer.translation.comparison import Comparison

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8884; --mark: #f5a62344; --bar: #4a90d9; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.bar {{ background: var(--bar); height: .7rem; border-radius: 2px; }}
mark {{ background: var(--mark); color: inherit; border-radius: 2px; }}
footer, .note {{ color: #888; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
<h2>Scores</h2>
<p class="note">± is half the 95 % interval of the bootstrap, p that of the difference from the
first system.</p>
{scores}
<h2>BLEU by the words of the reference</h2>
{by_length}
{by_tag}
<h2>Sentences that differ most</h2>
<p class="note">The number is chrF2. Words that the reference does not have there are marked.</p>
{different}
<footer>{signatures}</footer>
</body>
</html>
"""


def comparison_page(comparison: Comparison) -> str:
    """Returns a page of HTML with all that `compare` has found."""
    systems = list(next(iter(comparison.scores.values())))
    by_tag = comparison.by_tag and _by_group("tag", comparison.by_tag)
    return PAGE.format(
        title=html.escape(" and ".join(systems)),
        scores=_scores(comparison.scores, systems),
        by_length=_by_group("words", comparison.by_length),
        by_tag=by_tag and f"<h2>BLEU by the tag of the source</h2>\n{by_tag}",
        different="".join(map(_sentence, comparison.different)),
        signatures="<br>".join(
            html.escape(f"{metric}|{signature}")
            for metric, signature in comparison.signatures.items()
        ),
    )


def _scores(scores, systems):
    rows = []
    for system in systems:
        cells = [_cell(html.escape(system))]
        for each in scores.values():
            value = each[system]
            test = f" (p = {value['p']:.3f})" if "p" in value else ""
            cells.append(_cell(f"{value['score']:.2f} ± {value['ci']:.2f}{test}", True))
        rows.append(cells)
    return _table([_cell("system", tag="th"), *(_cell(m, True, "th") for m in scores)], rows)


def _by_group(name, groups):
    highest = max((value for each in groups.values() for value in each.values()), default=0)
    rows = []
    for group, values in groups.items():
        for place, (system, value) in enumerate(values.items()):
            width = 100 * value / max(highest, 1e-9)
            rows.append(
                [
                    _cell(html.escape(group) if place == 0 else ""),
                    _cell(html.escape(system)),
                    _cell(f"{value:.2f}", True),
                    _cell(f'<div class="bar" style="width: {width:.0f}%"></div>'),
                ]
            )
    names = (name, False), ("system", False), ("BLEU", True), ("", False)
    return _table([_cell(name, is_number, "th") for name, is_number in names], rows)


def _sentence(each):
    reference = each["reference"]
    rows = [[_cell(f"line {each['line']}"), _cell(""), _cell(html.escape(reference))]]
    for system, value in each["translations"].items():
        columns = _cell(html.escape(system)), _cell(f"{value['chrF2']:.1f}", True)
        rows.append([*columns, _cell(_marked(value["text"], reference))])
    return _table("", rows)


def _marked(text, reference):
    """Returns a translation as HTML, with a mark at each word that the reference lacks there."""
    words = text.split()
    matcher = difflib.SequenceMatcher(None, reference.split(), words, autojunk=False)
    parts = []
    for kind, _, _, start, end in matcher.get_opcodes():
        part = html.escape(" ".join(words[start:end]))
        if part:
            parts.append(part if kind == "equal" else f"<mark>{part}</mark>")
    return " ".join(parts)


def _table(head, rows):
    lines = "".join(f"<tr>{''.join(row)}</tr>\n" for row in [head, *rows] if row)
    return f"<table>\n{lines}</table>\n"


def _cell(content, is_number=False, tag="td"):
    return f"<{tag}{' class=number' if is_number else ''}>{content}</{tag}>"
