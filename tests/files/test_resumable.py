"""Lines that go on where a killed process ended."""

import json
import os
import pathlib
import random
import subprocess
import sys
import threading

import pytest

from keras_transformer.files import resumable
from keras_transformer.files.resumable import resumable_lines
from keras_transformer.files.text import iterate_lines

LINES = [f"line {number} äöü" for number in range(200)]


def answer(output, lines, end=None):
    """Writes two lines for each line of the input; raises in the middle of an answer."""
    for number, line in enumerate(output.rest(lines), start=output.num_done):
        output.write(line.upper())
        if number == end:
            raise RuntimeError("in the middle")
        output.write("")
        output.end_answer(line)


def expected(lines):
    return [text for line in lines for text in (line.upper(), "")]


@pytest.fixture(params=["out.de", "out.de.gz"])
def path(request, tmp_path):
    return tmp_path / request.param


def partial_of(path):
    return path.with_stem(f"{path.stem}.partial")


def test_what_is_written_is_read_back_and_nothing_else_stays(path):
    path.write_bytes(b"old")
    path.chmod(0o640)
    with resumable_lines(path) as output:
        answer(output, LINES)
        assert path.read_bytes() == b"old"
        assert partial_of(path).stat().st_mode & 0o777 == 0o600  # the old file may be private
    assert list(iterate_lines(path)) == expected(LINES)
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(path.parent) == [path.name]


def test_it_goes_on_after_an_error_with_the_same_bytes(path, monkeypatch):
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0 if path.suffix == ".gz" else 99.0)
    for end in (0, 3, 3, 150):
        with pytest.raises(RuntimeError) as raised, resumable_lines(path, "work") as output:
            output.notes.setdefault("ends", []).append(end)
            answer(output, LINES, end)
        notes = getattr(raised.value, "__notes__", [])
        written = (
            f"what is done up to line {end} is in {partial_of(path)}: the same command goes on"
        )
        assert notes == ([written] if end else [])
        assert partial_of(path).exists() == (end > 0) and not path.exists()
    with resumable_lines(path, "work") as output:
        assert output.num_done == 150 and output.notes == {"ends": [3, 3, 150]}
        answer(output, LINES)
    assert list(iterate_lines(path)) == expected(LINES)
    assert os.listdir(path.parent) == [path.name]


def interrupted(path):
    with pytest.raises(RuntimeError), resumable_lines(path, "work") as output:
        answer(output, LINES, 9)


@pytest.mark.parametrize("lines", [["other", *LINES[1:]], LINES[:8], []])
def test_another_input_is_refused_and_nothing_is_lost(path, lines):
    interrupted(path)
    before = partial_of(path).read_bytes()
    with pytest.raises(ValueError, match="Received: an.* input.* Give --restart"):
        with resumable_lines(path, "work") as output:
            answer(output, lines)
    assert partial_of(path).read_bytes() == before
    with resumable_lines(path, "work") as output:
        answer(output, LINES[:10])  # the rest may be another
    assert list(iterate_lines(path)) == expected(LINES[:10])


def test_other_work_or_damaged_files_are_refused_and_restarted(path):
    interrupted(path)
    state = pathlib.Path(f"{partial_of(path)}.json")
    with pytest.raises(ValueError, match="Received: another model"), resumable_lines(path, "x"):
        pass
    content = json.loads(state.read_text())
    for damaged in (
        "",
        "[]",
        json.dumps(content | {"bytes": 10**6}),
        "\xff",
        json.dumps(content | {"lines": -1}),
    ):
        state.write_text(damaged, encoding="latin-1")
        with pytest.raises(ValueError, match="json, which is damaged. Give --restart"):
            with resumable_lines(path, "work"):
                pass
    with resumable_lines(path, "x", restart=True) as output:
        answer(output, LINES[:2])
    assert list(iterate_lines(path)) == expected(LINES[:2])
    assert os.listdir(path.parent) == [path.name]


def test_a_second_process_is_refused(path):
    with resumable_lines(path) as output:
        with pytest.raises(ValueError, match="no other process is writing"), resumable_lines(path):
            pass
        answer(output, LINES)
    assert list(iterate_lines(path)) == expected(LINES)


def test_links_stay_links_and_pipes_pipes(tmp_path):
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").write_text("old")
    os.mkfifo(tmp_path / "pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_text()))
    reader.start()
    for name in ("link", "pipe"):
        with resumable_lines(tmp_path / name) as output:
            answer(output, LINES[:1])
    reader.join()
    assert received == [(tmp_path / "real").read_text()] == ["LINE 0 ÄÖÜ\n\n"]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "pipe").is_fifo()


def test_standard_output_is_written_line_by_line(capsysbinary):
    with resumable_lines(None) as output:
        output.write("größer")
        assert capsysbinary.readouterr().out == "größer\n".encode()


PROGRAM = """
import sys, time
from keras_transformer.files import resumable
resumable.SECONDS_BETWEEN_SAVES = 0.002
with resumable.resumable_lines(sys.argv[1], "work") as output:
    print("begun", flush=True)
    for line in output.rest(str(number) for number in range(100)):
        output.write(line)
        time.sleep(0.0005)
        output.end_answer(line)
"""


@pytest.mark.parametrize("name", ["out.de", "out.de.gz"])
def test_kills_at_any_moment_give_the_bytes_of_no_kill(tmp_path, name):
    """The moments are drawn anew in each run; the result must be the same for all."""
    path = tmp_path / name
    for seconds in (0.0, 0.01, 0.05, 0.1, 0.02, 0.03, 300.0):
        arguments = [sys.executable, "-c", PROGRAM, str(path)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        process.stdout.readline()
        try:
            process.wait(seconds * random.random() if seconds < 1 else seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if path.exists():
            break
    assert list(iterate_lines(path)) == [str(number) for number in range(100)]
    assert os.listdir(tmp_path) == [name]
