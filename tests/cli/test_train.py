"""`keras-transformer train`: which settings reach the library, and what is refused."""

import os
import sys
import types

import pytest

from keras_transformer import cli
from keras_transformer.config import Config, CorpusConfig


@pytest.fixture
def trained_config(calls):
    """Returns a function that runs `train` and returns the settings the library was given."""

    def trained_config(arguments):
        del calls[:]
        assert cli.main(["train", *arguments]) == 0
        (start, (name, (config, _), _)) = calls
        assert (start, name) == ("keras", "train")
        return config

    return trained_config


@pytest.fixture
def pair(write_files):
    """The flags of two training files."""
    source, target = write_files(source="a\n", target="b\n")
    return ["--source-train", source, "--target-train", target]


def test_train_passes_flags_and_settings_on(calls, pair, tmp_path, trained_config):
    output = str(tmp_path / "run")
    flags = ["--max-steps", "7", "--max-minutes", "1.5", "--seed", "3", "--deterministic"]
    sets = ["--set", "data.max_length=99", "training.patience=0", "--set", "decoding.beam_size=5"]
    devices = ["--strategy", "mirrored"]
    arguments = [*pair, "--output", output, "--init-from", "other", *devices, *flags, *sets]
    config = trained_config(arguments)
    assert calls[1][1][1] == output
    assert calls[1][2] == {"init_from": "other", "strategy": "mirrored"}
    expected = [f"data.train=[{{source: {pair[1]}, target: {pair[3]}}}]"]
    expected += ["training.max_steps=7", "training.max_minutes=1.5", "training.seed=3"]
    expected += ["training.deterministic=true", *sets[1:3], sets[4]]
    assert config == Config.from_preset("tiny").override(expected)


def test_the_preset_is_tiny_unless_a_file_or_a_run_says_more(
    calls, pair, tmp_path, write_files, trained_config
):
    output = str(tmp_path / "run")
    arguments = [*pair, "--output", output]
    assert trained_config(arguments).model["d_model"] == 128
    assert trained_config([*arguments, "--preset", "big"]).model["d_model"] == 1024
    (path,) = write_files(mine="model: {d_model: 60}\n")
    assert trained_config([*arguments, "--config", path]).model == {"d_model": 60}
    both = trained_config([*arguments, "--config", path, "--preset", "big"])
    assert both.model == {**Config.from_preset("big").model, "d_model": 60}
    os.mkdir(output)
    Config.from_preset("base").override(["training.seed=5"]).save(output + "/config.yaml")
    again = trained_config([*arguments, "--max-steps", "9"])
    assert (again.model["d_model"], again.training.seed, again.training.max_steps) == (512, 5, 9)


def test_the_search_of_the_run_to_start_from_is_taken_over(
    calls, pair, tmp_path, write_files, trained_config
):
    other, output = tmp_path / "other", tmp_path / "run"
    other.mkdir()
    marian = ["decoding.length_normalization=length", "decoding.keep_beam_full=true"]
    found = Config.from_preset("rnn").override(
        [*marian, "decoding.beam_size=6", "decoding.shortlist=20", "training.seed=8"]
    )
    found.save(other / "config.yaml")
    arguments = [*pair, "--output", str(output), "--init-from", str(other)]
    sets = ["--set", "decoding.length_penalty=1", "training.seed=3"]
    tiny = Config.from_preset("tiny")
    files = [f"data.train=[{{source: {pair[1]}, target: {pair[3]}}}]"]
    # all of the search, nothing else; the training makes the lexicon of the shortlist
    changed = [*files, *marian, "decoding.beam_size=6", "decoding.shortlist=20"]
    assert trained_config([*arguments, *sets]) == tiny.override([*changed, *sets[1:]])
    (path,) = write_files(mine="decoding: {beam_size: 2}\n")
    decoding = trained_config([*arguments, "--config", path]).decoding
    assert (decoding.beam_size, decoding.keep_beam_full) == (2, True)
    # a preset has a search of its own, and a run that goes on keeps its own
    assert trained_config([*arguments, "--preset", "base"]).decoding == tiny.decoding
    output.mkdir()
    tiny.override(["decoding.beam_size=9"]).save(output / "config.yaml")
    decoding = trained_config(arguments).decoding
    assert (decoding.beam_size, decoding.keep_beam_full) == (9, False)


def test_train_takes_a_data_set(calls, tmp_path, trained_config):
    config = trained_config(
        ["--dataset", "tfds:ted_hrlr_translate/pt_to_en", "--output", str(tmp_path / "run")]
    )
    assert config.data.dataset == "tfds:ted_hrlr_translate/pt_to_en"


def test_train_takes_prepared_text_with_a_file_that_names_the_text(
    calls, tmp_path, write_files, trained_config
):
    (path,) = write_files(mine="data: {train: [{tsv: moved.tsv, weight: 2.0}]}\n")
    config = trained_config(
        ["--prepared", str(tmp_path), "--config", path, "--output", str(tmp_path / "run")]
    )
    assert config.data.prepared == str(tmp_path)
    assert config.data.train == (CorpusConfig(tsv="moved.tsv", weight=2.0),)


