import numpy as np
from keras import ops

from keras_transformer.decoding import greedy_search

END = 3


def search(toy, limits, alpha=0.6, max_length=None):
    max_length = max_length or max(limits)
    start = toy.start(1, max_length)
    return greedy_search(toy.step, *start, np.array(limits, "int32"), max_length, alpha)


def test_takes_the_most_probable_token_until_the_end_or_the_limit(toy_model, hypotheses):
    limits = [17, 3, 0, 11, 5] * 4
    toy = toy_model(6, batch_size=20, vocab_size=13, end_bias=2.0)
    result = search(toy, limits, alpha=0.7, max_length=19)
    assert ops.shape(result.ids) == (20, 1, 19)
    lengths = set()
    for b, [(tokens, score, finished)] in enumerate(hypotheses(result)):
        expected = []
        while len(expected) < limits[b] and END not in expected:
            expected.append(END + int(np.argmax(toy.log_probs(b, expected)[END:])))
        assert list(tokens) == expected and finished == (END in expected)
        expected_score = toy.log_prob(b, expected) / ((5 + len(expected)) / 6) ** 0.7
        np.testing.assert_allclose(score, expected_score, rtol=1e-5, atol=1e-5)
        lengths.add((len(tokens), finished))
    assert len(lengths) > 5


def test_a_sentence_does_not_depend_on_its_neighbours(toy_model, hypotheses):
    limits = [13, 2, 7, 11, 5]
    toy = toy_model(8, batch_size=5, vocab_size=17, end_bias=2.0)

    def without_numbers_where_done(token_ids, step, state):
        logits, state = toy.step(token_ids, step, state)
        return ops.where((token_ids == 0)[..., None], float("nan"), logits), state

    limit_ids = np.array(limits, "int32")
    together = hypotheses(
        greedy_search(without_numbers_where_done, *toy.start(1, 13), limit_ids, 13)
    )
    for b in (0, 3):
        [(tokens, score, finished)] = hypotheses(search(toy.sentences([b]), limits[b : b + 1]))[0]
        assert (tokens, finished) == (together[b][0][0], together[b][0][2])
        np.testing.assert_allclose(score, together[b][0][1], rtol=1e-5, atol=1e-6)
