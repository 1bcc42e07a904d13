"""`keras-transformer export`."""

from keras_transformer import cli
from keras_transformer.config import DecodingConfig


def test_export_prints_the_new_version(calls, run_directory, capsys):
    flags = ["--n-best", "2", "--version", "3", "--split-sentences"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    name, (translator, directory), keywords = calls[1]
    assert (name, translator.model, directory) == ("export", "model", "models")
    assert keywords == {"n_best": 2, "version": 3, "split_sentences": True}
    assert capsys.readouterr().out == "models/3\n"


def test_another_format_has_its_own_function_and_flags(calls, run_directory, error_of, capsys):
    flags = ["--format", "ctranslate2", "--weights", "int8"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    name, (translator, directory), keywords = calls[1]
    assert (name, translator.model, directory) == ("ctranslate2", "model", "models")
    assert keywords == {"n_best": 1, "version": None, "weights": "int8"}
    assert capsys.readouterr().out == "models/3\n"
    calls.clear()
    error = error_of(2, ["export", run_directory, "models", *flags, "--split-sentences"])
    assert "Received: --format ctranslate2. Leave one of them out." in error
    assert calls == []  # refused before anything is loaded


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
