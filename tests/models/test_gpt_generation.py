"""How the language model continues prompts: by any search, with its cache, from any length."""

import functools
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import (
    BatchSearch,
    DecodingStart,
    batch_search,
    beam_search,
    decode,
    length_penalty,
    score,
)
from keras_transformer.models import Gpt
from tests.models.test_gpt import SIZES, VOCAB_SIZE
from tests.models.test_gpt import make as make_anew

PROMPTS = [[5, 6, 7, 8], [9], [4, 10, 11]]

VARIANTS = {
    "GPT-2": dict(),
    "post-norm, untied": dict(normalize_first=False, tie_output=False),
    "rotary, every id a token": dict(positions="rotary", pad_id=-1, end_id=None),
    "linear": dict(attention="linear", end_id=17),
}


@pytest.fixture(params=["GPT-2", "rotary, every id a token", "linear"], scope="module")
def model(request):
    """No test changes it, so that its searches are compiled once."""
    return make(**VARIANTS[request.param])


@pytest.fixture
def eager(monkeypatch):
    """Searches run step by step: to compile one takes seconds."""
    monkeypatch.setattr(backend, "compile_function", lambda function, variables=(): function)


@functools.cache
def make(seed=7, **arguments):
    """Returns the same model for the same arguments, to tests that do not change it."""
    return make_anew(seed, **arguments)


def padded(rows, pad_id=0):
    return np.array(list(zip(*itertools.zip_longest(*rows, fillvalue=pad_id), strict=True)))


def log_probs_of(model, texts):
    """The log-probabilities `(B, T, V)` of the token that follows each, from the whole model."""
    # other ids follow, which change nothing before them: JAX compiles each length anew
    length = SIZES["max_length"] if model.positions == "learned" else 24
    rows = np.full((len(texts), length), 4)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    logits = ops.convert_to_numpy(model(rows)).astype("float64")
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


@functools.cache
def greedy_step(model, text):
    """The most probable token after a tuple of ids."""
    log_probs = log_probs_of(model, [text])[0, len(text) - 1]
    log_probs[: 0 if model.pad_id == -1 else 3 if model.end_id == 3 else 4] = -np.inf  # forbidden
    return int(np.argmax(log_probs))


def greedy(model, prompt, limit):
    """Greedy search without a cache of keys and values."""
    text = list(prompt)
    context = model.max_length if model.positions == "learned" else 99
    for _ in range(min(limit, context - len(prompt) + 1)):
        text.append(greedy_step(model, tuple(text)))
        if text[-1] == model.end_id:
            break
    return text


@pytest.mark.parametrize("variant", VARIANTS)
def test_step_by_step_is_the_whole_pass(variant):
    model = make(**{**VARIANTS[variant], "num_layers": 2})
    ids = np.random.default_rng(3).integers(4, VOCAB_SIZE, size=(2, 7)).astype("int32")
    expected = ops.convert_to_numpy(model(ids))
    step_fn, state, *_ = model.start_decoding(ids, 3)
    for step in range(7):
        tokens, place = (ops.convert_to_tensor(x, "int32") for x in (ids[:, step : step + 1], step))
        logits, state = step_fn(tokens, place, state)
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits)[:, 0], expected[:, step], rtol=1e-4, atol=1e-5
        )


def test_greedy_search_of_prompts_of_any_length(model, request):
    """The context of learned positions ends a text: the last token has place 9, and is not read."""
    if model.pad_id != -1:  # one compiled greedy search is enough
        request.getfixturevalue("eager")
    texts = model.generate(PROMPTS, 7)
    assert [text.tolist() for text in texts] == [greedy(model, p, 7) for p in PROMPTS]
    assert all(text.dtype == "int32" for text in texts)
    (alone,) = model.generate(PROMPTS[1:2], 7)  # by the same graph
    assert alone.tolist() == texts[1].tolist()


def test_one_new_token(model, eager):
    texts = model.generate(PROMPTS, 1)
    assert [text.tolist() for text in texts] == [greedy(model, p, 1) for p in PROMPTS]


