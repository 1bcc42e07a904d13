import dataclasses
import inspect
import json
import math
import pathlib

import pytest
import yaml

from keras_transformer import config as config_module
from keras_transformer.config import (
    GROUPS,
    Config,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_transformer.config.presets import MODEL_PRESETS
from keras_transformer.config.settings import settings
from keras_transformer.config.yaml import parse_yaml, to_yaml
from keras_transformer.models import MODELS, Transformer
from keras_transformer.models.from_config import check_model_settings, model_class_of

OTHER_VALUES = {
    "data.train": (
        CorpusConfig(source="some: [dir]/train.en", target="train.de.gz"),
        CorpusConfig(tsv="-", max_pairs=7, weight=0.5, tag=">>de<<", tag_from="x"),
    ),
    "data.valid": (CorpusConfig(source="val.en", target="val.de"),),
    "data.temperature": 5.0,
    "data.max_length": 64,
    "data.validation_share": 0.05,
    "data.validation_limit": 300,
    "tokenizer.kind": "sentencepiece",
    "tokenizer.model_type": "unigram",
    "tokenizer.vocab_size": 777,
    "tokenizer.shared": False,
    "tokenizer.sampling": 0.1,
    "tokenizer.normalization": "nfkc",
    "tokenizer.byte_fallback": True,
    "tokenizer.user_symbols": ">>de<< >>fr<<",
    "training.batch_tokens": 100,
    "training.max_steps": 11,
    "training.max_minutes": 1.5,
    "training.schedule": "inverse_square_root",
    "training.peak_learning_rate": 0.003,
    "training.warmup_steps": 13,
    "training.label_smoothing": 0.0,
    "training.r_drop": 5.0,
    "training.distill_share": 0.9,
    "training.freeze": "encoder decoder/block_0",
    "training.lora_rank": 4,
    "training.guided_alignment": "lexicon",
    "training.guided_alignment_weight": 0.1,
    "training.clip_norm": 1.0,
    "training.ema": 0.99,
    "training.checkpoint_every": 5,
    "training.keep_checkpoints": 3,
    "training.patience": 0,
    "training.bleu_tokenizer": "none",
    "training.samples": 2,
    "training.seed": 17,
    "training.deterministic": True,
    "training.mixed_precision": "mixed_bfloat16",
    "training.static_shapes": 3,
    "training.gradient_accumulation_steps": 4,
    "training.rematerialize": True,
    "training.jit_compile": True,
    "decoding.beam_size": 7,
    "decoding.length_penalty": 0.0,
    "decoding.length_normalization": "length",
    "decoding.max_length": 19,
    "decoding.max_source_length": 23,
    "decoding.min_length": 3,
    "decoding.no_repeat_ngram": 5,
    "decoding.repetition_penalty": 1.2,
    "decoding.shortlist": 24,
    "decoding.keep_beam_full": True,
}
"""A value other than the default for each setting but three, which exclude others of them."""


def value_of(config, name):
    group, key = name.split(".")
    return getattr(getattr(config, group), key)


def test_set_reaches_every_setting():
    assignments = [f"{name}={_as_typed(value)}" for name, value in OTHER_VALUES.items()]
    config = Config().override(assignments)
    for name, value in OTHER_VALUES.items():
        assert value_of(config, name) == value, name
        assert type(value_of(config, name)) is type(value), name
    config = Config().override(
        ["data.dataset=tfds:a/b", "tokenizer.model=2024", "training.distill_from=runs/a"]
    )
    assert (config.data.dataset, config.tokenizer.model) == ("tfds:a/b", "2024")
    assert config.training.distill_from == "runs/a"
    all_names = {
        f"{group}.{key}" for group in GROUPS if group != "model" for key in settings(GROUPS[group])
    }
    assert all_names == {
        *OTHER_VALUES,
        "data.dataset",
        "data.prepared",
        "tokenizer.model",
        "training.distill_from",
    }


def _as_typed(value):
    if isinstance(value, tuple):
        return json.dumps([dataclasses.asdict(corpus) for corpus in value])
    return str(value).lower() if isinstance(value, bool) else value


def test_saved_settings_are_loaded_equal(tmp_path):
    config = Config().override([f"{name}={_as_typed(v)}" for name, v in OTHER_VALUES.items()])
    config = config.merged({"model": {"num_heads": 2, "positions": "learned"}})
    config.save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml") == config
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_saving_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    Config().save(tmp_path / "config.yaml")
    before = (tmp_path / "config.yaml").read_text()
    monkeypatch.setattr(pathlib.Path, "write_text", _fail)
    with pytest.raises(OSError, match="disk is full"):
        Config().override(["training.seed=9"]).save(tmp_path / "config.yaml")
    assert (tmp_path / "config.yaml").read_text() == before


def _fail(*_, **__):
    raise OSError("disk is full")


def test_a_file_changes_what_it_names_and_leaves_the_base(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model:\ntraining: {max_steps: 7}\n")
    base = Config.from_preset("tiny")
    config = Config.load(path, base)
    assert config.training.max_steps == 7
    assert (
        config.training.warmup_steps == base.training.warmup_steps != TrainingConfig().warmup_steps
    )
    assert config.model == base.model
    assert Config.load(path).training == TrainingConfig(max_steps=7)


def test_an_empty_file_changes_nothing(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert Config.load(tmp_path / "empty.yaml") == Config()


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "0.001", "1.0e-3", ".001"])
def test_numbers_are_read_as_people_write_them(text):
    assert Config().override([f"training.peak_learning_rate={text}"]).training == TrainingConfig(
        peak_learning_rate=0.001
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+1", 1),
        ("1.5e3", 1500.0),
        ("-.inf", -math.inf),
        ("TRUE", True),
        ("~", None),
        ("", None),
        *((word, word) for word in ("1:30", "1_000", "0b11", "yes", "no", "on", "off", "=")),
        ("2001-01-01", "2001-01-01"),
        ("{<<: {a: 1, b: 2}, a: 3}", {"a": 3, "b": 2}),
    ],
)
def test_yaml_is_read_as_its_version_1_2_reads_it(text, value):
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


