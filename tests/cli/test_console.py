"""How the command ends: its exit code, and one line that says why."""

import contextlib
import importlib.metadata
import os
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest

from keras_transformer import cli
from keras_transformer.cli import console
from keras_transformer.config import Config
from keras_transformer.files.atomic import partial_directory
from keras_transformer.files.resumable import resumable_lines
from keras_transformer.files.text import iterate_lines
from tests import forked


def raises(error):
    def command():
        raise error

    return command


def start_python(program):
    """Starts a process that runs `program` with pipes for its streams."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_error_of_the_package_is_an_input_error(capsys):
    assert console.run(lambda: Config().override(["training.max_steps=0"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-transformer: error: Expected max_steps to be")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "{huge}"],
        ["translate", "run", "--beam-size", "{huge}"],
        ["train", "--config", "{huge}", "--output", "run"],
        ["train", "--set", "training.max_steps={huge}", "--output", "run"],
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_a_value_of_a_megabyte_is_not_echoed_whole(arguments, capsys):
    with contextlib.suppress(SystemExit):
        assert cli.main([argument.format(huge=2**20 * "x") for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert "xxx" in error and len(error) < 4000 and error.count("\n") == 1


def test_a_result_that_cannot_be_printed_is_there_all_the_same(capsys):
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        assert console.run(lambda: console.print_result("runs/a", "The run is complete")) == 1
    error = capsys.readouterr().err
    assert "The run is complete, but this could not be printed: No space left on device" in error


def test_a_system_that_refuses_a_path_is_an_input_error(tmp_path, capsys):
    assert console.run(lambda: open(tmp_path / "none")) == 2
    assert f"No such file or directory: '{tmp_path}/none'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command, message",
    [
        (raises(ValueError("of another library\nsecond line")), "ValueError: of another library ("),
        (lambda: int("x"), "ValueError: invalid literal for int() with base 10: 'x' ("),
        (raises(RuntimeError()), "RuntimeError: no message ("),
        (raises(OSError(28, "No space left on device")), "OSError: [Errno 28] No space left"),
        (raises(KeyError("x")), "KeyError: 'x' ("),
    ],
)
def test_anything_else_is_a_failure(command, message, capsys, monkeypatch):
    monkeypatch.delenv(console.TRACEBACK, raising=False)
    assert console.run(command) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"keras-transformer: failed: {message}")
    assert error.endswith("(KERAS_TRANSFORMER_TRACEBACK=1 shows where)\n")
    assert error.count("\n") == 1


def test_the_traceback_is_shown_on_request(capsys, monkeypatch):
    monkeypatch.setenv(console.TRACEBACK, "1")
    assert console.run(raises(RuntimeError("why"))) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last):")
    assert "raise error" in error


def test_a_platform_without_tensorflow_text_is_told_where_there_is_one(capsys):
    missing = ModuleNotFoundError("No module named 'tensorflow_text'", name="tensorflow_text")
    assert console.run(raises(missing)) == 2
    error = capsys.readouterr().err
    assert "Linux (x86-64 and ARM) and on macOS (Apple processors)" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("error", [ImportError("no such name"), AttributeError("no such name")])
def test_another_project_of_the_same_import_name_is_told(error, capsys, monkeypatch):
    found = {"keras-transformer": "0.40.0"}
    monkeypatch.setattr(importlib.metadata, "version", found.__getitem__)
    assert console.run(raises(error)) == 1
    said = capsys.readouterr().err
    assert "pip uninstall keras-transformer)" in said and said.endswith("(no such name)\n")
    assert said.count("\n") == 1
    assert console.run(raises(RuntimeError("another reason"))) == 1
    assert "RuntimeError: another reason" in capsys.readouterr().err

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert console.run(raises(error)) == 1
    assert "Error: no such name (KERAS" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environment, message",
    [
        ("KERAS_BACKEND=nonsense", "Expected a backend of Keras: tensorflow, jax, torch. Received"),
        ("KERAS_BACKEND=numpy", "Expected a backend of Keras: tensorflow, jax, torch. Received"),
        ("KERAS_BACKEND=jax", 'Install it (pip install "jax'),
        ("KERAS_BACKEND=tensorflow", 'Install it (pip install "tensorflow")'),
        ("KERAS_HOME", 'keras.json: backend=jax. Install it (pip install "jax'),
    ],
)
def test_a_backend_that_is_not_there_is_refused_at_once(
    environment, message, capsys, monkeypatch, tmp_path
):
    for name in ("jax", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    name, _, value = environment.partition("=")
    monkeypatch.setenv(name, value or str(tmp_path))
    assert console.run(console.start_keras) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("file", [None, "tensorflow"])  # Keras writes the latter by itself
def test_without_tensorflow_the_backend_is_the_one_that_is_installed(file, monkeypatch, tmp_path):
    installed = ["torch"]
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: name if name in installed else None
    )
    monkeypatch.setenv("KERAS_BACKEND", "")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if file:
        (tmp_path / "keras.json").write_text(f'{{"backend": "{file}"}}')
    console.check_backend()
    assert os.environ["KERAS_BACKEND"] == "torch"
    installed.append("tensorflow")
    monkeypatch.setenv("KERAS_BACKEND", "")
    console.check_backend(for_export=True)
    assert os.environ["KERAS_BACKEND"] == ""


def test_interruptions_have_their_codes(capsys):
    assert console.run(raises(KeyboardInterrupt())) == 130

    class Interrupted(Exception):
        signal_number = signal.SIGTERM

    assert console.run(raises(Interrupted("the work is saved"))) == 143
    assert capsys.readouterr().err.endswith("keras-transformer: the work is saved\n")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_libraries_load_is_obeyed_after_it(number, code):
    process = start_python(
        f"""
        import signal, sys
        from keras_transformer.cli import console

        # what a shell starts in the background has it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def work():
            with console._signals_held():
                signal.raise_signal({int(number)})
                print("loaded")
            print("at work")

        sys.exit(console.run(work))
        """
    )
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output) == (code, b"loaded\n")


def run_with_closed_streams(work, closed):
    """Runs a program that does `work`, with some of its streams closed."""
    program = "import sys; from keras_transformer.cli import console\n" + textwrap.dedent(work)
    arguments = [sys.executable, "-c", f"{program}\nsys.exit(console.run(work))"]
    command = " ".join(shlex.quote(argument) for argument in arguments)
    return subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_an_empty_one(closed):
    work = "work = lambda: console.say(sys.stdin.read()) or print(1)"
    process = run_with_closed_streams(work, closed)
    assert process.returncode == 0, process.stderr
    assert process.stdout == ("" if closed == ">&-" else "1\n")


def test_keras_starts_without_streams_and_with_one_thread_for_each_operation():
    """Its start opens and closes streams; a command that searches wants the threads."""
    program = """
        import os, sys
        from keras_transformer.cli import console

        os.closerange(0, 3)
        sys.stdin = sys.stdout = sys.stderr = None  # as Python does where a stream is closed

        def work():
            console.start_keras(to_search=True)
            import tensorflow as tf
            assert tf.config.threading.get_intra_op_parallelism_threads() == 1
            tf.constant(1)
            console.start_keras(to_search=True)  # too late, and no error
            print(sys.stdin.read())

        sys.exit(console.run(work))
    """
    process = forked.run(["-c", textwrap.dedent(program)])
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_what_is_said_while_messages_are_dropped_is_shown(capfd):
    with console.messages_dropped():
        os.write(2, b"a note of a library\n")
        console.say("loading")
    console.say("done")
    assert capfd.readouterr().err == "keras-transformer: loading\nkeras-transformer: done\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_written_lines_says_where_and_removes_half_a_directory(
    number, tmp_path, capsys
):
    handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    previous = signal.signal(number, handler)  # the tests may run in the background, or by nohup

    def work():
        with partial_directory(tmp_path), resumable_lines(tmp_path / "out.de.gz") as output:
            output.write("half")
            output.end_answer("source")
            signal.raise_signal(number)

    try:
        if number == signal.SIGINT:
            assert console.run(work) == 130
        else:
            with pytest.raises(SystemExit, match=f"^{128 + number}\\b"):
                console.run(work)
    finally:
        signal.signal(number, previous)
    kept = tmp_path / "out.de.partial.gz"
    assert len(list(tmp_path.iterdir())) == 2  # with what is known of it
    assert list(iterate_lines(kept)) == ["half"]
    word = "interrupted" if number == signal.SIGINT else "terminated"
    expected = f"keras-transformer: {word}; what is done up to line 1 is in {kept}: the "
    expected += "same command goes on\n"
    assert capsys.readouterr().err == expected


def test_a_signal_that_nohup_ignores_is_ignored(monkeypatch):
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert console.run(lambda: signal.raise_signal(signal.SIGHUP)) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_a_log_that_nobody_reads_ends_no_process():
    process = start_python(
        """
        import sys
        from keras_transformer.cli import console

        def work():
            for number in range(10_000):
                console.say("a line of the report")
            print("the work is done")

        sys.exit(console.run(work))
        """
    )
    assert process.stderr.readline() == b"keras-transformer: a line of the report\n"
    process.stderr.close()
    assert process.stdout.read() == b"the work is done\n"
    assert process.wait(timeout=60) == 0


def test_a_reader_that_has_gone_ends_the_process_quietly():
    process = start_python(
        """
        import sys
        from keras_transformer.cli import console
        from keras_transformer.files.resumable import resumable_lines

        def work():
            with resumable_lines(None) as output:
                for number in range(1_000_000):
                    output.write(str(number))

        sys.exit(console.run(work))
        """
    )
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 141


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied", "run/config.yaml"),
        FileNotFoundError(2, "No such file or directory", "run/config.yaml"),
        FileExistsError(17, "File exists", "run/config.yaml"),
        IsADirectoryError(21, "Is a directory", "run/config.yaml"),
        NotADirectoryError(20, "Not a directory", "run/config.yaml"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_path_that_the_system_refuses_is_an_input_error(error, capsys):
    assert console.run(raises(error)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-transformer: error: ")
    assert error.strerror in line and "run/config.yaml" in line