def test_a_beam_of_prompts_together_is_that_of_each_alone(model, request):
    if model.end_id != 17:  # one compiled beam is enough
        request.getfixturevalue("eager")
    together = model.generate(PROMPTS, 5, beam_size=3)
    (alone,) = model.generate(PROMPTS[1:2], 5, beam_size=3)
    assert alone.tolist() == together[1].tolist()


def test_batches_of_one(eager):
    model = make()
    texts = model.generate(PROMPTS, 4, batch_size=1)
    assert [text.tolist() for text in texts] == [greedy(model, p, 4) for p in PROMPTS]


def test_a_beam_of_one_is_greedy_search(model, eager):
    prompts = padded(PROMPTS, model.pad_id)
    start = model.start_decoding(prompts, 4)
    found = ops.convert_to_numpy(beam_search(*start, 1, special_ids=model.special_ids).ids)
    for prompt, ids in zip(PROMPTS, found, strict=True):
        text = greedy(model, prompt, 4)
        assert [*prompt, *ids[0][: len(text) - len(prompt)]] == text


def test_the_length_penalty_counts(eager):
    model = make(seed=8)  # some of its texts end
    texts = [model.generate(PROMPTS, 8, beam_size=4, length_penalty=p) for p in (0.0, 5.0)]
    assert [list(text) for text in texts[0]] != [list(text) for text in texts[1]]


def test_a_full_beam_is_exhaustive(eager):
    """Of the 15^2 texts of two tokens, and those that end at once, the best is found."""
    model = make()
    (found,) = model.generate([[5, 6]], 2, beam_size=16, length_penalty=0.0)
    words = range(4, VOCAB_SIZE)
    log_probs = log_probs_of(model, [[5, 6, a] for a in words])
    first = log_probs[0, 1]
    candidates = {(3,): first[3]}
    for a, second in zip(words, log_probs[:, 2], strict=True):
        candidates |= {(a, b): first[a] + second[b] for b in range(3, VOCAB_SIZE)}
    # finished hypotheses come first
    finished = {ids: value for ids, value in candidates.items() if ids[-1] == 3}
    assert tuple(found[2:]) == max(finished, key=finished.get)


@pytest.mark.parametrize("pad_id, beam_size", [(0, 3), (-1, 1)])
def test_without_an_end_token_the_limit_ends_the_search(beam_size, pad_id):
    """The output is not finished, and is as long as its limit, which divides its score."""
    model = make(pad_id=pad_id, end_id=None)
    config = DecodingConfig(beam_size=beam_size, length_penalty=0.7, max_length=5)
    prompts = padded(PROMPTS, pad_id)
    found = decode(model, prompts, config, n_best=beam_size)
    ids, scores, lengths, finished = (ops.convert_to_numpy(part) for part in found)
    assert not finished.any() and (lengths == 5).all()
    assert (ids >= (0 if pad_id else 4)).all()
    divisor = float(ops.convert_to_numpy(length_penalty(5, 0.7)))
    for prompt, row_ids, row_scores in zip(PROMPTS, ids, scores, strict=True):
        log_probs = log_probs_of(model, [[*prompt, *tokens] for tokens in row_ids])
        for tokens, value, after in zip(row_ids, row_scores, log_probs, strict=True):
            total = sum(after[len(prompt) - 1 + i, token] for i, token in enumerate(tokens))
            np.testing.assert_allclose(value, total / divisor, rtol=1e-4)