def nested_aliases(first, line):
    """A text of nine lines, each of which has the one before ten times."""
    lines = [line.format(i=i, values=",".join(10 * [f"*a{i - 1}"])) for i in range(1, 9)]
    return "\n".join([first, *lines])


@pytest.mark.parametrize(
    "text",
    [
        nested_aliases("a0: &a0 [x, y]", "a{i}: &a{i} [{values}]"),
        nested_aliases("a0: &a0 {x: 1}", "a{i}: &a{i} {{<<: [{values}]}}"),
        "a: &a [*a]",
    ],
)
def test_yaml_of_more_aliases_than_can_be_worth_it_is_refused(text):
    with pytest.raises(ValueError, match="whose aliases stand for at most 262,144 characters"):
        parse_yaml(text)


def test_yaml_is_read_up_to_a_bound():
    """A device has no end, and a text of megabytes takes minutes."""
    for read, value in ((Config.load, "/dev/zero"), (parse_yaml, "- a\n" * 2**17)):
        with pytest.raises(ValueError, match="YAML of at most 262,144 characters"):
            read(value)


@pytest.mark.parametrize("text", ["010", "1:30", "1e3", "1.5e3", "0o10", "yes", "~", "2001-01-01"])
def test_a_text_that_looks_like_a_number_is_saved_as_text(text):
    assert parse_yaml(to_yaml({"key": text})) == {"key": text}
    assert yaml.safe_load(to_yaml({"key": text})) == {"key": text}  # other programs read it too


def test_null_takes_a_setting_back():
    config = Config().override(["training.clip_norm=1", "tokenizer.model=a.model"])
    config = config.override(["training.clip_norm=null", "tokenizer.model=null"])
    assert config == Config()


def test_paths_may_be_path_objects(tmp_path):
    (corpus,) = DataConfig(train=[{"tsv": tmp_path / "a"}]).train
    assert corpus.tsv == str(tmp_path / "a")


def test_groups_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().training.max_steps = 3


@pytest.mark.parametrize("group_class", [c for c in GROUPS.values() if c is not dict])
def test_every_setting_has_a_meaning_of_one_line(group_class):
    for name, setting in settings(group_class).items():
        assert setting.meaning.endswith("."), name
        assert "\n" not in setting.meaning, name


# === Presets ===


