"""The recurrent translator: properties, steps, searches, sizes, config and errors."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_transformer import RnnSeq2Seq, Transformer, backend
from keras_transformer.config import Config, DecodingConfig
from keras_transformer.decoding import beam_search, decode, length_penalty
from keras_transformer.models.from_config import check_model_settings, model_class_of
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from tests import forked
from tests.models.conftest import logits_of, randomized

SIZES = dict(num_layers=1, num_decoder_layers=2, d_model=12, units=10, dropout=0.1)
VARIANTS = {
    "plain": dict(attention=None, cell="lstm"),
    "Bahdanau": dict(),
    "Luong": dict(attention="luong", score="multiplicative", target_vocab_size=19, cell="lstm"),
    "input feeding": dict(
        attention="luong", score="scaled_dot_product", input_feeding=True, bidirectional=False,
        share_embeddings=False, tie_output=False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    """No test changes it."""
    return make_model(**VARIANTS[request.param])


def make_model(seed=7, vocab_size=23, scale=0.5, **arguments):
    return randomized(RnnSeq2Seq(vocab_size, **{**SIZES, **arguments}), seed, scale)


def assert_equal(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# === Properties ===


def test_padding_and_neighbours_change_nothing(model, batch):
    longer = {name: np.pad(ids, ((0, 0), (0, 3))) for name, ids in batch.items()}
    expected = logits_of(model, batch)
    assert_equal(logits_of(model, longer)[:, :5], expected)
    alone = {"source_ids": batch["source_ids"][1:, :4], "target_ids": batch["target_ids"][1:, :3]}
    assert_equal(logits_of(model, alone), expected[1:, :3])


def test_the_future_changes_nothing_and_the_source_does(model, batch):
    before = logits_of(model, batch)
    changed = {name: ids.copy() for name, ids in batch.items()}
    changed["target_ids"][0, 3] = 9 - changed["target_ids"][0, 3] % 2
    after = logits_of(model, changed)
    assert_equal(after[0, :3], before[0, :3])
    assert np.abs(after[0, 3:] - before[0, 3:]).min(axis=-1).max() > 1e-6
    changed["source_ids"][0, 0] = 9 - changed["source_ids"][0, 0] % 2
    assert np.abs(logits_of(model, changed)[0, 0] - after[0, 0]).max() > 1e-3


def test_a_source_of_padding_alone_gives_finite_logits(model, batch):
    empty = {**batch, "source_ids": np.zeros((2, 4), "int32")}
    assert np.all(np.isfinite(logits_of(model, empty)))


def test_attention_weights_sum_to_one_over_the_real_positions(batch):
    _, weights = make_model()(batch, return_attention_weights=True)
    [weights] = (ops.convert_to_numpy(w) for w in weights["cross"])
    assert weights.shape == (2, 1, 5, 7)
    assert_equal(weights.sum(axis=-1), np.ones((2, 1, 5)))
    assert not weights[1, ..., 4:].any()


@pytest.mark.parametrize("name", ["Luong", "input feeding"])
def test_dropout_acts_in_training_alone(name, batch):
    """Of a decoder that runs layer by layer, and of one that runs step by step."""
    model = make_model(**{**VARIANTS[name], "dropout": 0.5})
    first, second, expected = (
        ops.convert_to_numpy(model(batch, training=training)) for training in (True, True, False)
    )
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(expected, logits_of(model, batch))
    encoder, decoder = model.encoder, model.decoder
    dropouts = [encoder.embedding_dropout, *encoder.output_dropouts, *decoder.dropouts]
    for acting in dropouts:
        for dropout in dropouts:
            dropout.rate = 0.5 if dropout is acting else 0.0
        changed = ops.convert_to_numpy(model(batch, training=True))
        assert np.abs(changed - expected).max() > 1e-3, acting.path


@pytest.mark.parametrize("name", ["Bahdanau", "input feeding"])
def test_a_compiled_graph_of_any_size(name, batch):
    """Of the two that have a loop of their own."""
    model = make_model(**{**VARIANTS[name], "num_decoder_layers": 1})
    call = backend.compile_function(
        lambda *ids: model(dict(zip(batch, ids, strict=True))), model.weights
    )
    for rows, source_length, target_length in ((2, 7, 5), (1, 4, 1)):
        sizes = source_length, target_length
        ids = [x[:rows, :size] for x, size in zip(batch.values(), sizes, strict=True)]
        found = ops.convert_to_numpy(call(*map(ops.convert_to_tensor, ids)))
        assert_equal(found, logits_of(model, dict(zip(batch, ids, strict=True))))


# === Step by step ===


def whole_pass(model, source_ids, target_ids):
    return logits_of(model, {"source_ids": source_ids, "target_ids": target_ids})


def test_steps_equal_the_whole_pass_when_hypotheses_change_places(model, batch):
    """As in a beam search: some hypotheses are dropped, others go on twice."""
    target_ids = np.random.default_rng(2).integers(4, 19, size=(6, 5)).astype("int32")
    before = target_ids.copy()
    order = np.array([2, 0, 2, 5, 4, 4])  # rows 0 to 2 are the first sentence's
    step_fn, state, *_ = model.start_decoding(batch["source_ids"], 9, 3, model.decoding_weights())
    found = []
    for position in range(5):
        if position == 3:
            cache = tree.map_structure(lambda x: ops.take(x, order, axis=0), state.cache)
            state = state._replace(cache=cache)
            target_ids[:, :3] = target_ids[order, :3]
        tokens = ops.convert_to_tensor(target_ids[:, position].reshape(2, 3))
        logits, state = step_fn(tokens, ops.convert_to_tensor(position, "int32"), state)
        assert {part.shape[0] for part in tree.flatten(state.cache)} == {6}
        assert {part.shape[0] for part in tree.flatten(state.memory)} == {2}
        found.append(ops.convert_to_numpy(logits).reshape(6, -1))
    found, source_ids = np.stack(found, axis=1), np.repeat(batch["source_ids"], 3, axis=0)
    assert_equal(found[:, :3], whole_pass(model, source_ids, before)[:, :3])
    assert_equal(found[:, 3:], whole_pass(model, source_ids, target_ids)[:, 3:])


def test_a_beam_of_one_is_greedy_and_batches_change_nothing(batch):
    model = make_model(**VARIANTS["input feeding"], scale=1.0)
    one = DecodingConfig(beam_size=1, max_length=4)
    greedy = decode(model, batch["source_ids"], one)
    for result in (greedy, decode(model, batch["source_ids"][1:, :4], one)):
        best = ops.convert_to_numpy(result.ids)[-1, 0]
        np.testing.assert_array_equal(best, ops.convert_to_numpy(greedy.ids)[-1, 0, : len(best)])
    start = model.start_decoding(batch["source_ids"], 4, 1)
    beam = beam_search(*start, 1)
    np.testing.assert_array_equal(*(ops.convert_to_numpy(x.ids) for x in (beam, greedy)))
    assert_equal(*(ops.convert_to_numpy(x.scores) for x in (beam, greedy)))


def test_the_widest_beam_finds_the_best_of_all_outputs(batch):
    """Of 3 tokens at most, over the end token and two words."""
    model = make_model(vocab_size=6, scale=1.0)
    source_ids = np.array([[4, 5, 5, 3]], "int32")
    config = DecodingConfig(beam_size=9, max_length=3, length_penalty=0.6)
    found = decode(model, source_ids, config)
    outputs = [words + (3,) for n in range(3) for words in itertools.product((4, 5), repeat=n)]
    outputs += itertools.product((4, 5), repeat=3)  # cut at the limit
    target_ids = np.zeros((len(outputs), 3), "int32")
    for row, labels in zip(target_ids, outputs, strict=True):
        row[: len(labels)] = 2, *labels[:-1]
    all_logits = whole_pass(model, np.repeat(source_ids, len(outputs), axis=0), target_ids)
    scores = {}
    for labels, logits in zip(outputs, all_logits, strict=True):
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        total = sum(log_probs[i, label] for i, label in enumerate(labels))
        scores[labels] = total / float(length_penalty(len(labels), 0.6))
    finished = {labels: score for labels, score in scores.items() if labels[-1] == 3}
    best = max(finished, key=finished.get)
    ids = ops.convert_to_numpy(found.ids)[0, 0]
    assert tuple(ids[ids > 0]) == best
    assert_equal(ops.convert_to_numpy(found.scores)[0, 0], finished[best])


def test_keys_are_projected_once_for_all_steps_and_hypotheses(batch):
    model = make_model()
    start = model.start_decoding(batch["source_ids"], 9, 4)
    assert tuple(start.state.memory["keys"].shape) == (2, 7, 10)


# === Sizes, precision, training ===


def gru(inputs, units):
    return 3 * units * (inputs + units + 2)  # two biases, as reset gates come after the product


def lstm(inputs, units):
    return 4 * units * (inputs + units + 1)


def test_number_of_parameters():
    vocabulary, d, u = 10_000, 256, 256
    encoder, table = 2 * gru(d, u), vocabulary * d
    initial, readout = 2 * u * u + u, (u + 2 * u) * d
    attention = u * u + 2 * u * u + u  # query, key, score
    plain = table + encoder + gru(d + 2 * u, u) + initial + readout
    assert RnnSeq2Seq.from_preset("rnn_plain", vocabulary).NAME == "rnn_seq2seq"
    for name, count in (("rnn_plain", plain), ("rnn", plain + attention)):
        model = RnnSeq2Seq.from_preset(name, vocabulary)
        model.build()
        assert model.count_params() == count
    model = RnnSeq2Seq(
        50, 40, num_layers=2, num_decoder_layers=3, d_model=16, units=8, cell="lstm",
        bidirectional=False, attention="luong", score="multiplicative", input_feeding=True,
        tie_output=False,
    )  # fmt: skip
    model.build()
    layers = lstm(16, 8) + lstm(8, 8) + lstm(16 + 16, 8) + 2 * lstm(8, 8)
    others = 90 * 16 + (8 * 6 * 8 + 6 * 8) + 8 * 8 + 16 * 16 + 16 * 40
    assert model.count_params() == layers + others


@pytest.mark.parametrize("name", ["Bahdanau", "input feeding"])
def test_in_mixed_precision(name, batch, run_eagerly):
    variant = {**VARIANTS[name], "num_decoder_layers": 1}
    model = make_model(**variant, dtype="mixed_bfloat16")
    assert ops.dtype(model(batch)) == "bfloat16"
    expected = make_model(**variant)
    assert np.abs(logits_of(model, batch) - logits_of(expected, batch)).max() < 0.3
    found = decode(model, batch["source_ids"], DecodingConfig(beam_size=2, max_length=2))
    assert np.all(np.isfinite(ops.convert_to_numpy(found.scores)))
    labels = np.roll(batch["target_ids"], -1, axis=1)
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile("adam", TokenCrossEntropy(0.1), metrics=metrics, run_eagerly=run_eagerly)
    assert model.needs_no_logits
    found = model.train_on_batch(batch, labels, sample_weight=(labels != 0) / 8.0)
    assert len(found) == 3 and np.all(np.isfinite(found))


XLA_PROGRAM = """
import sys
import numpy as np
from keras_transformer import RnnSeq2Seq
from keras_transformer.training import TokenCrossEntropy