def test_another_end_token_ends_and_is_scored():
    model = make_anew(pad_id=-1, end_id=0)
    model.embedding.embeddings.assign(ops.convert_to_numpy(model.embedding.embeddings) * 3)
    config = DecodingConfig(beam_size=4, length_penalty=0.6, max_length=6)
    found = decode(model, padded(PROMPTS, -1), config, n_best=4)
    ids, scores, lengths, finished = (ops.convert_to_numpy(part) for part in found)
    assert finished.any()
    for prompt, *row in zip(PROMPTS, ids, scores, lengths, finished, strict=True):
        for tokens, value, length, end in zip(*row, strict=True):
            assert (0 in tokens[:length]) == end == (tokens[length - 1] == 0)
            assert (tokens[length:] == -1).all()
            text = np.array([[*prompt, *tokens[:length]]])
            logits = ops.convert_to_numpy(model(text[:, :-1]))[:, len(prompt) - 1 :]
            labels = text[:, len(prompt) :]
            padding = ((0, 0), (0, 2))  # further logits and padding change nothing
            logits = np.pad(logits, (*padding, (0, 0)), constant_values=9.0)
            labels = np.pad(labels, padding, constant_values=-1)
            forced = score(logits, labels, 0.6, special_ids=model.special_ids)
            np.testing.assert_allclose(ops.convert_to_numpy(forced)[0], value, rtol=1e-4)


def test_a_short_prompt_that_has_ended_waits_for_the_others_of_its_batch(eager):
    """More than three quarters go on, so that it stays in the batch, beyond its last draw."""
    model = make(end_id=None)
    prompts = [[5], *[[6, 7, 8, 9, 10]] * 7]
    texts = model.generate(prompts, max_new_tokens=2, seed=3, temperature=0.5, top_k=3)
    for prompt, text in zip(prompts, texts, strict=True):
        assert len(text) == len(prompt) + 2 and text[: len(prompt)].tolist() == prompt
        assert (text >= 4).all()


@pytest.mark.parametrize("variant", ["GPT-2", "linear"])  # caches with room for more, and of sums
def test_sampling_and_streaming_draw_the_same(variant, eager):
    model = make(**VARIANTS[variant])
    prompt = PROMPTS[2]
    assert [*prompt, *model.stream(prompt, 4)] == greedy(model, prompt, 4)
    drawn = set()
    for seed in range(2):
        options = dict(max_new_tokens=4, temperature=1.5, top_k=9, top_p=0.9, seed=seed)
        (text,) = model.generate([prompt], **options)
        assert [*prompt, *model.stream(prompt, **options)] == text.tolist()
        drawn.add(tuple(text))
    assert len(drawn) == 2


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="others have no room to grow")
def test_streaming_goes_beyond_the_first_room_of_the_cache(monkeypatch, eager):
    monkeypatch.setattr("keras_transformer.backend.tensorflow.CACHE_ROWS", 1)  # room for 8 tokens
    model = make(positions="rotary", end_id=None)
    tokens = list(model.stream([5], 11))
    assert [5, *tokens] == greedy(model, [5], 11)


def test_a_stream_gives_each_token_at_once(eager):
    model = make(end_id=None)
    tokens = model.stream([5, 6], 5)
    first = next(tokens)
    assert [5, 6, first, *tokens] == greedy(model, [5, 6], 5)


def test_empty_and_long_prompts_in_a_batch_have_empty_outputs():
    """`generate` refuses them; a compiled search cannot."""
    model = make()
    prompts = padded([[5, 6], [], [4] * 10, [4] * 9])
    for beam_size in (1, 2):
        config = DecodingConfig(beam_size=beam_size, length_penalty=0.6, max_length=4)
        _, scores, lengths, finished = decode(model, prompts, config)
        assert np.isfinite(ops.convert_to_numpy(scores)).all()
        assert ops.convert_to_numpy(lengths)[1:, 0].tolist() == [0, 0, 1]
        assert ops.convert_to_numpy(lengths)[0, 0] > 0


def test_batch_search_continues_prompts(eager):
    model = make(pad_id=-1, end_id=None)
    config = DecodingConfig(beam_size=3, length_penalty=0.6, max_length=3)
    texts = model.generate([[0, 5], [0], [7, 0, 0]], 3, beam_size=3)
    search = BatchSearch(model, config, batch_size=2)
    for indices, found in search.search([[0, 5], [0], [7, 0, 0]], n_best=2):
        assert found.ids.shape[1:] == (2, 3)
        for i, ids in zip(indices, found.ids, strict=True):
            assert texts[i][-3:].tolist() == ids[0].tolist()


