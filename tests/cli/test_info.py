"""`keras-transformer info`."""

import platform
import re

import numpy as np
import pytest

from keras_transformer import __version__, cli
from keras_transformer.config import Config, DataConfig, TokenizerConfig
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.data.shards import Manifest, Shard, write_shard


def lines_of(text):
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def test_it_names_versions_devices_and_what_a_run_is(tmp_path, capsys):
    Config.from_preset("tiny").override(["data.train=[{tsv: /home/me/secret.tsv}]"]).save(
        tmp_path / "config.yaml"
    )
    assert cli.main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = lines_of(text)
    assert lines["keras-transformer"] == __version__
    assert lines["python"] == platform.python_version()
    assert re.fullmatch(r"\d+ of \d+, .+", lines["cores"]) and "cpu:0" in lines["devices"]
    assert lines["run"] == "no checkpoint" and "d_model=128" in lines["model"]
    assert "secret" not in text


def test_it_says_what_prepared_text_is(tmp_path, capsys):
    pairs = RaggedIds(np.array([5, 3], "int32"), [2])
    manifest = Manifest(
        data=DataConfig(train=[{"tsv": "/home/me/secret.tsv"}]),
        tokenizer=TokenizerConfig(vocab_size=99),
        tokenizers="of two",
        sizes=[4],
        num_blank=1,
        num_long=2,
        validation="",
        shards=[write_shard(tmp_path, 0, Shard(pairs, pairs, np.zeros(1, "int32")), 1)],
    )
    manifest.save(tmp_path)
    assert cli.main(["info", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    lines = lines_of(text)
    assert "1 pair" in lines["prepared"] and lines["shards"] == "1"
    assert lines["checksum"] == manifest.checksum() and "vocab_size=99" in lines["tokenizer"]
    assert "secret" not in text


@pytest.mark.parametrize("argument", ["--version", "info"])
def test_the_version_of_the_package(argument, capsys):
    try:
        assert cli.main([argument]) == 0
    except SystemExit as ended:
        assert ended.code == 0
    assert __version__ in capsys.readouterr().out.splitlines()[0]


def test_a_directory_of_something_else_is_refused(tmp_path, error_of):
    assert "which is none of them. Check the name" in error_of(2, ["info", str(tmp_path)])
