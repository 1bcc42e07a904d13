"""Outputs that contain terms, against loops over their tokens and over all outputs."""

import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import beam_search
from keras_transformer.decoding.terms import TermRows, TermVocabulary

END, IMPOSSIBLE = 3, -1e9
SURFACES = [b""] * 4 + [b" a", b"b", b" c", b".", b"\xc3"]
ENDS_WORD = [True] * 4 + [True, False, True, True, False]
VOCAB_SIZE = len(SURFACES)
ROWS = [
    ([[[4, 4, 5], [4, 5]]], []),
    ([[[4], [6, 5]], [[6]]], [[4, 7]]),
    ([], [[5], [4, 5]]),
    ([[[4, 4, 5]], [[4, 5, 4]]], [[6]]),
    ([], []),
]


def positions(tokens, form):
    """Returns where a form ends as whole words: inside the tokens, and whether at their end."""
    ends = [
        i + len(form)
        for i in range(len(tokens) - len(form) + 1)
        if tokens[i : i + len(form)] == form
    ]
    inside = [end for end in ends if end < len(tokens) and ENDS_WORD[tokens[end]]]
    return inside, len(tokens) in ends


def has(tokens, form):
    return any(positions(tokens, form))


def steer(row, log_probs, tokens):
    """Changes the log-probabilities of the token that follows `tokens`, as the processor should."""
    if any(not any(has(tokens, form) for form in forms) for forms in row[0]):
        log_probs[END] = IMPOSSIBLE
    if any(positions(tokens, form)[1] for form in row[1]):
        log_probs[ENDS_WORD] = IMPOSSIBLE


def given(rows, num_hypotheses, seed=3):
    """Returns the processor of some rows, and random log-probabilities, ids and lengths."""
    rng = np.random.default_rng(seed)
    lengths = np.array([1, 6, 9, 7, 0][: len(rows)], "int32")
    ids = rng.integers(END + 1, VOCAB_SIZE, (len(rows), num_hypotheses, 9)).astype("int32")
    ids = np.where(np.arange(9) < lengths[:, None, None], ids, 0)
    probabilities = rng.dirichlet(np.ones(VOCAB_SIZE), ids.shape[:2])
    log_probs = np.log(probabilities).astype("float32")
    vocabulary = TermVocabulary(SURFACES, VOCAB_SIZE, END)
    arrays = TermRows(vocabulary, rows).arrays(range(len(rows)), len(rows))
    processor = vocabulary.options(*map(ops.convert_to_tensor, arrays))[1]
    return processor, log_probs, ids, lengths


def test_an_output_ends_when_it_has_its_terms_and_never_has_forbidden_ones():
    processor, log_probs, ids, lengths = given(ROWS, 300)
    expected = log_probs.copy()
    for b, n in np.ndindex(*ids.shape[:2]):
        steer(ROWS[b], expected[b, n], ids[b, n, : lengths[b]].tolist())
    arguments = map(ops.convert_to_tensor, (log_probs, ids, lengths[:, None]))
    found = ops.convert_to_numpy(processor(*arguments, *processor.memory))
    np.testing.assert_array_equal(found, expected)
    may_end = found[..., END] > IMPOSSIBLE
    assert 0 < may_end[1].mean() < 1 and 0 < may_end[3].mean() < 1 and may_end[4].all()


def num_tokens(row, tokens):
    """Returns how many tokens of its terms an output has."""
    count = 0
    for forms in row[0]:
        sizes = [
            max(k for k in range(len(form) + 1) if tokens[len(tokens) - k :] == form[:k])
            for form in forms
        ]
        is_met = any(has(tokens, form) for form in forms)
        count += max(map(len, forms)) if is_met else max(sizes)
    return count