@pytest.mark.parametrize(
    "name, model",
    [
        # Wu et al., 2021, Transformer-Tiny
        ("tiny", dict(num_layers=4, d_model=128, ff_dim=256, num_heads=4, dropout=0.3)),
        # Vaswani et al., 2017, table 3
        ("base", dict(num_layers=6, d_model=512, ff_dim=2048, num_heads=8, dropout=0.1)),
        ("big", dict(num_layers=6, d_model=1024, ff_dim=4096, num_heads=16, dropout=0.3)),
    ],
)
def test_presets_are_the_papers_models(name, model):
    assert Config.from_preset(name).model == {**model, "normalize_first": name == "tiny"}


def test_the_base_preset_is_the_constructors_default():
    from keras_transformer.models import Transformer

    parameters = inspect.signature(Transformer.__init__).parameters
    for name, value in Config.from_preset("base").model.items():
        assert parameters[name].default == value, name


def test_every_preset_file_has_a_name():
    files = (pathlib.Path(config_module.__file__).parent / "presets").glob("*.yaml")
    assert sorted(path.stem for path in files) == sorted(sum(MODEL_PRESETS.values(), ()))


def test_an_unknown_preset_names_the_known():
    with pytest.raises(ValueError, match="big, rnn, .* Received: bigg. Did you mean big?"):
        Config.from_preset("bigg")


# === What is refused ===


def changed(config, *assignments):
    """Changes settings and checks them as a training does before it begins."""
    config = config.override(assignments)
    check_model_settings(config)
    return config


