"""Each setting of a run, at another value than its default, arrives where it acts.

`train` is stopped where it would take its first step; what it has made until then is looked at.
"""

import dataclasses
import inspect
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import GROUPS, Config, TrainingConfig
from keras_transformer.config.settings import settings
from keras_transformer.data import ParallelCorpus
from keras_transformer.models import MODELS, Transformer
from keras_transformer.models.decoder_model import TokenModel
from keras_transformer.training import train, training_loop
from keras_transformer.training.optimizer import make_optimizer
from keras_transformer.training.schedules import schedule_of

SMALL = {
    "model.num_layers": 1,
    "model.d_model": 16,
    "model.ff_dim": 24,
    "model.num_heads": 2,
    "tokenizer.vocab_size": 150,
}


def config_of(values):
    """Returns the small configuration with some settings by their whole names."""
    groups = {}
    for name, value in {**SMALL, **values}.items():
        group, key = name.split(".")
        groups.setdefault(group, {})[key] = value
    return Config().merged(groups)


def test_validation_reads_and_writes_as_long_texts_as_the_search_of_the_run(start_training):
    values = {"decoding.max_length": 31, "decoding.max_source_length": 33, "decoding.shortlist": 4}
    decoding = start_training(config_of(values)).bleu.decoding
    assert (decoding.max_length, decoding.max_source_length) == (31, 33)
    assert (decoding.beam_size, decoding.shortlist) == (1, 0)


@pytest.fixture
def files(tmp_path, corpus):
    """The settings that name the pairs as files to train on."""
    paths = {}
    for side in ("source", "target"):
        paths[side] = tmp_path / f"train.{side}"
        paths[side].write_text("\n".join(getattr(corpus, side)) + "\n", encoding="utf-8")
    return {"data.train": [paths]}


def test_each_corpus_has_its_tag_its_weight_and_its_score(start_training, files):
    ((text,), tags) = files["data.train"], (">>de<<", ">>fr<<")
    values = {"data.train": [{**text, "tag": tags[0]}, {**text, "tag": tags[1], "max_pairs": 4}]}
    values["data.valid"] = [{**each, "max_pairs": 3} for each in values["data.train"]]
    values["data.temperature"] = 2
    started = start_training(config_of(values), corpora=None)
    size = started.batches.summary.num_pairs - 4
    tokenizer = started.bleu.tokenizer
    ids = [tokenizer.pieces.index(tag) for tag in tags]
    sources = [inputs["source_ids"] for inputs, *_ in started.batches.arrays(repeat=False)]
    assert [sum((rows == i).sum() for rows in sources) for i in ids] == [size, round(2 * size**0.5)]
    assert started.bleu.groups == {tags[0]: [0, 1, 2], tags[1]: [3, 4, 5]}
    assert any(line.startswith("corpus      >>fr<< ") for line in started.lines)


def test_a_tag_that_would_be_split_is_refused(tmp_path, files, tokenizer):
    values = {"data.train": [{**files["data.train"][0], "tag": ">>de<<"}]}
    tokenizer.save(tmp_path, "plain")
    for other, message in (
        ({"tokenizer.kind": "wordpiece"}, "no tags with WordPiece, .*tag=>>de<<"),
        ({"tokenizer.model": tmp_path / "plain.model"}, "the tag >>de<< is one token. Received"),
    ):
        with pytest.raises(ValueError, match=message):
            train(config_of(values | other), tmp_path / "run", write=lambda line: None)
        assert not (tmp_path / "run").exists()


