"""Which settings a second call of a run may change: the free ones, and no other."""

import inspect
import types
import typing
from typing import Annotated, Literal

import pytest

from keras_transformer.config import GROUPS, Config
from keras_transformer.config.settings import settings
from keras_transformer.models import MODELS, Transformer
from keras_transformer.runs.run import Run
from keras_transformer.training import train
from keras_transformer.training.start_or_resume import check_start

FREE = {
    "training.max_steps",
    "training.max_minutes",
    "training.patience",
    "training.keep_checkpoints",
    "training.gradient_accumulation_steps",
    "training.rematerialize",
    "training.jit_compile",
    "training.peak_learning_rate",
    "training.warmup_steps",
    "training.clip_norm",
    "training.samples",
}
"""When a training ends, how a step is computed where that changes nothing but rounding, what helps
a training that diverges, and what is only shown."""

BEGINNING = Config().override(
    [
        "data.train=[{source: a.en, target: a.de}, {tsv: b.tsv}]",
        "model.d_model=16",
        "model.num_heads=2",
        "training.clip_norm=1",
    ]
)

OTHER_MODEL = {
    "num_layers": 5,
    "num_decoder_layers": 5,
    "d_model": 32,
    "ff_dim": 5,
    "num_heads": 4,
    "dropout": 0.5,
    "normalize_first": True,
    "activation": "gelu",
    "positions": "learned",
    "position_layout": "concatenated",
    "position_base": 100.0,
    "max_length": 5000,
    "share_embeddings": False,
    "scale_embeddings": False,
    "tie_output": False,
    "output_bias": True,
    "layer_norm_epsilon": 1e-5,
    "attention": "local",
    "decoder_attention": "ssru",
    "cross_attention": "linear",
    "attention_dropout": 0.1,
    "ff_dropout": 0.1,
    "word_dropout": 0.1,
}


def another(annotation, value):
    """Returns a value that a setting may have in place of `value`."""
    origin, choices = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return [{"tsv": "another"}]
    if annotation is bool:
        return not value
    if annotation is str:
        return f"{value}-other"
    if origin is Annotated:
        return 2 * value + 1 if choices[0] is int else value / 2 + 0.125
    if origin is Literal:
        return next(choice for choice in choices if choice != value)
    if value is None:  # of a setting that may be null
        first = choices[0]
        return another(first, {bool: False, str: "an"}.get(first, 1))
    return another(choices[0], value)


def changes():
    """Yields each setting by its whole name, with another value than the run's."""
    for group in ("data", "tokenizer", "training"):
        for key, setting in settings(GROUPS[group]).items():
            value = another(setting.annotation, getattr(getattr(BEGINNING, group), key))
            yield f"{group}.{key}", value
    for parameter in inspect.signature(Transformer.__init__).parameters.values():
        name = parameter.name
        if parameter.default is not parameter.empty and name != "target_vocab_size":
            yield f"model.{name}", OTHER_MODEL[name]


CHANGES = {**dict(changes()), "data.temperature": 5.0}
NEEDED = {
    "data.dataset": {"dataset": "tfds:an/other", "train": []},
}
"""What else must change for a change to be allowed at all."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a run that has its settings, and nothing else yet."""
    run = Run(tmp_path_factory.mktemp("runs") / "run")
    run.path.mkdir()
    BEGINNING.save(run.config_path)
    return run


def changed(name):
    """Returns the settings of the run with another value of one."""
    group, key = name.split(".")
    return BEGINNING.merged({group: {key: CHANGES[name], **NEEDED.get(name, {})}})


KEPT = CHANGES.keys() - FREE - {"data.prepared"}  # in test_prepare.py


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_setting_that_makes_another_run_is_refused(run, name):
    with pytest.raises(
        ValueError, match=r"Expected the settings of the run in .*Received"
    ) as error:
        train(changed(name), run.path, write=lambda line: None)
    received = str(error.value).partition("Received: ")[2]
    assert received.startswith((f"{name}=", *(f"data.{key}=" for key in NEEDED.get(name, ()))))
    assert run.load_config() == BEGINNING


MOVED = BEGINNING.override(["data.train=[{tsv: c.tsv}, {source: b.en, target: b.de}]"])


def test_another_mixture_makes_another_run(run):
    for text in ("[{tsv: a, weight: 2}, {tsv: b}]", "[{tsv: a, tag: '>>a<<'}, {tsv: b}]"):
        with pytest.raises(ValueError, match="Expected the settings of the run.*data.train"):
            run.check_same(BEGINNING.override([f"data.train={text}"]))


@pytest.mark.parametrize("name", sorted(FREE) + ["the place of the text"])
def test_limits_and_the_place_of_the_text_may_change(run, name):
    config = changed(name) if name in FREE else MOVED
    devices = types.SimpleNamespace(check=lambda training: None)
    assert config != BEGINNING
    assert check_start(config, run, None, devices, print) == (config, None)


def test_the_file_of_alignments_may_move(run, monkeypatch):
    guided = BEGINNING.override(["training.guided_alignment=links"])
    monkeypatch.setattr(Run, "load_config", lambda self: guided)
    run.check_same(BEGINNING.override(["training.guided_alignment=moved/links"]))
    for other in ("null", "lexicon"):
        with pytest.raises(ValueError, match="training.guided_alignment='a file'. Received"):
            run.check_same(BEGINNING.override([f"training.guided_alignment={other}"]))


def test_the_name_of_the_default_model_may_be_left_out_or_given(run):
    assert "name" not in BEGINNING.model
    run.check_same(BEGINNING.merged({"model": {"name": "transformer"}}))


def test_another_model_is_refused(run, monkeypatch):
    monkeypatch.setitem(MODELS, "another", Transformer)
    with pytest.raises(ValueError, match=r"model.name='transformer'. Received: model.name='anot"):
        run.check_same(BEGINNING.merged({"model": {**BEGINNING.model, "name": "another"}}))


def test_the_search_stays_that_of_the_run(run):
    """`tune-decoding` may have chosen it."""
    config = BEGINNING.merged({"decoding": {"beam_size": 1}, "training": {"max_steps": 99}})
    lines, devices = [], types.SimpleNamespace(check=lambda training: None)
    config, finished = check_start(config, run, None, devices, lines.append)
    assert (config.decoding, config.training.max_steps) == (BEGINNING.decoding, 99)
    assert finished is None and "decoding stay those of the run" in lines[0]