@pytest.mark.parametrize(
    "assignment, message",
    [
        ("training.max_stepz=3", "max_steps, .* Received: max_stepz. Did you mean max_steps?"),
        ("training.zzz=3", "Received: zzz. Choose a known one"),
        ("trainig.max_steps=3", "data, tokenizer, model, .* trainig. Did you mean training?"),
        ("model.num_head=3", "num_layers, .* Received: num_head. Did you mean num_heads?"),
        ("model.source_vocab_size=9", "an argument of the model: .* source_vocab_size"),
        ("model.target_vocab_size=9", "an argument of the model: .* target_vocab_size"),
        ("model.attention=locl", "one of dense, local, .* Received: attention='locl'"),
        ("model.attention=null", "one of dense, local, .* Received: attention=None"),
        ("model.decoder_attention={name: ssru, units: 3}", "attention layer 'ssru'"),
        ("model.attention={name: local, width: 3}", "arguments of the attention layer 'local'"),
        ("model.cross_attention={name: linear, chunk_size: 2.5}", "Received: chunk_size=2.5"),
        ("model.num_heads=two", "a whole number. Received: model.num_heads='two'"),
        ("model.normalize_first=1", "true or false. Received: model.normalize_first=1"),
        ("training.max_steps", "group.key=value. Received: training.max_steps."),
        ("max_steps=3", "group.key=value. Received: max_steps=3."),
        ("training.max_steps=0", "from 1 to .*. Received: training.max_steps=0. Its meaning: Max"),
        ("training.max_steps=2.5", "a whole number from 1 to 2147483647. Received: .*2.5"),
        ("training.max_steps=true", "a whole number from 1 to 2147483647. Received: .*True"),
        ("training.max_steps=null", "a whole number from 1 to 2147483647. Received: .*None"),
        ("training.max_steps=[1", "a YAML value. Received: training.max_steps="),
        ("training.patience=-1", "from 0 to .*. Received: training.patience=-1"),
        ("training.max_minutes=0", "above 0 and at most 10 million or null. Received: "),
        ("training.max_minutes=1e308", "at most 10 million or null. Received: .*=1e[+]308"),
        ("training.peak_learning_rate=.inf", "a number above 0. Received: .*=inf"),
        ("training.peak_learning_rate=.nan", "a number above 0. Received: .*=nan"),
        ("training.label_smoothing=1", "from 0 to below 1. Received: training.label_smoothing=1"),
        ("training.deterministic=1", "true or false. Received: training.deterministic=1"),
        ("training.schedule=fast", "inverse_square_root or linear or cosine. Received: .*'fast'"),
        (
            "training.mixed_precision=float16",
            "mixed_bfloat16 or mixed_float16 or null. Received: .*'float16'",
        ),
        ("decoding.length_penalty=-0.1", "from 0 to 10. Received: "),
        ("decoding.length_penalty=1e308", "from 0 to 10. Received: .*=1e[+]308"),
        ("decoding.beam_size=2147483647", "from 1 to 1,000. Received: .*=2147483647"),
        ("decoding.no_repeat_ngram=2147483647", "from 0 to 100. Received: .*=2147483647"),
        ("training.seed=4294967296", "from 0 to 2147483647. Received: training.seed=4294967296"),
        ("model.num_decoder_layers=two", "a whole number or null. Received: .*='two'"),
        ("data.dataset=ted", "tfds: and the name .* Received: dataset=ted. Write it as tfds:"),
        ("data.train=a", "a list of corpora. Received: data.train='a'. Write it as"),
        ("data.train=[a]", r"the settings of a corpus. Received: 'a'.*\(data.train, corpus 1\)"),
        ("data.train=[{tsv: a}, {source: a}]", "and target, or tsv. .*=a, target=None, .*corpus 2"),
        ("data.valid=[{tsv: a, target: b}]", r"target=b, tsv=a. .*\(data.valid, corpus 1\)"),
        ("data.train=[{tvs: a}]", "Received: tvs. Did you mean tsv?"),
        ("data.train=[{tsv: a, max_pairs: 0}]", "from 1 to .*. Received: corpus.max_pairs=0"),
        ("data.train=[{tsv: a, weight: 0}]", "above 0 and at most 1,000. Received: corpus.wei"),
        ("data.valid=[{tsv: a, weight: 2}]", "in data.train only.*Received: a weight in data.val"),
        ("data.train=[{tsv: a, tag: fr}]", "tag such as >>fr<< or null. Received: corpus.tag"),
        ("data.train=[{tsv: a, tag_from: b}]", "tag_from only with a tag. Received: tag_from=b"),
        ("data.temperature=0.5", "at least 1. Received: data.temperature=0.5"),
        ("data.train=[{tsv: a}, {tsv: a, weight: 2}]", "each corpus once. Received: a twice"),
        ("data.train=[{tsv: a}, {tsv: b/.././a}]", "each corpus once. Received: b/.././a twice"),
        ("data.train=[{tsv: -}, {tsv: '-', tag: '>>a<<'}]", "Received: tsv=- more than once"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line(assignment, message):
    with pytest.raises(ValueError, match=message) as error:
        changed(Config(), assignment)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "training.max_steps",
        "training.max_minutes",
        "training.peak_learning_rate",
        "decoding.length_penalty",
        "model.d_model",
        "model.num_decoder_layers",
        "model.dropout",
    ],
)
def test_a_number_of_400_digits_is_refused(name):
    with pytest.raises(ValueError, match=f"^Expected {name.partition('.')[2]} to be .* Received: "):
        changed(Config(), f"{name}={400 * '9'}")


def test_a_number_of_400_digits_is_refused_in_an_attention_layer():
    with pytest.raises(ValueError, match="^Expected attention.window to be at most 2147483647"):
        changed(Config(), f"model.attention={{name: local, window: {400 * '9'}}}")


def test_settings_that_exclude_one_another_are_refused():
    with pytest.raises(ValueError, match="not from both. Received: train=a, dataset=tfds:b"):
        DataConfig(train=[{"tsv": "a"}], dataset="tfds:b")
    with pytest.raises(ValueError, match="kind=wordpiece, model=None, sampling=0.1. Set sampling"):
        TokenizerConfig(kind="wordpiece", sampling=0.1)
    with pytest.raises(ValueError, match="model=vocab.txt, sampling=0.1. Set sampling"):
        TokenizerConfig(model="vocab.txt", sampling=0.1)
    assert TokenizerConfig(model="vocab.model", sampling=0.1).sampling == 0.1
    with pytest.raises(ValueError, match="Received: shared=false, model=a.model. Leave one"):
        TokenizerConfig(model="a.model", shared=False)
    for other in ({"kind": "wordpiece"}, {"model": "a.model"}):
        with pytest.raises(ValueError, match="Received: user_symbols=>>de<<, kind=.* Leave it"):
            TokenizerConfig(user_symbols=">>de<<", **other)


def test_learned_positions_must_reach_as_far_as_the_texts():
    config = changed(Config(), "model.positions=learned")  # 1,024 by default
    with pytest.raises(ValueError, match="data.max_length=2000, model.max_length=1024. Lower"):
        changed(config, "data.max_length=2000")
    with pytest.raises(ValueError, match="decoding.max_length=256, model.max_length=200"):
        changed(config, "model.max_length=200")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"training: [max_steps, 3]", "Expected keys and values in the group training"),
        (b"- training", "Expected groups of settings: data, .* Received: \\['training'\\]"),
        (b"training: {max_steps: 3", "Expected YAML. Received: .*expected ',' or '}'"),
        (b"[" * 5000, "nested too deeply"),
        (b"training:\n  max_steps: \xff", "invalid start byte|unacceptable character"),
        (
            b"training: {seed: 3}\ndata:\ntraining: {max_steps: 3}",
            "'training' a second time, on line 3",
        ),
        (b"model: {num_heads: 3, num_heads: 3}", "'num_heads' a second time, on line 1"),
        (b"training: {max_steps: 1:30}", "Received: training.max_steps='1:30'"),
        (b"training: {deterministic: yes}", "Received: training.deterministic='yes'"),
        (b"training: {max_steps: " + 5000 * b"9" + b"}", "Received: one of 5,000"),
        (b"training: {max_steps: 0x" + 5000 * b"f" + b"}", "Received: one of 5,002"),
        (b"training: {max_steps: !!int many}", "expected !!int, found 'many'"),
        (b"training: {max_steps: !!timestamp many}", "timestamp"),
        (b"[]", "Expected groups of settings: data, .* Received: \\[\\]"),
        (b'data: {train: [{tsv: "a\\0b"}]}', "Expected tsv to be text"),
        (b"training: {max_steps: three}", "Received: training.max_steps='three'"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        Config.load(path)
    assert str(error.value).endswith(f"(file: {path})")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="Received: .*none.yaml: No such file"):
        Config.load(tmp_path / "none.yaml")


