"""The tree of a beam search."""

import math
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.errors import InputError
from keras_transformer.plots import figures
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_transformer.decoding.search_tree import SearchTree

ROW_INCHES = 0.42
GAP_INCHES = 0.3
"""Between a token and the tokens that follow it."""
LABEL_SIZE = 8


class Style(NamedTuple):
    """How a node and the line to it are drawn."""

    name: str
    colour: str
    width: float
    """Of the lines, in points."""
    text_colour: str = "black"


ANSWER = Style("answer", figures.ORANGE, 1.7)
STYLES = {
    "live": Style("in the beam", figures.BLUE, 0.9),
    "finished": Style("finished", figures.GREEN, 0.9),
    "dropped": Style("dropped", "#9a9a9a", 0.5, text_colour="#9a9a9a"),
}
"""From the state of a node to its style."""


class Place(NamedTuple):
    """Where a node is drawn; all but the row in inches."""

    left: float
    width: float
    row: int


def beam_tree(tree: "SearchTree", path: StrPath | None = None) -> "Figure":
    """Draws a beam search from left to right: a column for each step, a line to what follows.

    Each token stands above its probability after the tokens before it, a finished hypothesis with
    its score, by which the search compares hypotheses of different lengths. The answer is orange,
    other finished hypotheses are green, and candidates that the beam has dropped are pale.

    Args:
        tree: `SearchTree` of `Translator.search_tree`.
        path: file to write, or None.
    Raises:
        ValueError: a tree without a step.
    Warns:
        UserWarning: no installed font has some letters.

    Example:
        beam_tree(translator.search_tree("A dog runs."), "beam.png")
    """
    nodes = tree.nodes
    if len(nodes) < 2:
        raise InputError(
            f"Expected a search of at least one step. Received: a tree of {len(nodes)} nodes. "
            "Search for the translation of a text with a word in it."
        )
    from matplotlib.lines import Line2D

    answer = _path_to(nodes, tree.best)
    rows = _rows_of(nodes, answer)
    names = figures.labels([node.token for node in nodes])
    names[0] = "start"
    places = _places_of(nodes, names, rows)
    width = max(place.left + place.width for place in places)
    height = (max(rows) + 1) * ROW_INCHES
    with figures.figure_style():
        figure = figures.new_figure((width + 0.2, height + 0.8), layout="constrained")
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set(xlim=(-0.1, width + 0.1), ylim=(max(rows) + 0.6, -0.6))
        family = figures.families_for(names)
        for i, node in enumerate(nodes):
            style = ANSWER if i in answer else STYLES[node.state]
            if node.parent is not None:
                _draw_line(axis, places[node.parent], places[i], style)
                number = _number_of(node, nodes[node.parent])
                _draw_number(axis, places[i], number, style)
            _draw_token(axis, places[i], names[i], family, style)
        states = {node.state for node in nodes}
        drawn = [ANSWER, *(style for state, style in STYLES.items() if state in states)]
        lines = [Line2D([], [], color=style.colour, label=style.name) for style in drawn]
        figure.legend(handles=lines, loc="outside lower center", ncols=len(lines))
        is_whole = nodes[tree.best].score is not None
        figure.suptitle(f"beam search: {_text_of(names, answer, is_whole)}", family=family)
        figures.write(figure, path)
    return figure


def _path_to(nodes, index):
    """Returns the indices of the nodes from the root to a node."""
    path = [index]
    while nodes[path[0]].parent is not None:
        path.insert(0, nodes[path[0]].parent)
    return path


def _rows_of(nodes, answer):
    """Returns the row of each node, such that the lines of the tree do not cross.

    A node stands in the row of its first child, and the answer is in the first row. Each further
    child is moved down until its subtree is below those of the children before it, in each column.
    """
    children = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if node.parent is not None:
            children[node.parent].append(i)
    offsets = [0] * len(nodes)  # rows below the parent
    deepest = [{} for _ in nodes]  # from a step to the last row of the subtree, below the node's
    for i in reversed(range(len(nodes))):  # children stand after their parents
        taken = {nodes[i].step: 0}
        in_answer_first = sorted(children[i], key=lambda c: (c not in answer, -nodes[c].log_prob))
        for number, child in enumerate(in_answer_first):
            if number:
                offsets[child] = 1 + max(taken[step] for step in deepest[child] if step in taken)
            for step, row in deepest[child].items():
                taken[step] = row + offsets[child]
        deepest[i] = taken
    rows = []
    for node, offset in zip(nodes, offsets, strict=True):
        rows.append(offset if node.parent is None else rows[node.parent] + offset)
    return rows


def _places_of(nodes, names, rows):
    """Returns the `Place` of each node; a column is as wide as its longest token."""
    widths = [0.0] * (1 + max(node.step for node in nodes))
    for node, name in zip(nodes, names, strict=True):
        widths[node.step] = max(widths[node.step], _width(name))
    lefts = [sum(widths[:step]) + step * GAP_INCHES for step in range(len(widths))]
    return [
        Place(lefts[node.step], _width(name), row)
        for node, name, row in zip(nodes, names, rows, strict=True)
    ]


def _width(name):
    return max(0.3, figures.label_inches([name], LABEL_SIZE) + 0.08)


def _draw_line(axis, parent, child, style):
    """Draws a line from the middle of a box to its right edge, and to the left edge of the next."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    right = parent.left + parent.width
    middle = (right + child.left) / 2
    points = [
        (parent.left + parent.width / 2, parent.row),
        (right, parent.row),
        *((middle, parent.row), (middle, child.row), (child.left, child.row)),
        (child.left + child.width / 2, child.row),
    ]
    curve = Path(points, [Path.MOVETO, Path.LINETO, *3 * [Path.CURVE4], Path.LINETO])
    look = {"edgecolor": style.colour, "linewidth": style.width}
    look["zorder"] = 2 if style is ANSWER else 1
    axis.add_patch(PathPatch(curve, facecolor="none", **look))


def _draw_token(axis, place, name, family, style):
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white"}
    box.update(edgecolor=style.colour, linewidth=style.width)
    look = {"size": LABEL_SIZE, "family": family, "color": style.text_colour, "bbox": box}
    middle = place.left + place.width / 2
    axis.text(middle, place.row, name, ha="center", va="center", zorder=3, **look)


def _draw_number(axis, place, number, style):
    box = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": "none"}
    look = {"size": LABEL_SIZE - 2, "color": style.colour, "bbox": box}
    middle = place.left + place.width / 2
    axis.text(middle, place.row + 0.43, number, ha="center", va="center", zorder=3, **look)


def _number_of(node, parent):
    """Returns the probability of a node, or the score of a finished one."""
    probability = math.exp(node.log_prob - parent.log_prob)
    text = f"{probability:.{3 if probability < 0.01 else 2}f}"
    text = "< 0.001" if probability < 0.0005 else text
    return text if node.score is None else f"{text}   score {node.score:.2f}"


def _text_of(names, answer, is_whole):
    """Returns the text of the answer; the last token of a whole one is the end."""
    names = [names[i] for i in (answer[1:-1] if is_whole else answer[1:])]
    return "".join(names).replace(figures.READABLE_SPACE, " ").strip()