# What each test below looks at: every setting stands in one of these, a new one as well.
TRAINING = {
    "data.max_length": 29,
    "tokenizer.model_type": "unigram",
    "tokenizer.vocab_size": 400,
    "tokenizer.sampling": 0.1,
    "tokenizer.normalization": "nfkc_cf",
    "tokenizer.byte_fallback": True,
    "tokenizer.user_symbols": ">>de<< >>fr<<",
    "training.batch_tokens": 96,
    "training.max_steps": 11,
    "training.max_minutes": 1.5,
    "training.schedule": "inverse_square_root",
    "training.peak_learning_rate": 0.003,
    "training.warmup_steps": 13,
    "training.label_smoothing": 0.2,
    "training.r_drop": 3.0,
    "training.freeze": "cross_attention encoder/block_0/feed_forward",
    "training.guided_alignment": "lexicon",
    "training.guided_alignment_weight": 0.07,
    "training.clip_norm": 0.5,
    "training.ema": 0.97,
    "training.checkpoint_every": 5,
    "training.keep_checkpoints": 3,
    "training.patience": 2,
    "training.bleu_tokenizer": "char",
    "training.samples": 2,
    "training.seed": 17,
    "training.deterministic": True,
    "training.gradient_accumulation_steps": 4,
    "training.rematerialize": True,
    "training.mixed_precision": "mixed_bfloat16",
    "training.jit_compile": True,
    "training.static_shapes": 3,
}
TOKENIZERS = {"tokenizer.kind", "tokenizer.shared", "tokenizer.model"}
LORA = {"training.lora_rank"}  # in test_trained_part.py
DISTILLATION = {"training.distill_from", "training.distill_share"}  # in test_distillation.py
DATA = {
    "data.train",
    "data.valid",
    "data.dataset",
    "data.prepared",  # in test_prepare.py
    "data.temperature",
    "data.validation_share",
    "data.validation_limit",
}


def test_every_setting_has_a_test_here():
    names = {f"{group}.{key}" for group in ("data", "tokenizer", "training")
             for key in settings(GROUPS[group])}  # fmt: skip
    assert names == TRAINING.keys() | TOKENIZERS | DATA | LORA | DISTILLATION
    for name, value in TRAINING.items():
        group, key = name.split(".")
        assert value != settings(GROUPS[group])[key].default, name


@pytest.fixture
def spied(monkeypatch):
    """The calls of what is too global, or too well hidden, to look at afterwards."""
    from keras_transformer import backend
    from keras_transformer.tokenizers import SentencePieceTokenizer

    calls = types.SimpleNamespace(determinism=[], learned=[], compiled=[])
    monkeypatch.setattr(backend, "enable_determinism", lambda: calls.determinism.append(True))
    learn = inspect.signature(SentencePieceTokenizer.train)
    train = SentencePieceTokenizer.train

    def learning(*args, **kwargs):
        calls.learned.append(learn.bind(*args, **kwargs).arguments)
        return train(*args, **kwargs)

    monkeypatch.setattr(SentencePieceTokenizer, "train", learning)
    compile_model = TokenModel.compile

    def compiling(*args, **kwargs):
        calls.compiled.append(kwargs["jit_compile"])
        return compile_model(*args, **kwargs)

    monkeypatch.setattr(TokenModel, "compile", compiling)
    return calls


def test_settings_of_data_tokenizer_and_training_act(start_training, spied):
    config = config_of(TRAINING)
    started = start_training(config)
    model, batches, valid = started.model, started.batches, started.valid_batches

    assert (batches.max_length, valid.max_length) == (29, 29)
    (learned,) = spied.learned
    assert learned["model_type"] == "unigram"
    assert learned["user_symbols"] == [">>de<<", ">>fr<<"]
    assert learned["normalization"] == "nfkc_cf" and learned["byte_fallback"]
    assert model.source_vocab_size == learned["vocab_size"] == 400
    assert batches.sampling == 0.1 and not valid.sampling
    assert batches.seed == 17 and batches.shuffle and not valid.shuffle
    assert batches.batch_tokens == valid.batch_tokens == 96
    assert batches.static_shapes == valid.static_shapes == 3
    # limits, and what happens between two checkpoints, are the business of these two
    assert started.training is started.saver.config is config.training
    assert model.loss.label_smoothing == 0.2 and model.loss.r_drop == 3.0
    assert model.loss.alignment_weight == 0.07
    assert len(batches.links.lengths) == batches.summary.num_pairs and valid.links is None
    assert started.bleu.samples == 2 and started.bleu.tokenize == "char"
    assert spied.determinism == [True]
    assert model.num_parts == 4
    (block,) = model.encoder.blocks
    assert block.rematerialized_call(block.call) != block.call
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert spied.compiled == [True]
    frozen = {w.path.split("/", 1)[1].rsplit("/", 2)[0] for w in model.non_trainable_weights}
    assert frozen == {"decoder/block_0/cross_attention", "encoder/block_0/feed_forward"}
    assert type(model.optimizer).__name__ == "AveragingAdam" and model.optimizer.decay == 0.97
    assert_is_adam(
        model.optimizer,
        learning_rates=[0.003 * (i / 13) for i in (1, 2, 3)],
        clip_norm=0.5,
    )