arguments = eval(sys.argv[1])
model = RnnSeq2Seq(23, d_model=8, units=6, bidirectional=False, **arguments)
model.compile("sgd", TokenCrossEntropy(), jit_compile=True)
ids = np.random.default_rng(1).integers(4, 23, (4, 3)).astype("int32")
inputs = {"source_ids": ids, "target_ids": ids}
history = model.fit(inputs, ids, batch_size=3, verbose=0).history  # 3 rows, then 1
sys.exit(not np.isfinite(history["loss"][0]))
"""


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="others compile all the same")
@pytest.mark.parametrize(
    "arguments",
    [
        dict(attention="bahdanau", score="additive"),
        pytest.param(dict(attention="bahdanau", score="multiplicative"), marks=pytest.mark.slow),
        pytest.param(dict(attention="luong", input_feeding=True), marks=pytest.mark.slow),
    ],
)
def test_xla_trains_it_on_batches_of_different_sizes(arguments):
    """In a process of its own, as other tests disable XLA in theirs."""
    done = forked.run(["-c", XLA_PROGRAM, repr(arguments)])
    assert done.returncode == 0, done.stderr[-2000:]


def test_within_a_functional_model(batch):
    given = {name: keras.Input((None,), dtype="int32", name=name) for name in batch}
    model = keras.Model(given, keras.layers.Softmax()(make_model()(given)))
    assert model.output_shape == (None, None, 23)
    np.testing.assert_allclose(logits_of(model, batch).sum(axis=-1), 1.0, rtol=1e-5)


# === Config and errors ===


def test_the_settings_of_a_run(batch):
    config = Config.from_preset("rnn").override(["model.units=8", "model.attention=null"])
    assert model_class_of(config) is RnnSeq2Seq and config.model_arguments["attention"] is None
    config = Config.from_preset("tiny").override(["model.name=rnn_seq2seq"])
    assert config.model_arguments == {} and model_class_of(config) is RnnSeq2Seq
    config = config.override(["model.attention=luong", "model.input_feeding=true"])
    assert config.model_arguments == {"attention": "luong", "input_feeding": True}
    with pytest.raises(ValueError, match="Expected attention to be text or null. Received: .*=3"):
        check_model_settings(config.override(["model.attention=3"]))
    with pytest.raises(ValueError, match="an argument of the model: .*Received: num_heads"):
        check_model_settings(config.override(["model.num_heads=2"]))


def test_a_preset_of_another_model_is_refused():
    with pytest.raises(ValueError, match="of the model transformer: tiny, .*Received: rnn"):
        Transformer.from_preset("rnn", 23)
    with pytest.raises(ValueError, match="of the model rnn_seq2seq: rnn, .*Received: tiny"):
        RnnSeq2Seq.from_preset("tiny", 23)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(units=0), "units must be a whole number of at least 1. Received: .*units=0"),
        (dict(num_decoder_layers=0), "num_decoder_layers=0"),
        (dict(cell="elman"), "one of gru, lstm. Received: cell='elman'"),
        (dict(attention="dense"), "one of .*'luong', None.*Received: attention='dense'"),
        (dict(score="network"), "one of .*'additive'.*Received: score='network'"),
        (dict(input_feeding=True), "Received: input_feeding=True, attention='bahdanau'. Choose"),
        (dict(dropout=1.0), "Received: rate=1.0"),
        (dict(score="dot_product"), "query width 10, key width 20. Use score='multiplicative'"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_model(**arguments)
