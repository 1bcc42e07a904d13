"""The installed script, as a process: it starts, is interrupted, and says what is wrong."""

import configparser
import pathlib
import subprocess
import sys
import textwrap

import pytest


def test_the_installed_script_is_the_module_that_answers_interruptions():
    setup = configparser.ConfigParser()
    setup.read(pathlib.Path(__file__).parents[1] / "setup.cfg")
    script = setup["options.entry_points"]["console_scripts"].strip()
    assert script == "keras-transformer = keras_transformer.__main__:main"


@pytest.mark.parametrize(
    "module",
    [
        "keras_transformer.cli",
        "keras_transformer.cli.train",
        "argparse",
        "yaml",
        "keras_transformer.config",
        "keras_transformer.files.text",
        None,
    ],
)
def test_an_interruption_of_the_start_leaves_no_traceback(module):
    """SIGINT when the installed script imports a module; None: when the parser is made."""
    program = textwrap.dedent(
        f"""
        import importlib.abc, signal, sys

        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Interrupt(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == {module!r}:
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        sys.modules.pop({module!r}, None)
        from keras_transformer.__main__ import main
        if {module is None}:
            import argparse

            argparse.ArgumentParser.add_subparsers = lambda *_, **__: signal.raise_signal(2)
        sys.argv[1:] = ["--help"]
        sys.exit(main())
        """
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert (process.returncode, process.stdout) == (130, b"")
    assert process.stderr == b"keras-transformer: interrupted\n"


@pytest.mark.parametrize("flag", ["-u", "-B"], ids=["unbuffered", "buffered"])
def test_help_that_cannot_be_written_fails(flag):
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, flag, "-m", "keras_transformer", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 1
    assert "No space left on device" in process.stderr and process.stderr.count("\n") == 1


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *arguments], capture_output=True, text=True
    )


def test_help_lists_the_commands():
    process = run_command("--help")
    assert (process.returncode, process.stderr) == (0, "")
    for command in ("quickstart", "train", "translate", "evaluate", "export", "plot"):
        assert f"\n    {command}" in process.stdout


def test_a_missing_file_and_a_usage_error_end_with_2(tmp_path):
    missing = str(tmp_path / "none.en")
    process = run_command(
        "train", "--source-train", missing, "--target-train", missing, "--output", missing + ".run"
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("keras-transformer: error: Expected a file to read.")
    assert missing in process.stderr and process.stderr.count("\n") == 1
    assert run_command("train", "--seed").returncode == 2
    assert list(tmp_path.iterdir()) == []