def test_the_defaults_are_something_else(start_training, spied):
    started = start_training(config_of({"training.schedule": "noam"}))
    model = started.model
    assert spied.determinism == [] and spied.compiled == ["auto"]
    assert type(model) is Transformer and model.dtype_policy.name == "float32"
    assert model.loss.label_smoothing == 0.1 and model.loss.r_drop == 0.0
    assert model.loss.alignment_weight == 0.05 and started.batches.links is None
    assert type(model.optimizer).__name__ == "Adam"
    assert [learned["model_type"] for learned in spied.learned] == ["bpe"]
    rates = [16**-0.5 * i * 4000**-1.5 for i in (1, 2, 3)]
    assert_is_adam(model.optimizer, rates, clip_norm=None)


def test_float16_scales_the_loss_and_xla_can_be_turned_off(start_training, spied):
    values = {
        "training.mixed_precision": "mixed_float16",
        "training.clip_norm": 0.5,
        "training.jit_compile": False,
    }
    model = start_training(config_of(values)).model
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert model.optimizer.inner_optimizer.global_clipnorm == 0.5
    assert spied.compiled == [False]


@pytest.mark.parametrize(
    "schedule, peak, later",
    [
        ("inverse_square_root", 0.01, 1 / 2),
        ("noam", (16 * 4) ** -0.5, 1 / 2),
        ("linear", 0.01, 1 / 4),
        ("cosine", 0.01, (1 + np.cos(0.75 * np.pi)) / 2),
    ],
)
def test_the_schedule_falls_after_its_warm_up(schedule, peak, later):
    config = config_of(
        {
            "training.schedule": schedule,
            "training.warmup_steps": 4,
            "training.peak_learning_rate": 0.01,
            "training.max_steps": 20,
        }
    )
    optimizer = make_optimizer(config.training, schedule_of(config.training, d_model=16))
    rates = []
    for step in (3, 15):  # counted from 0
        optimizer.iterations.assign(step)
        rates.append(float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
    assert rates == pytest.approx([peak, peak * later])


def assert_is_adam(optimizer, learning_rates, clip_norm):
    """Takes three steps, and compares them with Adam's by NumPy, of section 5.3 of the paper.

    The gradients of some variables are so small that epsilon counts, and the norms of the three
    steps differ, so that it counts how each is clipped: as one vector of all gradients.
    """
    variables = optimizer._trainable_variables
    rng = np.random.default_rng(1)
    values = [np.array(keras.ops.convert_to_numpy(v), "float64") for v in variables]
    means = [np.zeros(v.shape) for v in values]
    squares = [np.zeros(v.shape) for v in values]
    for step, rate in enumerate(learning_rates, start=1):
        gradients = [
            rng.normal(scale=3.0 ** (step + i % 3), size=v.shape) for i, v in enumerate(values)
        ]
        if clip_norm is None:
            gradients[-1] *= 1e-11
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in gradients])
        if clip_norm is not None:
            norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
            assert norm > clip_norm
            gradients = [g * clip_norm / norm for g in gradients]
        means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients, strict=True)]
        squares = [0.98 * s + 0.02 * g**2 for s, g in zip(squares, gradients, strict=True)]
        factor = rate * np.sqrt(1 - 0.98**step) / (1 - 0.9**step)
        moves = [factor * m / (np.sqrt(s) + 1e-9) for m, s in zip(means, squares, strict=True)]
        values = [v - move for v, move in zip(values, moves, strict=True)]
        for variable, value, move in zip(variables, values, moves, strict=True):
            found = keras.ops.convert_to_numpy(variable)
            # float32 rounds weights of about 1
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-3 * np.abs(move).max())


# === Tokenizers ===


