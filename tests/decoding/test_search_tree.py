import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search, greedy_search, search_tree
from keras_transformer.layers import DecodingState

END, EIN, HUND, BELLT = 3, 4, 5, 6
AFTER = {  # the probabilities of the end token, "ein", "Hund" and "bellt" after each token
    2: [0.05, 0.50, 0.35, 0.10],
    EIN: [0.10, 0.10, 0.60, 0.20],
    HUND: [0.10, 0.05, 0.05, 0.80],
    BELLT: [0.80, 0.10, 0.05, 0.05],
}


@pytest.fixture
def start():
    """What a search of the example of docs/concepts/beam-search.md begins with, limit 10."""
    table = np.full((7, 7), 1e-30)
    for token, probabilities in AFTER.items():
        table[token, END:] = probabilities

    def step_fn(token_ids, step, state):
        return ops.take(ops.convert_to_tensor(np.log(table), "float32"), token_ids, axis=0), state

    start_ids = np.full((1, 1), 2, "int32")
    return step_fn, DecodingState({}, {}), start_ids, np.array([10], "int32"), 10


def hypothesis(tree, index):
    """The tokens from the root to a node."""
    tokens = []
    while tree.nodes[index].parent is not None:
        tokens.insert(0, tree.nodes[index].token)
        index = tree.nodes[index].parent
    return tuple(tokens)


def found_by(search, start, *options):
    ids, _, (lengths,), _ = (ops.convert_to_numpy(part) for part in search(*start, *options))
    return tuple(ids[0, 0, : lengths[0]].tolist())


def test_the_example_of_the_page_on_beam_search(start):
    """Greedy search misses the most probable output, and the penalty prefers the longer one."""
    long, short = (EIN, HUND, BELLT, END), (HUND, BELLT, END)
    assert found_by(greedy_search, start) == long
    assert found_by(beam_search, start, 2, 0.0) == short
    assert found_by(beam_search, start, 2, 1.0) == long
    tree = search_tree(*start, 2, 1.0)
    assert hypothesis(tree, tree.best) == long
    by_hypothesis = {hypothesis(tree, i): node for i, node in enumerate(tree.nodes)}
    probabilities = {tokens: np.exp(node.log_prob) for tokens, node in by_hypothesis.items()}
    expected = {
        (): 1.0,
        (EIN,): 0.5,
        (HUND,): 0.35,
        (EIN, HUND): 0.30,
        (HUND, BELLT): 0.28,
        (EIN, HUND, BELLT): 0.24,
        short: 0.224,
        long: 0.192,
        (EIN, HUND, BELLT, EIN): 0.024,
    }
    assert probabilities == pytest.approx(expected, rel=1e-5)
    assert {tokens: node.state for tokens, node in by_hypothesis.items()} == {
        **dict.fromkeys(expected, "live"),
        short: "finished",
        long: "finished",
        (EIN, HUND, BELLT, EIN): "dropped",
    }
    assert by_hypothesis[short].score == pytest.approx(np.log(0.224) / (8 / 6), rel=1e-5)
    assert by_hypothesis[long].score == pytest.approx(np.log(0.192) / (9 / 6), rel=1e-5)


def test_without_a_penalty_the_search_ends_when_no_live_hypothesis_is_as_probable(start):
    tree = search_tree(*start, 2, 0.0)
    assert hypothesis(tree, tree.best) == (HUND, BELLT, END)
    assert max(node.step for node in tree.nodes) == 4
    assert tree.nodes[-1].log_prob < tree.nodes[tree.best].log_prob


@pytest.mark.parametrize(
    "beam_size, alpha, end_bias, keep_beam_full",
    [(1, 0.6, 2.0, False), (4, 0.6, 2.0, False), (3, 0, -9, False), (4, 1.0, 2.0, True)],
)
def test_the_answer_is_that_of_beam_search_and_nodes_have_its_scores(
    toy_model, hypotheses, beam_size, alpha, end_bias, keep_beam_full
):
    toy = toy_model(6, batch_size=1, vocab_size=13, end_bias=end_bias)
    limits = np.array([9], "int32")

    def start():
        return toy.step, *toy.start(beam_size, 9), limits, 9

    options = dict(length_penalty=alpha, keep_beam_full=keep_beam_full)
    ((tokens, score, finished),) = hypotheses(
        beam_search(*start(), beam_size, n_best=1, **options)
    )[0]
    tree = search_tree(*start(), beam_size, **options)
    answer = tree.nodes[tree.best]
    assert hypothesis(tree, tree.best) == tokens
    assert answer.state == ("finished" if finished else "live")
    if finished:
        assert answer.score == pytest.approx(score, rel=1e-5)
    for index, node in enumerate(tree.nodes[1:], 1):
        assert node.log_prob == pytest.approx(
            toy.log_prob(0, list(hypothesis(tree, index))), rel=1e-4
        )
        assert (node.score is not None) == (node.state == "finished")
    parents = {node.parent for node in tree.nodes}
    for index, node in enumerate(tree.nodes):
        is_answer = index == tree.best and not finished
        assert (node.state == "live") == (index in parents or is_answer)
    for step in range(1, answer.step + 1):
        found = [node for node in tree.nodes if node.step == step]
        if not keep_beam_full:
            assert 1 <= len(found) <= beam_size
            continue
        num_finished = sum(node.state == "finished" for node in found)
        assert len(found) - num_finished == beam_size and num_finished <= beam_size


def test_a_prompt_is_not_part_of_the_tree(toy_model):
    toy = toy_model(6, batch_size=1, vocab_size=13, end_bias=1.0)
    state, _ = toy.start(3, 9 + 2)
    prompt, limits = np.array([[2, 8, 5]], "int32"), np.array([9], "int32")
    tree = search_tree(toy.step, state, prompt, limits, 9, 3)
    assert tree.nodes[0].token == 5 and tree.nodes[0].step == 0
    for index, node in enumerate(tree.nodes[1:], 1):
        tokens = [8, 5, *hypothesis(tree, index)]
        expected = toy.log_prob(0, tokens) - toy.log_prob(0, tokens[:2])
        assert node.log_prob == pytest.approx(expected, rel=1e-4, abs=1e-4)
