"""`keras-transformer export`."""

import sys
from types import SimpleNamespace

import pytest

from keras_transformer import cli
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError


def test_export_prints_the_new_version(calls, run_directory, capsys):
    flags = ["--n-best", "2", "--version", "3", "--split-sentences"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    name, (translator, directory), keywords = calls[1]
    assert (name, translator.model, directory) == ("export", "model", "models")
    about = [run_directory], None, None, None, None
    expected = {"n_best": 2, "version": 3, "split_sentences": True, "weights": "float32"}
    assert keywords == {**expected, "about": about}
    assert capsys.readouterr().out == "models/3\n"


def test_another_format_has_its_own_function_and_flags(calls, run_directory, capsys):
    flags = ["--format", "ctranslate2", "--weights", "int8"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    name, (translator, directory), keywords = calls[1]
    assert (name, translator.model, directory) == ("ctranslate2", "model", "models")
    about = [run_directory], None, None, None, None
    assert keywords == {"n_best": 1, "version": None, "weights": "int8", "about": about}
    assert capsys.readouterr().out == "models/3\n"
    flags = ["--format", "hugging_face", "--languages", "en", "de", "--license", "cc0-1.0"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    about = [run_directory], None, None, ["en", "de"], "cc0-1.0"
    assert calls[-1][0] == "hugging_face" and calls[-1][1][1:] == ("models",)
    assert calls[-1][2] == {"version": None, "about": about}


@pytest.mark.parametrize(
    "name, flags",
    [
        ("ctranslate2", ["--split-sentences"]),
        ("ctranslate2", ["--alignment-head", "0", "0"]),
        ("hugging_face", ["--split-sentences"]),
        ("hugging_face", ["--weights", "int8"]),
        ("hugging_face", ["--n-best", "2"]),
        ("saved_model", ["--weights", "int8_float32"]),
    ],
)
def test_flags_that_a_format_does_not_have_are_refused(name, flags, calls, run_directory, error_of):
    error = error_of(2, ["export", run_directory, "models", "--format", name, *flags])
    assert f"Expected {flags[0]} with --format " in error
    assert f"Received: --format {name}. Leave one of them out." in error
    assert calls == []  # refused before anything is loaded


def test_several_runs_become_one_export(calls, run_directories, fake_translator, error_of, capsys):
    assert cli.main(["export", *run_directories, "models", "--ensemble", "log_probabilities"]) == 0
    assert calls[1][0] == "export" and calls[1][1][1] == "models"
    assert fake_translator.loaded == (run_directories, None)
    assert fake_translator.ensemble == "log_probabilities"
    assert capsys.readouterr().out == "models/3\n"
    for name in ("ctranslate2", "hugging_face"):
        error = error_of(2, ["export", *run_directories, "models", "--format", name])
        assert (
            f"Expected several runs with --format saved_model. Received: --format {name}" in error
        )


def test_flags_change_the_search_of_a_run(calls, run_directory, fake_translator):
    flags = ["--beam-size", "5", "--length-penalty", "1", "--checkpoint", "last"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    translator = calls[1][1][0]
    expected = DecodingConfig(beam_size=5, length_penalty=1.0, max_length=99)
    assert translator.decoding == expected
    assert translator.target_tokenizer == "target"
    assert fake_translator.loaded == (run_directory, "last")


def test_an_export_is_not_exported_again(calls, export_directory, error_of):
    error = error_of(2, ["export", export_directory, "models"])
    assert f"Expected the directory of a run. Received: {export_directory}: an export." in error


@pytest.mark.parametrize(
    "has_product, has_text, said",
    [
        (True, True, ""),
        (True, False, "the BLEU of int8 is not compared with that of float32: no text"),
        (False, True, "TensorFlow has no int8 product here: the export computes in float32"),
    ],
)
def test_int8_is_compared_on_the_validation_text(
    has_product, has_text, said, calls, run_directory, monkeypatch, capsys
):
    def validation_text_of_run(*_):
        if not has_text:
            raise InputError("no text")
        return SimpleNamespace(source=["a"], target=["b"])

    config = SimpleNamespace(training=SimpleNamespace(bleu_tokenizer="zh"))
    for name, functions in {
        "export.int8_products": dict(has_int8_product=lambda: has_product),
        "training.translation_task": dict(validation_text_of_run=validation_text_of_run),
        "runs.run": dict(Run=lambda path: SimpleNamespace(load_config=lambda: config)),
    }.items():
        module = SimpleNamespace(**functions)
        monkeypatch.setitem(sys.modules, f"keras_transformer.{name}", module)
    assert cli.main(["export", run_directory, "models", "--weights", "int8"]) == 0
    keywords = calls[1][2]
    given = {"validation": (["a"], ["b"]), "bleu_tokenizer": "zh"}
    found = {name: keywords[name] for name in given if name in keywords}
    assert found == (given if has_product and has_text else {})
    assert said in capsys.readouterr().err
