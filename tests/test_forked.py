"""Programs in forks do what they do in fresh processes."""

import os
import pathlib
import signal
import subprocess
import sys

import keras
import pytest

from tests import forked

TENSORFLOW_ALONE = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="on other backends, nothing is forked"
)
ECHO = """
import os, sys
print(sys.argv[1:], sys.stdin.read(), os.environ["NAME"], os.getcwd(), __name__)
print("ä", file=sys.stderr)
"""
ENDS = [
    "pass",
    "import sys; sys.exit(3)",
    "import sys; sys.exit('a reason')",
    "1 / 0",
    "raise KeyboardInterrupt",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
]
STATE = """
import atexit, os, sys
assert atexit._ncallbacks() == 0
from tensorflow.python.eager import context
computed = context.context()._initialized
package = "keras_transformer" in sys.modules
import tensorflow as tf
assert float(tf.reduce_sum(tf.ones((3, 5)))) == 15
num_threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
print(computed, package, num_threads)
"""


def fresh(arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize("form", ["-c", "-m", "path"])
def test_a_program_gets_what_a_fresh_process_gets(form, tmp_path):
    path = tmp_path / "echo_program.py"
    path.write_text(ECHO)
    arguments = {"-c": ["-c", ECHO], "-m": ["-m", path.stem], "path": [str(path)]}[form]
    options = dict(input="to\nread", env={**forked.environment(), "NAME": "5"}, cwd=tmp_path)
    found, expected = [run([*arguments, "a b"], **options) for run in (forked.run, fresh)]
    assert "NAME" not in os.environ and "['a b'] to\nread 5" in expected.stdout
    assert (found.returncode, found.stdout, found.stderr) == (
        *(expected.returncode, expected.stdout, expected.stderr),
    )


@pytest.mark.parametrize("program", ENDS)
def test_a_program_ends_as_in_a_fresh_process(program):
    program = f"import atexit; atexit.register(print, 'the end'); {program}"
    found, expected = [run(["-c", program]) for run in (forked.run, fresh)]
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert found.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


@TENSORFLOW_ALONE
@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted in /proc")
def test_tensorflow_is_imported_but_has_computed_nothing_and_has_started_no_thread():
    """Also for the second program: what computes in the first one is a fork, not its parent."""
    for _ in range(2):
        process = forked.run(["-c", STATE])
        assert process.stdout == "False False 1\n", process.stderr
    modules = "import sys; print([name in sys.modules for name in sys.argv[1:]])"
    assert forked.run(["-c", modules, *forked.IMPORTED]).stdout == f"{[True] * 4}\n"


@TENSORFLOW_ALONE
def test_programs_run_at_the_same_time_and_are_killed():
    files = [open(os.devnull, "r+") for _ in range(3)]
    program = ["-c", "import time; time.sleep(100)"]
    processes = [forked.start(program, files) for _ in range(2)]
    os.kill(processes[0].pid, signal.SIGKILL)
    processes[1].terminate()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, -signal.SIGTERM]
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(program, timeout=0.1)
    for file in files:
        file.close()


@TENSORFLOW_ALONE
def test_variables_that_imports_have_read_cannot_be_changed():
    for changes in ({"KERAS_BACKEND": "jax"}, {"TF_CPP_MIN_LOG_LEVEL": "9"}):
        with pytest.raises(ValueError, match="Expected these variables"):
            forked.run(["-c", "pass"], env={**os.environ, **changes})
    missing = pathlib.Path("none.py")
    assert "No such file" in forked.run([missing]).stderr