def test_generation_uses_the_weights_of_the_moment():
    model = make_anew()
    before = [text.tolist() for text in model.generate(PROMPTS, 6)]
    model.set_weights(make(seed=8).get_weights())
    after = [text.tolist() for text in model.generate(PROMPTS, 6)]
    assert after == [greedy(model, p, 6) for p in PROMPTS] != before


@pytest.mark.parametrize(
    "prompt, message",
    [
        ([], "at least one id, at most 9, the context. Received: prompt.shape=\\(0,\\)"),
        ([5] * 10, "Received: prompt.shape=\\(10,\\)"),
        ([[5]], "Received: prompt.shape=\\(1, 1\\)"),
        ([5, 19], "ids from 1 to 18. Received: prompt=\\[ 5 19\\]"),
        ([5, 0], "ids from 1 to 18"),
        ([5.0], "ids from 1 to 18"),
    ],
)
def test_bad_prompts(prompt, message, eager):
    model = make()
    with pytest.raises(ValueError, match=message):
        model.generate([[5], prompt])
    with pytest.raises(ValueError, match=message):
        model.stream(prompt)


def test_bad_options(eager):
    model = make()
    with pytest.raises(ValueError, match="temperature=0"):
        model.generate([[5]], temperature=0)
    with pytest.raises(ValueError, match="temperature=0"):
        model.stream([5], temperature=0)
    for seed in (-1, 1.5, None, 2**32):
        with pytest.raises(ValueError, match=f"Received: seed={seed}"):
            model.generate([[5]], temperature=1.0, seed=seed)
        with pytest.raises(ValueError, match=f"Received: seed={seed}"):
            model.stream([5], temperature=1.0, seed=seed)
    for wrong in (dict(top_k=float("nan")), dict(top_p=float("nan"))):  # also without temperature
        with pytest.raises(ValueError, match="=nan"):
            model.generate([[5]], **wrong)
        with pytest.raises(ValueError, match="=nan"):
            model.stream([5], **wrong)
    for penalty in (float("nan"), -1.0, None):
        with pytest.raises(ValueError, match=f"length_penalty={penalty}"):
            model.generate([[5]], length_penalty=penalty)
    for prompts in (None, 5):
        with pytest.raises(ValueError, match=f"Received: prompts={prompts}. Put a single prompt"):
            model.generate(prompts)
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        model.generate([[5]], max_new_tokens=0)
    with pytest.raises(ValueError, match="beam_size=0"):
        model.generate([[5]], beam_size=0)
    assert model.generate([]) == []


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch alone records gradients")
def test_a_stream_records_no_gradients(monkeypatch):
    model = make_anew()
    recorded, start_decoding = [], model.start_decoding

    def start(*arguments):
        step_fn, *others = start_decoding(*arguments)

        def step(*tensors):
            logits, state = step_fn(*tensors)
            recorded.append(logits.requires_grad)
            return logits, state

        return DecodingStart(step, *others)

    monkeypatch.setattr(model, "start_decoding", start)
    assert len(list(model.stream([5], 3))) == len(recorded) and not any(recorded)


def test_searches_are_forgotten_when_there_are_many(monkeypatch, eager):
    monkeypatch.setattr(batch_search, "MAX_REMEMBERED", 2)
    model = make_anew()
    for new_tokens in (1, 2, 1, 3):
        model.generate([[5]], max_new_tokens=new_tokens)
        for temperature in (0.5, 1.0):
            model.generate([[5]], max_new_tokens=new_tokens, temperature=temperature)
    assert [settings.max_length for settings, _ in model._searches] == [1, 3]
    assert all(len(search._compiled) == 2 for search in model._searches.values())


def test_a_model_without_weights_makes_them_first(eager):
    model = Gpt(VOCAB_SIZE, **SIZES)
    (text,) = model.generate([[5]], 3)
    assert [5, *model.stream([5], 3)] == text.tolist() == greedy(model, [5], 3)