def test_text_in_a_flag_replaces_that_of_a_recipe(
    calls, pair, tmp_path, trained_config, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    data = trained_config([*pair, "--output", "run", "--preset", "wmt14-en-de-base"]).data
    assert (data.train, data.dataset) == ((CorpusConfig(source=pair[1], target=pair[3]),), None)
    data_set, recipe = "tfds:ted_hrlr_translate/pt_to_en", "recipes/iwslt14-de-en.yaml"
    data = trained_config(["--dataset", data_set, "--output", "run", "--config", recipe]).data
    # the recipe's validation text may be in other languages than the data set
    assert (data.train, data.valid, data.dataset) == ((), (), data_set)
    for name in ("x", "y"):
        (tmp_path / name).touch()
    valid = ["--source-valid", "x", "--target-valid", "y"]
    data = trained_config([*pair, *valid, "--output", "run", "--config", recipe]).data
    assert data.valid == (CorpusConfig(source="x", target="y"),)
    data = trained_config(["--train", "x", "--valid", "-", "--output", "run"]).data
    assert (data.train, data.valid) == ((CorpusConfig(tsv="x"),), (CorpusConfig(tsv="-"),))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--source-train", "none"], "Expected source and target, or tsv"),
        (["--source-train", "none", "--target-train", "none"], "Received: none: No such file"),
        (["--train", "none", "--source-train", "a"], "source=a, target=None, tsv=none"),
        (["--train", "none"], "Received: none: No such file"),
        (["--dataset", "ted"], "Expected tfds: and the name"),
        (["--dataset", "tfds:a", "--source-train", "b", "--target-train", "c"], "not from both"),
        (["--config", "recipes/ted.yaml"], "This package has recipes/wmt14-en-de-base.yaml, "),
        (["--max-steps", "0"], "Received: training.max_steps=0"),
        (["--max-minutes", "-1"], "Received: training.max_minutes=-1.0"),
        (["--init-from", "a", "--set", "model.dropout=0"], "--init-from a --set model.dropout=0"),
        (
            ["--set", "training.distill_from=a", "tokenizer.shared=false"],
            "Received: training.distill_from=a and --set tokenizer.shared=false",
        ),
        (["--prepared", ".", "--train", "b"], "Received: prepared=. and train. Leave one out"),
        (["--prepared", ".", "--dataset", "tfds:b"], "Received: prepared=. and dataset. Leave"),
        (["--prepared", "none"], "the directory of prepared text. Received: none: no such"),
        (
            ["--prepared", ".", "--set", "tokenizer.vocab_size=9"],
            "Received: data.prepared=. and --set tokenizer.vocab_size=9",
        ),
        (["--prepared", ".", "--set", "training.distill_from=a"], "no training.distill_from with"),
    ],
)
def test_train_refuses_bad_flags_before_keras_starts(calls, tmp_path, arguments, message, error_of):
    output = tmp_path / "run"
    assert message in error_of(2, ["train", "--output", str(output), *arguments])
    assert calls == [] and not output.exists()


def test_a_recipe_that_distills_does_not_once_its_runs_are_taken_out(
    calls, pair, tmp_path, write_files, trained_config, error_of
):
    (distills,) = write_files(distills="training: {distill_from: a}\n")
    train = [*pair, "--output", str(tmp_path / "run"), "--config", distills]
    own_tokens = ["--set", "tokenizer.vocab_size=99"]
    error = error_of(2, ["train", *train, *own_tokens])
    assert "training.distill_from=a and --set tokenizer.vocab_size=99" in error
    config = trained_config([*train, *own_tokens, "training.distill_from=null"])
    assert (config.training.distill_from, config.tokenizer.vocab_size) == (None, 99)


def test_train_refuses_bad_settings(calls, pair, tmp_path, error_of, write_files):
    arguments = ["train", *pair, "--output", str(tmp_path / "run")]
    error = error_of(2, [*arguments, "--set", "training.max_stepz=3"])
    assert "Did you mean max_steps?" in error
    assert "none.yaml" in error_of(2, [*arguments, "--config", "none.yaml"])
    (twice,) = write_files(twice="training: {seed: 1}\ntraining: {seed: 2}\n")
    assert "'training' a second time" in error_of(2, [*arguments, "--config", twice])
    (data,) = write_files(data="data: {valid: [{source: none.en, target: none.de}]}\n")
    assert "Received: none.en: No such" in error_of(2, [*arguments, "--config", data])
    assert calls == [] and not (tmp_path / "run").exists()


def test_a_run_goes_on_without_its_text_being_named(calls, pair, tmp_path, trained_config):
    output = str(tmp_path / "run")
    os.mkdir(output)
    config = Config.from_preset("tiny").merged({"data": dict(train=[{"tsv": "a"}])})
    config.save(output + "/config.yaml")  # of text that may be gone, as that of an ended run
    assert trained_config(["--output", output]).data == config.data


def test_a_dry_run_calls_the_library_function_of_that_name(calls, pair, tmp_path, monkeypatch):
    fake = types.SimpleNamespace(dry_run=lambda *args, **kwargs: calls.append((args, kwargs)))
    monkeypatch.setitem(sys.modules, "keras_transformer.training.dry_run", fake)
    output = str(tmp_path / "run")
    assert cli.main(["train", *pair, "--output", output, "--dry-run"]) == 0
    (_, ((_, path), options)) = calls
    assert path == output and options == {"init_from": None, "strategy": "auto"}
