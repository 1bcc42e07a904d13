"""The tree of a beam search."""

import math

from keras_transformer.errors import InputError
from keras_transformer.fonts import families_for
from keras_transformer.plots.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    READABLE_SPACE,
    house_style,
    label_inches,
    labels,
    new_figure,
    write,
)

PALE = "#9a9a9a"
ROW_INCHES = 0.42
GAP_INCHES = 0.3
"""Between a token and the tokens that follow it."""
LABEL_SIZE = 8


def beam_tree(tree, path=None):
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
    answer = _path_to(nodes, tree.best)
    rows = _rows_of(nodes, answer)
    names = labels([node.token for node in nodes])
    names[0] = "start"
    lefts, widths = _columns_of(nodes, names)
    size = lefts[-1] + widths[-1], (max(rows) + 1) * ROW_INCHES
    with house_style():
        figure = new_figure((size[0] + 0.2, size[1] + 0.8), layout="constrained")
        axis = figure.subplots()
        axis.set_axis_off()
        axis.set(xlim=(-0.1, size[0] + 0.1), ylim=(max(rows) + 0.6, -0.7))
        family = families_for(names)
        for i, (node, row) in enumerate(zip(nodes, rows, strict=True)):
            colour = _colour(node, i in answer)
            is_pale = colour == PALE
            left = lefts[node.step]
            if node.parent is not None:
                parent = nodes[node.parent]
                _draw_line(
                    axis,
                    (lefts[parent.step] + _width(names[node.parent]), rows[node.parent]),
                    (left, row),
                    colour,
                    width=1.8 if i in answer else 0.6 if is_pale else 1.0,
                )
            middle = left + _width(names[i]) / 2
            box = {"boxstyle": "round,pad=0.2", "edgecolor": colour, "facecolor": "white"}
            box["linewidth"] = 1.6 if i in answer else 0.5 if is_pale else 0.9
            style = {"ha": "center", "va": "center", "zorder": 3}
            text_colour = PALE if is_pale else "black"
            axis.text(
                *(middle, row, names[i]),
                **{
                    **style,
                    "size": LABEL_SIZE,
                    "family": family,
                    "color": text_colour,
                    "bbox": box,
                },
            )
            if node.parent is not None:
                axis.text(
                    *(middle, row + 0.43, _number_of(node, nodes[node.parent])),
                    **{**style, "size": LABEL_SIZE - 2, "color": colour},
                )
        _draw_legend(figure, nodes)
        figure.suptitle(f"beam search: {_sentence(names, answer)}", family=family)
        write(figure, path)
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


def _columns_of(nodes, names):
    """Returns the left edges and the widths of the columns, in inches."""
    widths = [0.0] * (1 + max(node.step for node in nodes))
    for node, name in zip(nodes, names, strict=True):
        widths[node.step] = max(widths[node.step], _width(name))
    lefts = [sum(widths[:step]) + step * GAP_INCHES for step in range(len(widths))]
    return lefts, widths


def _width(name):
    return max(0.3, label_inches([name], LABEL_SIZE) + 0.08)


def _colour(node, in_answer):
    if in_answer:
        return ORANGE
    return {"live": BLUE, "finished": GREEN, "dropped": PALE}[node.state]


def _draw_line(axis, start, end, colour, width):
    """Draws a line that leaves its start and reaches its end from left to right."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    middle = (start[0] + end[0]) / 2
    points = [start, (middle, start[1]), (middle, end[1]), end]
    curve = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    axis.add_patch(PathPatch(curve, facecolor="none", edgecolor=colour, linewidth=width))


def _number_of(node, parent):
    """Returns the probability of a node, or the score of a finished one."""
    probability = f"{math.exp(node.log_prob - parent.log_prob):.2f}"
    return probability if node.score is None else f"{probability}   score {node.score:.2f}"


def _draw_legend(figure, nodes):
    from matplotlib.lines import Line2D

    drawn = {"live": "in the beam", "finished": "finished", "dropped": "dropped"}
    states = {node.state for node in nodes}
    entries = {"answer": ORANGE}
    for state, name in drawn.items():
        if state in states:
            entries[name] = _colour(next(node for node in nodes if node.state == state), False)
    handles = [Line2D([], [], color=colour, label=name) for name, colour in entries.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _sentence(names, answer):
    return "".join(names[i] for i in answer[1:]).replace(READABLE_SPACE, " ").strip()
