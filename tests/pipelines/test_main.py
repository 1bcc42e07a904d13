"""The command of the pipelines, which tells who lacks Beam what to install."""

import sys

from keras_transformer.pipelines.__main__ import main


def test_the_library_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert main(["translate", "--help"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and 'pip install "apache-beam' in error
