import gzip
import io
import lzma
import os
import sys
import threading

import pytest
import regex

from keras_transformer.files import text as text_files
from keras_transformer.files.text import (
    check_directory,
    check_readable,
    check_writable,
    count_lines,
    is_blank,
    is_regular_file,
    iterate_lines,
    iterate_ready_lines,
)

TEXT = "\ufeffEin Haus.\r\n\n  zwei\u2028Zeilen \x0b\x85 in einer  \n\ufeffEnde"
LINES = ["Ein Haus.", "", "  zwei\u2028Zeilen \x0b\x85 in einer  ", "\ufeffEnde"]


def test_blank_is_what_unicode_does_not_display():
    blank = r"[\p{White_Space}\p{Cc}\p{Default_Ignorable_Code_Point}\u2800]"
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    assert list(filter(is_blank, characters)) == regex.findall(blank, characters)
    assert is_blank("") and is_blank("\u200d\u200c \ufe0f") and not is_blank("\u2764\ufe0f")


def compress_as(suffix):
    """Returns the function that compresses bytes for a file name that ends so."""
    if suffix == ".zst":
        return pytest.importorskip("backports.zstd").compress
    return {".txt": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]


@pytest.mark.parametrize("suffix", [".txt", ".gz", ".xz", ".zst"])
def test_lines_end_at_line_feeds_alone(tmp_path, suffix):
    compress = compress_as(suffix)  # files are joined as they are
    (tmp_path / f"a{suffix}").write_bytes(compress(TEXT[:7].encode()) + compress(TEXT[7:].encode()))
    assert list(iterate_lines(tmp_path / f"a{suffix}")) == LINES


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_lines_are_whole_wherever_a_block_of_bytes_ends(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_files, "BLOCK_BYTES", size)
    for text, lines in [(TEXT, LINES), ("a\n\nb\n", ["a", "", "b"]), ("\n", [""]), ("", [])]:
        (tmp_path / "a.txt").write_bytes(text.encode())
        assert list(iterate_lines(tmp_path / "a.txt")) == lines
        assert sum(iterate_ready_lines(tmp_path / "a.txt"), []) == lines


def test_the_lines_that_a_pipe_holds_are_there_before_others_are_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    # a reader that does not wait for a writer, so that one thread can do both
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open(tmp_path / "pipe", "wb", buffering=0) as writer:
        os.set_blocking(reader, True)
        found = iterate_ready_lines(f"/dev/fd/{reader}")
        writer.write(b"one\ntw")
        assert next(found) == ["one"]
        writer.write(b"o\nthree\n")
        assert next(found) == ["two", "three"]
        writer.write(b"four")
    os.close(reader)
    assert list(found) == [["four"]]


def test_a_pipe_is_no_regular_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a\n")
    os.mkfifo(tmp_path / "pipe")
    assert is_regular_file(tmp_path / "a.txt")
    assert not is_regular_file(tmp_path / "pipe")
    assert not is_regular_file(tmp_path / "none")
    with open(tmp_path / "a.txt") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert is_regular_file()
    monkeypatch.setattr(sys, "stdin", io.StringIO("a program has put this in its place"))
    assert not is_regular_file()


def test_standard_input_is_read_as_utf8_whatever_the_locale(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(TEXT.encode()), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(iterate_lines()) == LINES


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path):
    path = tmp_path / "latin"
    path.write_bytes("gut\nschön\n".encode("latin-1"))
    lines = iterate_lines(path)
    assert next(lines) == "gut"
    with pytest.raises(ValueError, match=r"Received: .*latin, line 2: .* \(byte 0xf6\)"):
        next(lines)


@pytest.mark.parametrize("suffix, kind", text_files.COMPRESSIONS.items())
def test_a_broken_compressed_file_is_refused(tmp_path, suffix, kind):
    path = tmp_path / f"a{suffix}"
    for content in (b"not compressed at all", compress_as(suffix)(b"text\n" * 999)[:-9]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"Expected a whole {kind} file.* Received: .*{path}"):
            list(iterate_lines(path))
        assert count_lines(path) is None


def test_without_its_package_zstandard_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "zstd", None)
    with pytest.raises(ValueError, match="a.zst, but no such package. Run `pip install backports"):
        list(iterate_lines(tmp_path / "a.zst"))


@pytest.mark.parametrize("name, reason", [("none", "No such file"), ("", "Is a directory")])
def test_what_is_no_file_is_refused(tmp_path, name, reason):
    with pytest.raises(ValueError, match=reason):
        list(iterate_lines(tmp_path / name))
    with pytest.raises(ValueError, match=reason):
        check_readable(tmp_path / name)


def test_looking_at_a_pipe_takes_nothing_out_of_it(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    check_readable(path)
    writer = threading.Thread(target=path.write_text, args=("first\nsecond\n",))
    writer.start()
    assert list(iterate_lines(path)) == ["first", "second"]
    writer.join()


def test_only_a_file_in_a_directory_that_exists_can_be_written(tmp_path):
    check_writable(tmp_path / "new")
    for path in (tmp_path, tmp_path / "none" / "new"):
        with pytest.raises(ValueError, match="Expected a file to write"):
            check_writable(path)
    with pytest.raises(ValueError, match=r"Expected .gz, or no compression. Received: .*a.xz"):
        check_writable(tmp_path / "a.xz")


def test_a_directory_can_be_made_where_no_file_stands(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "new" / "new"):
        check_directory(path)
    for path in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(ValueError, match=f"Received: {path}, where {tmp_path}/file is a file"):
            check_directory(path)
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(ValueError, match=f"where {tmp_path}/link is a link to nothing"):
        check_directory(tmp_path / "link")
    with pytest.raises(ValueError, match="Expected a new or empty directory"):
        check_directory(tmp_path, empty=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match=f"where {tmp_path} cannot be written"):
        check_directory(tmp_path / "new")


@pytest.mark.parametrize("content", [b"", b"a", b"a\n", b"a\n\nb", b"\n" * 70_000, b"\xff\n"])
def test_lines_are_counted_before_they_are_read(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    expected = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    assert count_lines(tmp_path / "a") == count_lines(tmp_path / "a.gz") == expected
    (tmp_path / "cut.gz").write_bytes(gzip.compress(content)[:-9])
    assert count_lines() is count_lines(tmp_path / "cut.gz") is count_lines(tmp_path) is None
