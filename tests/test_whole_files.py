"""Files are there whole or not at all."""

import pytest

from keras_transformer.whole_files import replacing


def test_a_file_takes_its_place_when_all_is_written(tmp_path):
    path = tmp_path / "a.weights.h5"
    path.write_text("old")
    with replacing(path) as partial:
        assert partial.suffixes[-2:] == path.suffixes  # which Keras insists on
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_stood_there_stays_if_anything_fails(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(OSError, match="disk"), replacing(path) as partial:
        partial.write_text("half")
        raise OSError("disk is full")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_was_not_there_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "a"):
        pass  # nothing was written
    assert list(tmp_path.iterdir()) == []
