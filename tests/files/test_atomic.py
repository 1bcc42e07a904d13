"""Files and directories are there whole or not at all."""

import errno
import os

import pytest

from keras_transformer.files import atomic
from keras_transformer.files.atomic import (
    new_directory,
    partial_directory,
    put_in_place,
    replacing,
)


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


def test_a_directory_takes_its_place_when_all_is_written(tmp_path):
    with partial_directory(tmp_path / "new") as partial:
        (partial / "a").mkdir()
        (partial / "a" / "b").write_text("whole")
        put_in_place(partial, tmp_path / "new" / "1")
    assert os.listdir(tmp_path / "new") == ["1"]
    assert (tmp_path / "new" / "1" / "a" / "b").read_text() == "whole"


def test_a_directory_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "old").mkdir()
    for parent in (tmp_path / "old", tmp_path / "new"):
        with pytest.raises(OSError, match="disk"), partial_directory(parent) as partial:
            (partial / "a").write_text("half")
            raise OSError("disk is full")
    assert list(tmp_path.rglob("*")) == [tmp_path / "old"]


@pytest.mark.parametrize("content", ["a directory", "an empty directory", "a file"])
def test_a_name_that_is_taken_is_refused_and_its_directory_kept(tmp_path, content):
    taken = tmp_path / "1"
    taken.touch() if content == "a file" else taken.mkdir()
    if content == "a directory":
        (taken / "a").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError), partial_directory(tmp_path) as partial:
        put_in_place(partial, taken)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_that_another_process_takes_last_is_refused(tmp_path, monkeypatch):
    rename = os.rename

    def rename_too_late(source, target):
        target.mkdir()
        (target / "a").touch()
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_too_late)
    with pytest.raises(FileExistsError), partial_directory(tmp_path) as partial:
        put_in_place(partial, tmp_path / "1")
    assert os.listdir(tmp_path) == ["1"]


def test_a_directory_stands_aside_until_the_new_one_is_there(tmp_path, monkeypatch):
    path, aside = tmp_path / "1", tmp_path / "aside"
    path.mkdir()
    (path / "old").touch()
    rename, seen = os.rename, []

    def watch(source, target):
        rename(source, target)
        seen.append(sorted(entry.name for entry in tmp_path.glob("[!.]*")))

    monkeypatch.setattr(os, "rename", watch)
    with partial_directory(tmp_path) as partial:
        (partial / "new").touch()
        put_in_place(partial, path, aside)
    assert seen == [["aside"], ["1", "aside"]]
    assert [entry.name for entry in tmp_path.rglob("*")] == ["1", "new"]


@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_directory_is_filled_and_stays_the_same_one(tmp_path, is_there):
    path = tmp_path / "run"
    if is_there:
        path.mkdir(0o750)
        (path / ".partial-killed").mkdir()
        before = path.stat()
    with new_directory(path, last="b") as partial:
        (partial / "b").touch()
        (partial / "c").mkdir()
        assert partial.parent == (path if is_there else tmp_path)
    assert sorted(os.listdir(path)) == ["b", "c"] and os.listdir(tmp_path) == ["run"]
    if is_there:
        after = path.stat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_a_directory_is_filled_whole_or_not_at_all(tmp_path, monkeypatch):
    """The entry by which readers know it moves last; a signal before that brings all back."""
    moved, rename = [], os.rename

    def interrupted(source, target):
        rename(source, target)
        moved.append(target.name)
        if target == tmp_path / "a":
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), new_directory(tmp_path, last="a") as partial:
        for name in "abc":
            (partial / name).touch()
    assert sorted(moved[:2]) == ["b", "c"] and moved[2] == "a"
    assert os.listdir(tmp_path) == []


def test_a_directory_that_another_process_has_filled_is_refused(tmp_path):
    with pytest.raises(FileExistsError), new_directory(tmp_path, last="a") as partial:
        (partial / "a").touch()
        (tmp_path / "a").write_text("theirs")
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "theirs"


def test_what_killed_processes_left_goes_and_what_others_write_stays(tmp_path):
    (tmp_path / ".partial-killed" / "a").mkdir(parents=True)
    with partial_directory(tmp_path) as first, partial_directory(tmp_path) as second:
        assert first != second and first.is_dir() and second.is_dir()
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == []


def test_all_bytes_are_on_the_disk_before_the_directory_has_its_name(tmp_path, monkeypatch):
    events, rename = [], os.rename
    monkeypatch.setattr(atomic, "flush_to_disk", lambda path: events.append(path.name))
    monkeypatch.setattr(os, "rename", lambda *paths: (events.append("rename"), rename(*paths)))
    with partial_directory(tmp_path) as partial:
        (partial / "a").mkdir()
        (partial / "a" / "b").touch()
        put_in_place(partial, tmp_path / "1")
    assert events == ["a", "b", partial.name, "rename", tmp_path.name]


def test_all_bytes_are_on_the_disk_before_the_file_has_its_name_and_then_the_name(
    tmp_path, monkeypatch
):
    events, replace = [], os.replace
    monkeypatch.setattr(atomic, "flush_to_disk", lambda path: events.append(path))
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    with replacing(tmp_path / "a") as partial:
        partial.touch()
    assert events == [partial, "replace", tmp_path]


def test_a_pipe_without_a_name_is_written():
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb"):
        with atomic.replacing(f"/dev/fd/{writer}") as path:
            path.write_bytes(b"content")
        assert stream.read(7) == b"content"


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_replaced_file_keeps_its_mode_and_a_new_one_obeys_the_umask(tmp_path, umask):
    previous = os.umask(umask)
    try:
        for mode in (0o600, 0o444, None):
            path = tmp_path / f"{mode}"
            if mode is not None:
                path.touch(mode=mode)
                path.chmod(mode)
            with replacing(path) as partial:
                partial.write_text("new")
                assert mode is None or partial.stat().st_mode & 0o777 == 0o600  # not even for now
            assert path.stat().st_mode & 0o777 == (0o666 & ~umask if mode is None else mode)
    finally:
        os.umask(previous)


@pytest.mark.parametrize("write", [replacing, partial_directory])
def test_an_error_that_names_no_file_gets_the_path(tmp_path, write):
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/new'"):
        with write(tmp_path / "new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
