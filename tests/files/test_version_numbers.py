"""Which directory names are version numbers."""

import os
import re

import pytest

from keras_transformer.files.version_numbers import (
    EXPORT_SETTINGS,
    HIGHEST_VERSION,
    is_version,
    remedy_for,
    version_number,
    versions_in,
)


@pytest.mark.parametrize(
    "text, number",
    [
        ("0", 0),
        ("12", 12),
        ("007", 7),
        ("9223372036854775807", HIGHEST_VERSION),
        ("9223372036854775808", None),
        (5000 * "9", None),  # which Python would refuse to read
        ("", None),
        ("-1", None),
        ("1.0", None),
        (" 1", None),
        ("\u0663", None),  # a digit, but none of a server's
        (".partial-1", None),
    ],
)
def test_version_number(text, number):
    assert version_number(text) == number


def test_versions_are_known_by_the_file_of_their_format(tmp_path):
    for name in (
        "1/saved_model.pb",
        "001/saved_model.pb",
        "12/model.bin",
        "3/other",
        "x/model.bin",
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / "4").touch()
    assert versions_in(tmp_path) == {1: tmp_path / "1", 12: tmp_path / "12"}
    for path in ("missing", "4", "x" * 300, "a\0b"):
        assert versions_in(tmp_path / path) == {} and not is_version(tmp_path / path)


def test_a_directory_that_must_not_be_entered_may_be_a_version(tmp_path, monkeypatch):
    for name in ("1", "2", "3"):
        (tmp_path / name).mkdir()
    (tmp_path / "1" / "model.bin").touch()
    stat, listdir = os.stat, os.listdir

    def refusing(call, path):
        if str(path).startswith(str(tmp_path / "2")):
            raise PermissionError(13, "Permission denied", str(path))
        return call(path)

    monkeypatch.setattr(os, "stat", lambda path, **_: refusing(stat, path))
    monkeypatch.setattr(os, "listdir", lambda path: refusing(listdir, path))
    assert versions_in(tmp_path) == {1: tmp_path / "1", 2: tmp_path / "2"}
    assert remedy_for(tmp_path, "Train one.") == "Train one."
    with pytest.raises(PermissionError, match="2"):
        versions_in(tmp_path / "2")


def test_the_remedy_does_not_call_a_whole_export_broken(tmp_path):
    (tmp_path / EXPORT_SETTINGS).parent.mkdir()
    (tmp_path / EXPORT_SETTINGS).touch()
    assert "has lost its model" in remedy_for(tmp_path, "Train one.")
    (tmp_path / "model.bin").touch()
    assert remedy_for(tmp_path, "Train one.") == "Train one."


@pytest.mark.parametrize(
    "files, remedy",
    [
        ({"config.json": '{"model_type": "marian"}'}, "Make a run of it: .* import {} --output"),
        ({"decoder.yml": ""}, "Make a run of it: keras-transformer import {} --output RUN"),
        (
            {"1/decoder.yml": "", "2/config.json": '{"model_type": "marian"}'},
            "OPUS-MT in {}/2. Make a run of it: keras-transformer import {}/2 --output RUN",
        ),
        ({"config.json": "{}", EXPORT_SETTINGS: "{}"}, "The export in {} has lost its model"),
        ({f"12/{EXPORT_SETTINGS}": "{}"}, "The export in {}/12 has lost its model"),
        ({"config.json": '{"model_type": "bert"}', "model.safetensors": ""}, "Train one."),
        ({"config.json": "[", "3": "a file"}, "Train one."),
        ({}, "Train one."),
    ],
)
def test_what_to_do_with_a_directory_that_is_no_run_and_no_export(files, remedy, tmp_path):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    found = remedy_for(tmp_path, "Train one.")
    assert re.search(remedy.replace("{}", re.escape(str(tmp_path))), found), found
    assert remedy_for(tmp_path / "missing", "Train one.") == "Train one."
