"""`keras-transformer serve`: what it refuses; the server is tested in tests/serving."""

import sys

import pytest

from keras_transformer import cli


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "stable"], "Received: --label stable. Write it as stable=2."),
        (["--label", "=2"], "Expected a label and a version"),
        (["--label", f"stable={5000 * '9'}"], "Expected a label and a version"),
        (["--max-batch-size", "0"], "Expected max_batch_size to be a whole number from 1"),
        (["--request-timeout", "nan"], "Expected request_timeout to be a number above 0"),
        (["--max-rows", "1000"], "Received: max_rows=1000, max_queued=512"),
        ([], "no such directory"),
    ],
)
def test_serve_refuses_bad_flags_before_anything_is_loaded(flags, message, error_of):
    assert message in error_of(2, ["serve", "no_directory", *flags])


@pytest.mark.parametrize("versions", ["newest", "1,", "-1"])
def test_serve_knows_versions_by_numbers(capsys, versions):
    with pytest.raises(SystemExit) as exit:
        cli.main(["serve", "no_directory", f"--versions={versions}"])
    assert exit.value.code == 2
    assert "expected latest, all, or versions such as 1,2" in capsys.readouterr().err


def test_serve_says_which_libraries_it_wants(tmp_path, monkeypatch, error_of):
    monkeypatch.setitem(sys.modules, "h11", None)
    for name in [name for name in sys.modules if name.startswith("keras_transformer.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    error = error_of(2, ["serve", str(tmp_path)])
    assert "h11" in error and 'in the clone of this package: pip install ".[serving]"' in error
    assert "keras-transformer[" not in error  # which another project has on the package index
