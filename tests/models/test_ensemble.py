"""An ensemble predicts the mean of its members, in every search as in its call."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import Shortlist, decode, decode_sampled, score
from keras_transformer.decoding.processors import NoRepeatNgram
from keras_transformer.models import Ensemble, RnnSeq2Seq, Transformer
from keras_transformer.special_ids import shift_right

V, END, MAX_LENGTH = 211, 3, 6
SIZES = dict(num_layers=1, d_model=12, num_heads=2, dropout=0.0)
SOURCE_IDS = np.array([[5, 9, 77, 8, 200, 3], [8, 3, 0, 0, 0, 0], [40, 41, 42, 3, 0, 0]], "int32")


def random_weights(model, seed):
    model.build()
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape, scale=0.5) for w in model.get_weights()])
    return model


def new_members():
    """Models that have little in common but the vocabulary."""
    local = dict(attention={"name": "local", "window": 2}, positions="learned", max_length=11)
    models = [
        Transformer(V, ff_dim=20, **SIZES, **local, num_decoder_layers=2, tie_output=False),
        RnnSeq2Seq(V, num_layers=1, d_model=8, units=10, dropout=0.0),
    ]
    return [random_weights(model, seed) for seed, model in enumerate(models, start=40)]


@pytest.fixture(scope="module")
def members():
    return new_members()


@pytest.fixture(scope="module")
def ensemble(members):
    model = Ensemble(members)
    model.build()
    return model


def arrays(tensors):
    return [ops.convert_to_numpy(tensor) for tensor in tensors]


def probabilities(model, inputs):
    logits = ops.convert_to_numpy(model(inputs)).astype("float64")
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def settings(beam_size, **others):
    return DecodingConfig(beam_size=beam_size, max_length=MAX_LENGTH, **others)


def assert_scores_of_call(model, source_ids, found):
    """The score of each output is that of a single pass of the model, without a cache."""
    for place in range(found[0].shape[1]):
        ids = found[0][:, place]
        logits = model({"source_ids": source_ids, "target_ids": shift_right(ids, np)})
        expected = ops.convert_to_numpy(score(logits, ids))
        np.testing.assert_allclose(found[1][:, place], expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("mean", ["probabilities", "log_probabilities"])
def test_the_prediction_is_the_mean_of_the_predictions(members, mean):
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :4]}
    each = np.stack([probabilities(member, inputs) for member in members])
    if mean == "probabilities":
        expected = each.mean(axis=0)
    else:
        expected = np.exp(np.log(each).mean(axis=0))
        expected /= expected.sum(axis=-1, keepdims=True)
    model = Ensemble(members, mean)
    np.testing.assert_allclose(probabilities(model, inputs), expected, rtol=1e-4, atol=1e-9)
    if mean == "probabilities":  # the logits themselves
        logits = ops.convert_to_numpy(model(inputs))
        np.testing.assert_allclose(logits, np.log(expected), rtol=1e-4, atol=1e-4)


def test_probabilities_too_small_for_float32_are_not_zero():
    large = [new for new in new_members() if isinstance(new, Transformer)]
    large.append(Transformer(V, ff_dim=20, **SIZES))
    for seed, member in enumerate(large):
        random_weights(member, seed)
        member.set_weights([30 * weight for weight in member.get_weights()])
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :4]}
    with np.errstate(divide="ignore"):
        expected = np.log(sum(probabilities(member, inputs) for member in large) / 2)
    logits = ops.convert_to_numpy(Ensemble(large)(inputs))
    is_small = expected < -80
    assert is_small.any() and np.isfinite(logits).all() and (logits[is_small] < -80).all()
    np.testing.assert_allclose(logits[~is_small], expected[~is_small], rtol=1e-4, atol=1e-4)


def test_one_member_or_the_same_twice_is_that_model(members):
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :4]}
    expected = probabilities(members[0], inputs)
    for number in (1, 2):
        found = probabilities(Ensemble(members[:1] * number), inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_greedy_steps_give_the_scores_of_the_call(members):
    model = Ensemble(members, "log_probabilities")
    assert_scores_of_call(model, SOURCE_IDS, arrays(decode(model, SOURCE_IDS, settings(1))))


def test_compiled_steps_give_the_scores_of_the_call_for_each_sentence_alone(ensemble):
    def find(ids):
        return decode(ensemble, ids, settings(3), 3)

    search = backend.compile_function(find, ensemble.weights)
    found = arrays(search(ops.convert_to_tensor(SOURCE_IDS)))
    assert_scores_of_call(ensemble, SOURCE_IDS, found)
    if keras.backend.backend() == "jax":  # which compiles for each shape
        return
    for row, length in zip(range(3), (6, 2, 4), strict=True):  # alone, without padding
        alone = arrays(search(ops.convert_to_tensor(SOURCE_IDS[row : row + 1, :length])))
        longest = alone[0].shape[-1]
        assert not found[0][row, :, longest:].any()
        np.testing.assert_array_equal(alone[0][0], found[0][row, :, :longest])
        np.testing.assert_allclose(alone[1][0], found[1][row], rtol=1e-4)


def test_a_beam_as_wide_as_the_language_finds_the_best_of_all():
    """Among all outputs of up to three tokens of a vocabulary of two words."""
    sizes = dict(num_layers=1, d_model=8, ff_dim=9, num_heads=2)
    members = [random_weights(Transformer(6, **sizes), seed) for seed in (1, 2)]
    limit, source_ids = 3, np.array([[5, 4, 3]], "int32")
    outputs = [
        [*words, *([END] if len(words) < limit else [])]
        for length in range(limit + 1)
        for words in itertools.product((4, 5), repeat=length)
    ]
    labels = np.array([[*output, 0, 0][:limit] for output in outputs], "int32")
    inputs = {
        "source_ids": np.repeat(source_ids, len(labels), axis=0),
        "target_ids": shift_right(labels, np),
    }
    mean = sum(probabilities(member, inputs) for member in members) / 2
    chosen = np.take_along_axis(mean, labels[..., None], axis=-1)[..., 0]
    log_probs = np.where(labels != 0, np.log(chosen), 0.0).sum(axis=1)
    order = np.argsort(-log_probs)
    config = DecodingConfig(beam_size=len(labels), max_length=limit, length_penalty=0.0)
    found = arrays(decode(Ensemble(members), source_ids, config, n_best=len(labels)))
    finished = [END in row for row in labels[order]]  # they come before the others
    order = [*order[finished], *order[np.logical_not(finished)]]
    np.testing.assert_array_equal(found[0][0], labels[order])
    np.testing.assert_allclose(found[1][0], log_probs[order], rtol=1e-4, atol=1e-5)


def test_samples_prefixes_and_processors_work_as_with_one_model(ensemble):
    config = settings(2)
    prefixes = np.array([[7, 9], [50, 0], [0, 0]], "int32")
    steering = dict(prefixes=prefixes, processors=[NoRepeatNgram(1)])
    for found in (
        decode(ensemble, SOURCE_IDS, config, 2, **steering),
        decode_sampled(ensemble, SOURCE_IDS, config, seed=3, **steering),
    ):
        ids, scores, lengths, _ = arrays(found)
        assert np.isfinite(scores).all() and (lengths > 0).all()
        for row in ids.reshape(-1, ids.shape[-1]):
            row = row[row > 3]
            assert len(set(row)) == len(row)
    drawn = arrays(decode_sampled(ensemble, SOURCE_IDS, config, seed=3))
    assert_scores_of_call(ensemble, SOURCE_IDS, drawn)
    # the limit of the learned positions, of which the prefixes need some
    longer = DecodingConfig(beam_size=1, max_length=60)
    lengths = arrays(decode(ensemble, SOURCE_IDS, longer, prefixes=prefixes))[2][:, 0]
    assert (lengths <= 11 - np.count_nonzero(prefixes, axis=1)).all() and lengths.max() > 6


def test_a_shortlist_restricts_the_softmax_of_each_member(members, ensemble):
    candidates = np.random.default_rng(6).integers(4, V, size=(3, 20)).astype("int32")
    shortlist = Shortlist.of(ops.convert_to_tensor(candidates), V)
    found = decode(ensemble, SOURCE_IDS, settings(2), 2, shortlist=shortlist)
    ids, scores, _, _ = arrays(found)
    for row, (output, given) in enumerate(zip(ids[:, 0], candidates, strict=True)):
        known = [0, 1, 2, 3, *given]
        assert set(output) <= set(known)
        is_out = np.isin(np.arange(V), known, invert=True)
        inputs = {
            "source_ids": SOURCE_IDS[row : row + 1],
            "target_ids": shift_right(output[None], np),
        }
        each = []
        for member in members:
            inside = np.where(is_out, 0.0, probabilities(member, inputs)[0])
            each.append(inside / inside.sum(axis=-1, keepdims=True))
        logits = np.log(np.mean(each, axis=0) + 1e-30)
        expected = score(logits[None].astype("float32"), output[None])
        np.testing.assert_allclose(scores[row, 0], ops.convert_to_numpy(expected)[0], rtol=1e-3)


def test_attention_weights_are_the_heads_of_all_members(members, ensemble):
    inputs = {"source_ids": SOURCE_IDS, "target_ids": SOURCE_IDS[:, :4]}
    logits, weights = ensemble(inputs, return_attention_weights=True)
    np.testing.assert_allclose(*arrays([logits, ensemble(inputs)]), rtol=0, atol=1e-6)
    assert set(weights) == {"cross"} and ensemble.gives_cross_weights  # the RNN has no others
    (found,) = arrays(weights["cross"])
    each = [member(inputs, return_attention_weights=True)[1]["cross"][-1] for member in members]
    np.testing.assert_array_equal(found, np.concatenate(arrays(each), axis=1))
    assert found.shape == (3, 2 + 1, 4, 6)
    blind = Transformer(V, ff_dim=20, **SIZES, cross_attention="linear")
    assert not Ensemble([members[0], blind]).gives_cross_weights


def test_predictions_are_float32_where_members_compute_in_another_type():
    members = [
        random_weights(Transformer(V, ff_dim=20, **SIZES, dtype="mixed_bfloat16"), seed)
        for seed in (1, 2)
    ]
    model = Ensemble(members)
    found = arrays(decode(model, SOURCE_IDS, settings(2)))
    logits = model({"source_ids": SOURCE_IDS, "target_ids": shift_right(found[0][:, 0], np)})
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    expected = ops.convert_to_numpy(score(logits, found[0][:, 0]))
    np.testing.assert_allclose(found[1][:, 0], expected, rtol=0.05)


def test_what_is_no_ensemble_is_refused(members):
    other = Transformer(V + 1, ff_dim=20, **SIZES)
    for arguments, message in (
        (([],), "Expected models that translate, at least one"),
        ((["runs/a"],), "Received: members=.'str'"),
        (([members[0], other],), "one vocabulary.*Received: source and target .*211, 211.*212"),
        ((members, "median"), "Received: mean='median'"),
    ):
        with pytest.raises(ValueError, match=message):
            Ensemble(*arguments)