def test_places_go_to_the_best_of_each_number_of_tokens_in_turn():
    num_hypotheses = 40  # many, so that most states of a term are there
    processor, log_probs, ids, lengths = given(ROWS[:4], num_hypotheses)
    log_probs += np.linspace(-3, -1, num_hypotheses, dtype="float32")[:, None]
    flat = log_probs.reshape(4, -1)
    order = np.argsort(-flat, axis=1)[:, :num_hypotheses]
    top = np.take_along_axis(flat, order, 1), order // VOCAB_SIZE, order % VOCAB_SIZE
    arguments = (log_probs, ids, lengths[:, None])
    found = processor.allocate(
        tuple(
            ops.convert_to_tensor(x.astype(t))
            for x, t in zip(top, ("float32", "int32", "int32"), strict=True)
        ),
        *map(ops.convert_to_tensor, arguments),
        *processor.memory,
    )
    values, parents, tokens = map(ops.convert_to_numpy, found)
    for b, row in enumerate(ROWS[:4]):
        candidates = set(zip(top[1][b].tolist(), top[2][b].tolist(), strict=True))
        for n in range(num_hypotheses):
            written = ids[b, n, : lengths[b]].tolist()
            candidates |= {(n, int(log_probs[b, n].argmax())), (n, END)}
            for forms in row[0]:
                for form in forms if not any(has(written, form) for form in forms) else ():
                    sizes = range(len(form))
                    k = max(k for k in sizes if written[len(written) - k :] == form[:k])
                    candidates.add((n, form[k]))
        groups = {}
        for n, token in candidates:
            written = [*ids[b, n, : lengths[b]].tolist(), token]
            group = 99 if token == END else num_tokens(row, written)
            groups.setdefault(group, []).append((log_probs[b, n, token], n, token))
        ordered = [sorted(groups[count], reverse=True) for count in sorted(groups, reverse=True)]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
        expected = [each for each in turns if each is not None][:num_hypotheses]
        chosen = zip(values[b], parents[b], tokens[b], strict=True)
        assert [(n, token) for _, n, token in chosen] == [(n, token) for _, n, token in expected]


@pytest.mark.parametrize(("beam_size", "limit"), [(5, 8), (600, 4)])
def test_outputs_have_their_terms_and_the_widest_beam_finds_the_best(
    toy_model, hypotheses, beam_size, limit
):
    """Against all outputs of at most four tokens."""
    rows = [*ROWS[:3], ROWS[4]]
    toy = toy_model(6, len(rows), VOCAB_SIZE, end_bias=2.0, sharpness=0.5)
    vocabulary = TermVocabulary(SURFACES, VOCAB_SIZE, END)
    arrays = TermRows(vocabulary, rows).arrays(range(len(rows)), len(rows))
    processors = [vocabulary.options(*map(ops.convert_to_tensor, arrays))[1]]
    limits = np.full(len(rows), limit, "int32")
    start = toy.step, *toy.start(beam_size, limit), limits, limit
    found = hypotheses(beam_search(*start, beam_size, n_best=1, processors=processors))
    for b, row in enumerate(rows):
        ((tokens, score, finished),) = found[b]
        assert finished and tokens[-1] == END
        written = list(tokens[:-1])
        assert all(any(has(written, form) for form in forms) for forms in row[0])
        assert not any(has(written, form) for form in row[1])
        if beam_size > 500:
            best = max(scores_of_all(toy, b, row, limit))
            np.testing.assert_allclose(score, best, rtol=1e-4)


def scores_of_all(toy, sentence, row, limit):
    """Yields the score of each output that ends within the limit and that the terms allow."""
    for size in range(limit):
        for tokens in itertools.product(range(END + 1, VOCAB_SIZE), repeat=size):
            output, total = [*tokens, END], 0.0
            for i, token in enumerate(output):
                log_probs = toy.log_probs(sentence, output[:i])
                steer(row, log_probs, output[:i])
                total += log_probs[token]
            if total > IMPOSSIBLE / 2:
                yield total / ((5 + len(output)) / 6) ** 0.6