def test_decoding_takes_whole_numbers_for_numbers():
    assert DecodingConfig(length_penalty=1).length_penalty == 1


class Another(Transformer):
    """A model with arguments of its own."""

    def __init__(self, vocab_size, width=5, num_layers=2, **kwargs):
        raise NotImplementedError


def test_a_model_without_a_name_is_a_transformer(tmp_path):
    named = Config().merged({"model": {"name": "transformer", "num_layers": 3}})
    unnamed = Config().merged({"model": {"num_layers": 3}})
    assert model_class_of(named) is model_class_of(unnamed) is Transformer
    assert named.model_arguments == unnamed.model_arguments == {"num_layers": 3}
    named.save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml") == named


def test_an_unknown_model_names_the_known_ones():
    with pytest.raises(
        ValueError, match="the name of a model: .*transformer. Received: transformr"
    ):
        changed(Config(), "model.name=transformr")


def test_the_arguments_of_a_model_are_those_of_its_class(monkeypatch):
    monkeypatch.setitem(MODELS, "another", Another)
    config = Config().merged({"model": {"name": "another", "width": 7}})
    assert model_class_of(config) is Another and config.model_arguments == {"width": 7}
    with pytest.raises(ValueError, match="model: width, num_layers. Received: d_model"):
        changed(config, "model.d_model=8")
    with pytest.raises(ValueError, match="Expected width to be a whole number"):
        changed(config, "model.width=wide")


def test_another_model_starts_from_its_own_defaults(monkeypatch):
    monkeypatch.setitem(MODELS, "another", Another)
    preset = Config.from_preset("tiny")
    config = preset.merged({"model": {"name": "another"}})
    assert config.model == {"name": "another"}
    assert config.override(["model.num_layers=9"]).model_arguments == {"num_layers": 9}
    assert preset.merged({"model": {"name": "transformer"}}).model_arguments == preset.model


@pytest.mark.parametrize("text", ["", "null"])
def test_text_that_is_left_empty_is_none(text):
    config = Config().override(["tokenizer.model=a.model"])
    assert config.override([f"tokenizer.model={text}"]).tokenizer.model is None


@pytest.mark.parametrize(
    "name", ["data.max_length", "decoding.max_length", "decoding.max_source_length"]
)
def test_each_length_stays_within_learned_positions(name):
    model = ["model.positions=learned", "model.max_length=300"]
    check_model_settings(Config().override([*model, f"{name}=300"]))
    with pytest.raises(ValueError, match=f"Received: {name}=301, model.max_length=300"):
        check_model_settings(Config().override([*model, f"{name}=301"]))
    check_model_settings(Config().override([f"{name}=301"]))  # sinusoids go on
