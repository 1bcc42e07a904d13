"""Decoding step by step equals the whole pass, hypothesis by hypothesis."""

import numpy as np
import pytest
from keras import ops, tree

from keras_transformer import Transformer, backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID


def targets(rows, length, seed=5):
    ids = np.random.default_rng(seed).integers(4, 19, size=(rows, length)).astype("int32")
    ids[:, 0] = 2
    return ids


def whole_pass(model, source_ids, target_ids):
    logits = model({"source_ids": source_ids, "target_ids": target_ids})
    return ops.convert_to_numpy(logits)


def step(step_fn, token_ids, position, state):
    position = ops.convert_to_tensor(position, "int32")
    return step_fn(ops.convert_to_tensor(token_ids), position, state)


def rows_of(state, rows):
    """Returns some rows of each tensor of a nested state."""
    return tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), state)


def test_steps_equal_the_whole_pass(shared_model, variant, batch):
    num_hypotheses = 3
    model = shared_model(**variant)
    rows, length = 2 * num_hypotheses, 5
    target_ids = targets(rows, length)
    repeated = np.repeat(batch["source_ids"], num_hypotheses, axis=0)
    expected = whole_pass(model, repeated, target_ids)

    step_fn, state, *_ = model.start_decoding(
        batch["source_ids"], length + 2, num_hypotheses, model.decoding_weights()
    )
    for position in range(length):
        tokens = target_ids[:, position].reshape(2, num_hypotheses)
        logits, state = step(step_fn, tokens, position, state)
        assert tuple(logits.shape) == (2, num_hypotheses, model.output_vocab_size)
        assert {part.shape[0] for part in tree.flatten(state.cache)} == {rows}
        assert {part.shape[0] for part in tree.flatten(state.memory)} == {2}
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits).reshape(rows, -1),
            expected[:, position],
            rtol=1e-5,
            atol=1e-5,
        )


def test_a_cache_follows_its_hypotheses_when_they_are_reordered(shared_model, batch):
    """As a beam search does: some hypotheses are dropped, others are carried on twice."""
    model = shared_model()
    target_ids = targets(6, 4)
    order = np.array([2, 0, 2, 5, 4, 4])  # rows 0-2 are the first sentence's
    step_fn, state, *_ = model.start_decoding(batch["source_ids"], 4, 3)
    for position in range(4):
        if position == 2:
            state = state._replace(cache=rows_of(state.cache, order))
            target_ids[:, :2] = target_ids[order, :2]
        tokens = target_ids[:, position].reshape(2, 3)
        logits, state = step(step_fn, tokens, position, state)
    repeated = np.repeat(batch["source_ids"], 3, axis=0)
    expected = whole_pass(model, repeated, target_ids)[:, -1]
    logits = ops.convert_to_numpy(logits).reshape(6, -1)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_a_sentence_goes_on_alone_when_another_leaves(shared_model, batch):
    model = shared_model()
    target_ids = targets(6, 4)
    expected = whole_pass(model, np.repeat(batch["source_ids"][1:], 3, axis=0), target_ids[3:])
    step_fn, state, *_ = model.start_decoding(batch["source_ids"], 4, 3)
    tokens = target_ids.reshape(2, 3, 4)
    for position in range(4):
        if position == 2:
            tokens = tokens[1:]
            cache, memory = rows_of(state.cache, np.arange(3, 6)), rows_of(state.memory, [1])
            state = state._replace(cache=cache, memory=memory)
        logits, state = step(step_fn, tokens[..., position], position, state)
    logits = ops.convert_to_numpy(logits)[0]
    np.testing.assert_allclose(logits, expected[:, -1], rtol=1e-5, atol=1e-5)


