"""The recipes of the papers: found by either name, complete, and run from end to end."""

import dataclasses
import gzip
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import keras_transformer
from keras_transformer import cli
from keras_transformer.config import Config, presets
from keras_transformer.config.presets import PRESETS, RECIPES

# What a test changes of a recipe: the sizes, not the kind of model, training or data.
TINY = [
    "model.num_layers=1",
    "model.d_model=8",
    "model.ff_dim=16",
    "model.num_heads=2",
    "tokenizer.vocab_size=150",
    "training.batch_tokens=400",
    "training.checkpoint_every=1",
    "training.max_steps=1",
    "decoding.max_length=2",
]
BASE = dict(d_model=512, ff_dim=2048, num_heads=8, dropout=0.1)
BIG = dict(d_model=1024, ff_dim=4096, num_heads=16)
# table 3 and sections 5.1, 5.2 and 6.1 of Vaswani et al., 2017: the model, the vocabulary, the
# steps, and the checkpoints that are averaged
OF_THE_PAPER = {
    "wmt14-en-de-base": (BASE, 37_000, 100_000, 5),
    "wmt14-en-de-big": ({**BIG, "dropout": 0.3}, 37_000, 300_000, 20),
    "wmt14-en-fr-base": (BASE, 32_000, 100_000, 5),
    "wmt14-en-fr-big": ({**BIG, "dropout": 0.1}, 32_000, 300_000, 20),
}


def test_every_file_has_a_name():
    files = (pathlib.Path(presets.__file__).parent / "recipes").glob("*")
    assert sorted(path.name for path in files) == sorted(f"{name}.yaml" for name in RECIPES)
    assert set(RECIPES) <= set(PRESETS)


@pytest.mark.parametrize("name", RECIPES)
def test_the_preset_and_the_file_are_one_recipe(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where there is no directory `recipes`
    config = Config.from_preset(name)
    assert Config.load(f"recipes/{name}.yaml") == config
    assert Config.load(pathlib.Path("recipes", f"{name}.yaml")) == config
    assert config.data.names_training_text


def test_a_file_of_the_users_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "ted-pt-en.yaml").write_text("training: {seed: 7}\n")
    assert Config.load("recipes/ted-pt-en.yaml") == Config().override(["training.seed=7"])
    assert Config.from_preset("ted-pt-en").training.seed == 1


@pytest.mark.parametrize(
    "path", ["ted-pt-en.yaml", "recipes/ted-pt-en", "recipes/tiny.yaml", "other/ted-pt-en.yaml"]
)
def test_other_paths_name_no_recipe(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"Received: {path}: No such file") as error:
        Config.load(path)
    is_told = "recipes/ted-pt-en.yaml, recipes/multi30k-en-de.yaml" in str(error.value)
    assert is_told == path.startswith("recipes/")


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_settings_of_the_paper(name):
    model, vocab_size, steps, num_averaged = OF_THE_PAPER[name]
    config = Config.from_preset(name)
    assert config.model == {**model, "num_layers": 6, "normalize_first": False}
    assert config.tokenizer.vocab_size == vocab_size and config.tokenizer.model_type == "bpe"
    training = config.training
    assert (training.max_steps, training.keep_checkpoints) == (steps, num_averaged)
    assert (training.batch_tokens, training.label_smoothing) == (25_000, 0.1)
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (4, 0.6)
    assert config.decoding.length_normalization == "gnmt"


STEPS = np.array([1, 2, 1000, 3999, 4000, 4001, 25_000, 100_000, 300_000])


def rates_of(name):
    """Returns the learning rates of a recipe at `STEPS`, which count from 1."""
    from keras_transformer.training.schedules import schedule_of

    config = Config.from_preset(name)
    schedule = schedule_of(config.training, config.model["d_model"])
    return [float(schedule(step - 1)) for step in STEPS]


def equation_3(d_model):
    return d_model**-0.5 * np.minimum(STEPS**-0.5, STEPS * 4000**-1.5)


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_learning_rate_of_equation_3(name):
    rates = rates_of(name)
    np.testing.assert_allclose(rates, equation_3(OF_THE_PAPER[name][0]["d_model"]), rtol=1e-5)
    assert rates[4] == max(rates)


def test_the_learning_rate_of_fairseq():
    """`--lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000` of its IWSLT14 example."""
    expected = 5e-4 * np.minimum(STEPS / 4000, (4000 / STEPS) ** 0.5)
    np.testing.assert_allclose(rates_of("iwslt14-de-en"), expected, rtol=1e-5)


def test_the_learning_rate_of_the_tutorial():
    """`CustomSchedule` of TensorFlow's tutorial, with its width of 128."""
    np.testing.assert_allclose(rates_of("ted-pt-en"), equation_3(d_model=128), rtol=1e-5)


