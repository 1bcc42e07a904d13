"""Which files of somebody else's directory are read."""

import os

import pytest

from keras_transformer.errors import InputError
from keras_transformer.files.checksums import (
    check_checksums,
    check_export,
    remove_with_checksum,
    write_checksums,
)
from keras_transformer.files.regular import is_named, read_regular, regular_file


@pytest.fixture
def directory(tmp_path):
    """A directory of one file, `file`, beside which `other` stands."""
    (tmp_path / "other").write_text("of somebody")
    directory = tmp_path / "directory"
    directory.mkdir()
    (directory / "file").write_text("content")
    return directory


def link(target):
    return lambda path: path.symlink_to(target)


ODD = {
    "a pipe": (os.mkfifo, "not a regular file"),
    "a device": (link("/dev/zero"), "outside of the directory|not a regular file"),
    "another directory": (link("."), "not a regular file"),
    "a link to a file outside": (link("../other"), "outside of the directory"),
    "a link that leads nowhere": (link("none"), "a link to none, which is missing"),
    "a large file": (lambda path: path.open("w").truncate(2**43), "8,796,093,022,208 b"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_not_read(directory, kind):
    """Opening the first would last for ever, and so would reading the second."""
    make, reason = ODD[kind]
    try:
        make(directory / "odd")
    except OSError:
        pytest.skip("this file system has no such file")
    assert is_named(directory, "odd")
    with pytest.raises(OSError, match=reason):
        regular_file(directory, "odd")
    with pytest.raises(InputError, match=f"Expected a page. Received: .*odd: .*({reason})"):
        read_regular(directory, "odd", "a page")
    if kind != "another directory":  # which a link may name, within the directory
        with pytest.raises(InputError, match=f"odd: .*({reason})"):
            check_export(directory)
    (directory / "SHA256SUMS").write_text(f"{'0' * 64}  odd\n")
    with pytest.raises(InputError, match=f"odd: .*({reason})"):
        check_checksums(directory)


@pytest.mark.parametrize("name", ["../other", "{}/other", "a/../../other"])
def test_a_name_outside_of_the_directory(directory, name):
    (directory / "a").mkdir()
    with pytest.raises(OSError, match="outside of the directory"):
        regular_file(directory, name.format(directory.parent))
    with pytest.raises(OSError, match="not a name"):
        regular_file(directory, "a\0b")


def test_what_is_read(directory, tmp_path):
    """A file, a link to a file of the directory, and a blob of Hugging Face's cache."""
    assert not is_named(directory, "none") and not is_named(directory / "file", "none")
    (directory / "link").symlink_to("file")
    (tmp_path / "same").symlink_to(directory)
    for name in ("file", "link"):
        assert read_regular(tmp_path / "same", name, "a page", 7) == b"content"
    with pytest.raises(InputError, match="7 bytes, more than the 6"):
        read_regular(directory, "file", "a page", 6)
    snapshot = tmp_path / "snapshots" / "revision"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0").write_text("blob")
    (snapshot / "config.json").symlink_to("../../blobs/0")
    assert read_regular(snapshot, "config.json", "a page") == b"blob"


def test_checksums_as_sha256sum_writes_them(directory):
    """Also with `--binary`, which marks each name with an asterisk, and in upper case."""
    write_checksums(directory)
    sums = directory / "SHA256SUMS"
    check_export(directory)
    whole = sums.read_bytes()
    for changed in (
        whole.replace(b"  ", b" *"),
        whole.replace(b"\n", b"\r\n"),  # a copy by Windows
        b"\n".join(line[:64].upper() + line[64:] for line in whole.split(b"\n")),
    ):
        (directory / "gone").write_text("soon")
        write_checksums(directory)
        sums.write_bytes(changed + sums.read_bytes().splitlines()[1].replace(b"  ", changed[64:66]))
        check_checksums(directory)
        remove_with_checksum(directory, "gone")
        check_checksums(directory)
        assert sums.read_bytes().strip() == changed.strip()
    sums.write_bytes(whole + b"0123  file\n")
    with pytest.raises(InputError, match="SHA256SUMS has a line that is no checksum: '0123  file'"):
        check_checksums(directory)
    sums.write_bytes(whole)
    (directory / "file").write_text("contend")
    with pytest.raises(InputError, match="file is not what its checksum"):
        check_checksums(directory)
