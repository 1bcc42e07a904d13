import math

import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.decoding import SearchTree
from keras_transformer.decoding.search_tree import SearchNode
from keras_transformer.plots import beam


def tree_of(*nodes, best):
    """A tree of `(step, parent, token, probability, score, state)`."""
    made = []
    for step, parent, token, probability, score, state in nodes:
        log_prob = 0.0 if parent is None else made[parent].log_prob + math.log(probability)
        made.append(SearchNode(step, parent, token, log_prob, score, state))
    return SearchTree(made, best)


@pytest.fixture
def tree():
    return tree_of(
        (0, None, "", 1.0, None, "live"),
        (1, 0, "▁der", 0.5, None, "live"),
        (1, 0, "▁die", 0.3, None, "live"),
        (1, 0, "▁das", 0.004, None, "dropped"),
        (2, 1, "▁Hund", 0.25, None, "dropped"),
        (2, 2, "▁Katze", 0.9, None, "live"),
        (2, 1, "▁犬", 0.5, None, "live"),
        (3, 5, "</s>", 0.75, -0.31, "finished"),
        (3, 6, "</s>", 0.5, -1.5, "finished"),
        best=7,
    )


def text_at(figure, words):
    """The places of the texts that contain some words."""
    texts = figure.axes[0].texts
    return [text.get_position() for text in texts if words in text.get_text()]


def test_tokens_probabilities_and_scores_are_drawn(tree, tmp_path):
    path = tmp_path / "beam.png"
    figure = plots.beam_tree(tree, path)
    drawn = [text.get_text() for text in figure.axes[0].texts]
    numbers = ["0.50", "0.30", "0.004", "0.25", "0.90", "0.50", "0.75   score -0.31"]
    tokens = ["␣der", "␣die", "␣das", "␣Hund", "␣Katze", "␣犬", "</s>", "</s>"]
    assert sorted(drawn) == sorted(["start", *tokens, *numbers, "0.50   score -1.50"])
    assert figure.get_suptitle() == "beam search: die Katze"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_answer_is_a_line_of_its_own_colour_at_the_top(tree):
    figure = plots.beam_tree(tree)
    rows = [text_at(figure, words)[0][1] for words in ("start", "die", "Katze")]
    assert rows == [0, 0, 0]
    colours = {
        text.get_text(): text.get_bbox_patch().get_edgecolor() for text in figure.axes[0].texts
    }
    assert colours["␣die"] == colours["␣Katze"] == colours["start"]
    assert len({colours[token] for token in ("␣die", "␣der", "␣das")}) == 3
    assert colours["␣das"] == colours["␣Hund"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["answer", "in the beam", "finished", "dropped"]


def test_columns_are_steps(tree):
    figure = plots.beam_tree(tree)
    (der,), (katze,), ends = (text_at(figure, words) for words in ("der", "Katze", "</s>"))
    assert der[0] < katze[0] < ends[0][0]
    assert ends[0][0] == ends[1][0]


def random_tree(rng, num_steps, beam_size):
    """A tree with the nodes of each step in random order of their parents."""
    nodes, live = [SearchNode(0, None, "", 0.0, None, "live")], [0]
    for step in range(1, num_steps + 1):
        parents = rng.choice(live, beam_size)
        live = []
        for parent in parents:
            log_prob = nodes[parent].log_prob - rng.exponential()
            live.append(len(nodes))
            nodes.append(SearchNode(step, int(parent), "▁word", log_prob, None, "live"))
    return SearchTree(nodes, live[-1])


@pytest.mark.parametrize("seed", range(5))
def test_no_two_nodes_share_a_place_and_no_lines_cross(seed):
    tree = random_tree(np.random.default_rng(seed), num_steps=15, beam_size=4)
    rows = beam._rows_of(tree.nodes, beam._path_to(tree.nodes, tree.best))
    places = [(node.step, row) for node, row in zip(tree.nodes, rows, strict=True)]
    assert len(set(places)) == len(places)
    for step in range(1, 16):  # the children stand in the order of their parents
        children = sorted(
            (row, rows[node.parent])
            for node, row in zip(tree.nodes, rows, strict=True)
            if node.step == step
        )
        parents = [parent for _, parent in children]
        assert parents == sorted(parents)
    assert max(rows) < 40


def test_a_search_of_many_steps_is_no_problem():
    nodes = [SearchNode(0, None, "", 0.0, None, "live")]
    nodes += [SearchNode(i, i - 1, "a", -float(i), None, "live") for i in range(1, 1200)]
    assert beam._rows_of(nodes, [0]) == [0] * 1200


def test_a_tree_without_a_step_is_refused():
    with pytest.raises(ValueError, match="at least one step. Received: a tree of 1 nodes"):
        plots.beam_tree(SearchTree([SearchNode(0, None, "", 0.0, None, "live")], 0))


def test_an_answer_that_was_cut_is_drawn_whole():
    nodes = [
        SearchNode(0, None, "", 0.0, None, "live"),
        SearchNode(1, 0, "▁ein", -0.1, None, "live"),
    ]
    assert plots.beam_tree(SearchTree(nodes, 1)).get_suptitle() == "beam search: ein"
