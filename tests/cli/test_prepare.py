"""`keras-transformer prepare`, whose library is in tests/training/test_prepare.py."""

import sys
import types

import pytest

from keras_transformer import cli


@pytest.fixture
def prepared(calls, monkeypatch):
    """The list of calls of the library's function."""
    prepared = []
    module = types.SimpleNamespace(prepare=lambda *arguments: prepared.append(arguments))
    monkeypatch.setitem(sys.modules, "keras_transformer.training.prepare", module)
    return prepared


def test_the_text_of_a_file_is_prepared(prepared, tmp_path):
    path, table = tmp_path / "mine.yaml", tmp_path / "pairs.tsv"
    table.write_text("a\tb\n")
    path.write_text(f"data: {{train: [{{tsv: {table}}}]}}\n")
    arguments = ["prepare", str(path), "--output", str(tmp_path / "out")]
    assert cli.main([*arguments, "--set", "tokenizer.vocab_size=99"]) == 0
    ((config, output),) = prepared
    assert config.data.train[0].tsv == str(table) and config.tokenizer.vocab_size == 99
    assert output == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("data: {train: [{tsv: none}]}", "Expected a file to read. Received: none: No such file"),
        ("data: {trains: []}", "Did you mean train?"),
        (None, "Expected a readable configuration file"),
    ],
)
def test_bad_settings_are_refused_before_keras_starts(
    prepared, calls, tmp_path, content, message, error_of
):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content)
    assert message in error_of(2, ["prepare", str(path), "--output", str(tmp_path / "out")])
    assert calls == prepared == [] and not (tmp_path / "out").exists()
