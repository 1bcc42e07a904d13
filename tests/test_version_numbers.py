"""Which directory names are version numbers."""

import pytest

from keras_transformer.version_numbers import HIGHEST_VERSION, version_number, versions_in


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
    assert versions_in(tmp_path / "missing") == {}