@pytest.fixture
def text(tmp_path, sentence_pairs, monkeypatch):
    """A working directory with the files that recipes name, and TFDS's mock for the others.

    Returns the sentences of each language, which begin with its name. The text for validation has
    the same, in reverse order.
    """
    import tensorflow as tf
    import tensorflow_datasets

    monkeypatch.chdir(tmp_path)
    english, german = zip(*sentence_pairs, strict=True)
    sides = {
        language: [f"{language.upper()} {sentence}" for sentence in side]
        for language, side in (("en", english), ("de", german), ("fr", german), ("pt", german))
    }
    for language, side in sides.items():
        for split, order in (("train", 1), ("valid", -1), ("val", -1)):
            content = "\n".join(side[::order]).encode() + b"\n"
            pathlib.Path(f"{split}.{language}").write_bytes(content)
            pathlib.Path(f"{split}.{language}.gz").write_bytes(gzip.compress(content))

    def as_dataset(builder, *, split, **_):
        order = {"train": 1, "validation": -1}[split]
        languages = builder.info.supervised_keys
        return tf.data.Dataset.from_tensor_slices({key: sides[key][::order] for key in languages})

    with tensorflow_datasets.testing.mock_data(as_dataset_fn=as_dataset):
        yield sides


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("name", RECIPES)
def test_the_text_of_a_recipe_has_the_direction_of_its_name(name, text):
    from keras_transformer.training.translation_task import read_corpora

    data = Config.from_preset(name).data
    source, target = (language for language in name.split("-") if language in text)
    train, valid = read_corpora(data, 1, lambda line: None)
    assert (train.source, train.target) == (text[source], text[target])
    assert (valid.source, valid.target) == (text[source][::-1], text[target][::-1])


def files_of(name, text):
    """Returns the source language of a recipe, and arguments that name its validation text."""
    source, target = (language for language in name.split("-") if language in text)
    return source, ["--source", f"val.{source}", "--target", f"val.{target}"]


def train_and_evaluate(name, text, capsys):
    """Trains and evaluates as the guide does, but little."""
    config = Config.from_preset(name).override(TINY)
    assert cli.main(["train", "--preset", name, "--output", "run", "--set", *TINY]) == 0
    of_backend = config.override(["training.static_shapes=0"])
    assert Config.load("run/config.yaml") == of_backend
    assert pathlib.Path("run/finished.json").exists()
    capsys.readouterr()
    _, files = files_of(name, text)
    assert cli.main(["evaluate", "run", *files, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0 <= scores["BLEU"]["score"] <= 100 and 0 <= scores["chrF2"]["score"] <= 100
    assert f"|tok:{config.training.bleu_tokenizer}|" in scores["BLEU"]["signature"]


IN_THE_DEFAULT_SUITE = "iwslt14-de-en"  # the parts that others have of their own are tested above


def test_a_recipe_trains_and_is_evaluated(text, capsys, first_checks):
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)  # to trace takes longer than a few steps
    try:
        train_and_evaluate(IN_THE_DEFAULT_SUITE, text, capsys)
    finally:
        tf.config.run_functions_eagerly(False)


QUALITY = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "quality"


KEPT = {
    **dict.fromkeys(QUALITY.glob("linear-8192-8000-xeon*.yaml"), "multi30k-en-de"),
    QUALITY / "french" / "linear-9000-xeon.yaml": "multi30k-en-fr",
}


@pytest.mark.parametrize("path", sorted(KEPT), ids=lambda path: path.stem)
def test_the_kept_trainings_are_those_of_the_recipe(path):
    kept, recipe = Config.load(path), Config.from_preset(KEPT[path])
    names = "mixed_precision", "seed", "static_shapes"  # the last is null in a recipe
    free = {name: getattr(recipe.training, name) for name in names}
    training = dataclasses.replace(kept.training, **free)
    same = dataclasses.replace(kept, data=recipe.data, decoding=recipe.decoding, training=training)
    assert same == recipe
    assert kept.training.mixed_precision == "mixed_bfloat16"


@pytest.mark.slow
def test_the_benchmark_times_a_step_of_a_recipe():
    side = pathlib.Path(__file__).parents[2] / "benchmarks" / "recipes_side.py"
    command = [sys.executable, side, "multi30k-en-de", "--steps", "1", "--part-tokens", "4096"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = json.loads(output.splitlines()[-1])
    assert result["parameters"] == 2_605_568 and result["micro_batches"] == 2
    assert len(result["cpu_seconds"]) == 1 and 0 < result["cpu_seconds"][0] < 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != IN_THE_DEFAULT_SUITE])
def test_the_other_recipes_run_from_end_to_end(name, text, capsys):
    train_and_evaluate(name, text, capsys)
    source, _ = files_of(name, text)
    assert cli.main(["translate", "run", "--input", f"val.{source}", "--output", "out"]) == 0
    translations = pathlib.Path("out").read_text().splitlines()
    assert len(translations) == len(text[source])
    translator = keras_transformer.load("run")
    assert translator.decoding == Config.from_preset(name).override(TINY).decoding
    assert translations == translator(text[source][::-1])