def test_padding_of_the_source_changes_nothing(shared_model, batch):
    model = shared_model()
    results = []
    for source_ids in (batch["source_ids"], np.pad(batch["source_ids"], ((0, 0), (0, 3)))):
        step_fn, state, *_ = model.start_decoding(source_ids, 2)
        logits, state = step(step_fn, [[2], [2]], 0, state)
        logits, _ = step(step_fn, [[5], [9]], 1, state)
        results.append(ops.convert_to_numpy(logits))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_compiled_steps_equal_the_whole_pass(make_model, batch):
    model = make_model(normalize_first=True, num_decoder_layers=1)
    batch["target_ids"] = batch["target_ids"][:, :3]
    expected = whole_pass(model, batch["source_ids"], batch["target_ids"])

    def all_steps(source_ids, target_ids):
        step_fn, state, *_ = model.start_decoding(source_ids, 3)
        logits = []
        for position in range(3):
            tokens = target_ids[:, position : position + 1]
            step_logits, state = step(step_fn, tokens, position, state)
            logits.append(step_logits)
        return ops.concatenate(logits, axis=1)

    compiled = backend.compile_function(all_steps)
    logits = compiled(*(ops.convert_to_tensor(ids) for ids in batch.values()))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), expected, rtol=1e-5, atol=1e-5)


def test_a_model_that_was_never_called_can_decode(batch):
    model = Transformer(23, num_layers=1, d_model=12, ff_dim=17, num_heads=3)
    step_fn, state, *_ = model.start_decoding(batch["source_ids"], 2)
    logits, _ = step(step_fn, [[2], [2]], 0, state)
    expected = whole_pass(model, batch["source_ids"], np.array([[2], [2]]))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), expected, rtol=1e-5, atol=1e-5)


def test_learned_positions_end_an_output():
    """An output is as long as the model can read it."""
    model = Transformer(23, num_layers=1, d_model=12, ff_dim=17, num_heads=3, positions="learned",
                        max_length=6)  # fmt: skip
    model.build()
    rng = np.random.default_rng(6)  # with which no output ends by itself
    model.set_weights([rng.normal(size=w.shape, scale=0.5) for w in model.get_weights()])
    source_ids = np.array([[5, 9, 7, 8, 4, 3]], "int32")
    found = decode(model, source_ids, DecodingConfig(beam_size=2, max_length=20))
    ids = ops.convert_to_numpy(found.ids[:, 0])
    assert ids.shape == (1, 6) and ids.all()
    assert whole_pass(model, source_ids, ids).shape == (1, 6, 23)


@pytest.mark.parametrize("name", ["local attention", "ssru"])
def test_a_beam_search_has_the_scores_of_the_whole_pass(shared_model, variants, batch, name):
    """It reorders the cache of each hypothesis, of keys and values, or of one vector."""
    model, source_ids = shared_model(**variants[name]), batch["source_ids"]
    config = DecodingConfig(beam_size=3, max_length=5, length_penalty=0.0)
    found = decode(model, source_ids, config, n_best=3)
    for row, (ids, scores) in enumerate(zip(found.ids, found.scores, strict=True)):
        ids = ops.convert_to_numpy(ids)
        previous = np.concatenate([np.full((3, 1), START_ID), ids[:, :-1]], axis=1)
        source = np.repeat(source_ids[row : row + 1], 3, axis=0)
        logits = whole_pass(model, source, previous)
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        chosen = np.take_along_axis(log_probs, ids[..., None], axis=-1)[..., 0]
        expected = np.where(ids == PAD_ID, 0.0, chosen).sum(axis=1)
        np.testing.assert_allclose(ops.convert_to_numpy(scores), expected, rtol=1e-4, atol=1e-4)


def test_greedy_search_finds_the_tokens_that_a_whole_pass_does(shared_model, variants, batch):
    """With a cache of sums."""
    model, source_ids = shared_model(**variants["linear attention"]), batch["source_ids"]
    found = decode(model, source_ids, DecodingConfig(beam_size=1, max_length=4))
    found = ops.convert_to_numpy(found.ids)[0, 0]
    logits = whole_pass(model, source_ids[:1], np.array([[START_ID, *found[:-1]]]))[0]
    logits[:, :END_ID] = -np.inf  # never chosen
    length = np.count_nonzero(found)
    assert found[:length].tolist() == logits.argmax(axis=-1)[:length].tolist()