def test_separate_tokenizers_go_to_their_sides(start_training, spied, corpus):
    started = start_training(config_of({"tokenizer.shared": False, "tokenizer.vocab_size": 80}))
    source, target = spied.learned
    assert (list(source["sentences"]), list(target["sentences"])) == (corpus.source, corpus.target)
    for owner in (started.batches, started.valid_batches):
        tokenizers = owner._tokenizers
        assert tokenizers[0].pieces != tokenizers[1].pieces
        assert tokenizers == (started.bleu.tokenizer, started.bleu.target_tokenizer)
    for tokenizer, sentences in zip(tokenizers, (corpus.source, corpus.target), strict=True):
        assert not np.any(tokenizer.encode(sentences).flat_values.numpy() == 1)  # unknown


def test_a_tokenizer_file_takes_the_place_of_learning(start_training, spied, tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    started = start_training(config_of({"tokenizer.model": str(tmp_path / "tokenizer.model")}))
    assert spied.learned == []
    assert started.batches._tokenizers[0].pieces == tokenizer.pieces


def test_word_pieces(start_training, monkeypatch, corpus, tokenizer):
    """Learned in the tokenizer's own tests: it takes seconds."""
    from keras_transformer.tokenizers import WordPieceTokenizer

    learned = []

    def learn(sentences, vocab_size):
        learned.append((list(sentences), vocab_size))
        return tokenizer

    monkeypatch.setattr(WordPieceTokenizer, "train", learn)
    started = start_training(config_of({"tokenizer.kind": "wordpiece"}))
    assert learned == [([*corpus.source, *corpus.target], 150)]
    assert started.batches._tokenizers == (tokenizer, tokenizer)


# === Data ===


def test_files_to_train_and_validate_on(start_training, files, corpus, tmp_path):
    valid = {}
    for side, sentence in (("source", corpus.source[3]), ("target", corpus.target[3])):
        valid[side] = tmp_path / f"valid.{side}"
        valid[side].write_text(f"{sentence}\n", encoding="utf-8")
    started = start_training(config_of({**files, "data.valid": [valid]}), corpora=None)
    assert started.batches.summary.num_pairs == len(corpus)
    assert started.valid_batches.summary.num_pairs == 1
    assert (started.bleu.source, started.bleu.references) == (
        corpus.source[3:4],
        corpus.target[3:4],
    )


@pytest.mark.parametrize(
    "values, num_held_out",
    [
        ({"data.validation_share": 0.2}, 6),
        ({"data.validation_share": 0.5, "data.validation_limit": 4}, 4),
    ],
)
def test_pairs_are_held_out(start_training, files, corpus, values, num_held_out):
    started = start_training(config_of({**files, **values, "training.seed": 17}), corpora=None)
    _, expected = corpus.split(values["data.validation_share"], num_held_out, seed=17)
    assert started.bleu.source == expected.source and len(expected) == num_held_out
    assert started.bleu.references == expected.target
    assert started.batches.summary.num_pairs == len(corpus) - num_held_out


def test_a_data_set_by_name(start_training, monkeypatch, corpus):
    from keras_transformer.training import translation_task

    names = []

    def from_tfds(name):
        names.append(name)
        return corpus, corpus.split(0.1, 9, 1)[1]

    monkeypatch.setattr(translation_task, "from_tfds", from_tfds)
    started = start_training(config_of({"data.dataset": "tfds:some/pairs"}), corpora=None)
    assert names == ["some/pairs"]
    assert started.batches.summary.num_pairs == len(corpus)
    assert started.valid_batches.summary.num_pairs == 3


# === Seeds ===


def test_the_seed_draws_the_weights(start_training, tokenizer):
    from keras_transformer.runs.load import build_model

    config = config_of({"training.seed": 17})
    model = start_training(config).model
    keras.utils.set_random_seed(17)
    same = build_model(config, tokenizer, tokenizer)
    keras.utils.set_random_seed(18)
    other = build_model(config, tokenizer, tokenizer)
    for weight, expected in zip(model.get_weights(), same.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert not np.array_equal(model.get_weights()[0], other.get_weights()[0])


def test_validation_text_without_spaces_is_told_its_tokenizer(start_training, corpus):
    unspaced = ParallelCorpus.from_pairs([("A dog runs.", "一只狗在雪地里奔跑。")])
    lines = start_training(config_of({}), corpora=(corpus, unspaced)).lines
    assert any("Choose zh for Chinese" in line for line in lines)


def test_an_unknown_tokenizer_of_bleu_is_refused_before_one_is_learned(spied, tmp_path, corpus):
    config = config_of({"training.bleu_tokenizer": "moses"})
    with pytest.raises(ValueError, match="Received: tokenize='moses'"):
        train(config, tmp_path / "run", corpora=(corpus, corpus), write=lambda line: None)
    assert spied.learned == [] and not (tmp_path / "run").exists()


# === Model ===

MODEL = {
    "num_layers": 1,
    "num_decoder_layers": 2,
    "d_model": 12,
    "ff_dim": 20,
    "num_heads": 3,
    "dropout": 0.37,
    "normalize_first": True,
    "activation": "gelu",
    "positions": "learned",
    "position_layout": "concatenated",
    "position_base": 100.0,
    "max_length": 300,
    "share_embeddings": False,
    "scale_embeddings": False,
    "tie_output": False,
    "output_bias": True,
    "layer_norm_epsilon": 1e-5,
    "attention": {"name": "local", "window": 3},
    "decoder_attention": {"name": "block", "block_size": 4},
    "cross_attention": {"name": "dense"},
    "attention_dropout": 0.11,
    "ff_dropout": 0.12,
    "word_dropout": 0.13,
}


class Another(Transformer):
    """A model of another name."""


def test_the_named_model_is_trained(start_training, monkeypatch):
    monkeypatch.setitem(MODELS, "another", Another)
    assert type(start_training(config_of({"model.name": "another"})).model) is Another
    divided = {"model.name": "another", "training.gradient_accumulation_steps": 2}
    assert isinstance(start_training(config_of(divided)).model, Another)


def test_every_argument_of_the_model_reaches_it(start_training):
    parameters = inspect.signature(Transformer.__init__).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert MODEL.keys() == defaults.keys() - {"target_vocab_size"}
    assert all(value != defaults[name] for name, value in MODEL.items())
    model = start_training(
        config_of({f"model.{name}": value for name, value in MODEL.items()})
    ).model
    config = model.get_config()
    assert {name: config[name] for name in MODEL} == MODEL


def test_batches_are_asked_for_that_divide_into_the_parts_of_all_replicas():
    asked = []

    class Batches:
        failure = None

        def dataset(self, row_multiple, **others):
            asked.append(row_multiple)
            if len(asked) == 2:  # those of the validation come first
                raise InterruptedError

    training = TrainingConfig(gradient_accumulation_steps=2)
    state = types.SimpleNamespace(step=0, epoch=0, index=0, in_validation=False)
    uninterrupted = types.SimpleNamespace(signal_number=None)
    saver = types.SimpleNamespace(limit=None, state=state, interruption=uninterrupted)
    devices = types.SimpleNamespace(num_replicas=3, dataset=lambda dataset: dataset)
    with pytest.raises(InterruptedError):
        training_loop.fit(None, Batches(), Batches(), training, saver, [], devices)
    assert asked == [6, 6]


def test_a_model_without_blocks_cannot_be_rematerialized(tmp_path, corpus):
    config = config_of({"training.rematerialize": True, "tokenizer.vocab_size": 150})
    config = dataclasses.replace(config, model={"name": "rnn_seq2seq"})
    with pytest.raises(ValueError, match="rematerialize=true, model.name=rnn_seq2seq"):
        train(config, tmp_path / "run", corpora=(corpus, corpus), write=lambda line: None)
    assert not (tmp_path / "run").exists()


def test_r_drop_without_dropout_is_refused(tmp_path, corpus):
    config = config_of({"model.dropout": 0.0, "training.r_drop": 2.0})
    with pytest.raises(ValueError, match="Received: training.r_drop=2 and no dropout"):
        train(config, tmp_path / "run", corpora=(corpus, corpus), write=lambda line: None)
    assert not (tmp_path / "run").exists()
