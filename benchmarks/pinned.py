"""Shared by the benchmarks: processes on pinned cores, and files for the results."""

import argparse
import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _show(error_class, error, traceback):
    """Shows bad input to the package, bad arguments, and a missing library in one line."""
    remedy = ""
    if error_class is ModuleNotFoundError:
        remedy = ". Install it; benchmarks/requirements.txt lists what most programs need"
    if remedy or error_class.__name__ == "InputError":
        print(f"{pathlib.Path(sys.argv[0]).name}: {error}{remedy}", file=sys.stderr)
    else:
        sys.__excepthook__(error_class, error, traceback)


sys.excepthook = _show


def count(text):
    """Returns the number that an argument is; argparse shows others in one line."""
    return _above_0(int, text, "an integer above 0")


def positive(text):
    return _above_0(float, text, "a finite number above 0")


def _above_0(kind, text, expected):
    try:
        number = kind(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"Expected {expected}. Received: {text}")
    return number


def run_pinned(script, arguments, cores=1, variables=None):
    """Runs a Python script on the last `cores` cores; returns the JSON that it prints last.

    Args:
        script: name of a file in this directory.
        arguments: for the script.
        cores: number of cores, and of threads.
        variables: environment variables of the process besides ours: dict, or None.
    """
    places = sorted(os.sched_getaffinity(0))[-cores:]
    return _result(_start(script, arguments, places, variables or {}))


def run_pinned_together(script, arguments, variables):
    """Like `run_pinned`, but runs one process per core, each with its environment variables."""
    places = sorted(os.sched_getaffinity(0))[-len(variables) :]
    processes = [
        _start(script, arguments, [place], more)
        for place, more in zip(places, variables, strict=True)
    ]
    return [_result(process) for process in processes]


def _start(script, arguments, places, variables):
    command = ["taskset", "-c", ",".join(map(str, places)), sys.executable, HERE / script]
    threads = dict.fromkeys(THREAD_VARIABLES, str(len(places)))
    return subprocess.Popen(
        [str(part) for part in [*command, *arguments]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
    )


def _result(process):
    output, errors = process.communicate()
    if process.returncode:
        command = " ".join(process.args[4:])
        sys.exit(f"{command} failed ({process.returncode}):\n{errors}")
    return json.loads(output.splitlines()[-1])


def free_ports(number):
    """Returns free ports of this machine."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def multi30k():
    """Returns the directory with Multi30k's raw text, or exits with an error message."""
    data = os.environ.get("KERAS_TRANSFORMER_DATA")
    if data is None or not pathlib.Path(data, "multi30k", "train.en.gz").exists():
        sys.exit(
            "Expected the directory that holds multi30k/train.en.gz and the like in "
            f"KERAS_TRANSFORMER_DATA. Received: {data}. README.md says where to get Multi30k."
        )
    return pathlib.Path(data, "multi30k")


def some_pairs(corpus, number, start=0):
    """Returns some pairs of one random order: those for a larger number contain all of a smaller.

    Args:
        corpus: `ParallelCorpus`.
        number: of pairs; None: all.
        start: number of pairs of this order that are left out.
    """
    needed = start + (number or 0)
    if needed > len(corpus):
        sys.exit(
            f"Expected at most {len(corpus):,} pairs, those of the text. "
            f"Received: {needed:,}. Ask for fewer."
        )
    order = np.random.default_rng(1).permutation(len(corpus))[start:][:number]
    return [(corpus.source[i], corpus.target[i]) for i in order]


def word_ratio(translations, references):
    """Returns the words of translations, divided by those of their references."""
    words, expected = (sum(len(x.split()) for x in side) for side in (translations, references))
    return words / expected


def read_results(path, settings):
    """Returns what an earlier start has measured with the same settings: dict; empty: nothing yet.

    Args:
        path: of the file that `write_results` has written.
        settings: dict of what the file must say, of the measurements or of the machine.
    """
    if not path.exists():
        return {}
    saved = json.loads(path.read_text())
    saved |= saved["machine"]
    if {name: saved.get(name) for name in settings} != settings:
        sys.exit(
            f"Expected results of the settings {settings}. Received: {path}, of others. "
            "Move it away, or name another place with --output."
        )
    return saved["results"]


def write_results(path, results):
    """Writes results as JSON, with a description of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **results}, indent=2) + "\n")


def text_file(name):
    """Returns the path of a file in the data directory's folder `text`, or ends the program."""
    path = pathlib.Path(os.environ.get("KERAS_TRANSFORMER_DATA", ""), "text", name)
    if not path.exists():
        sys.exit(f"Expected a directory with text/{name} in KERAS_TRANSFORMER_DATA.")
    return path


def machine():
    """Returns a description of this machine; "features" are those that products depend on."""
    from keras_transformer.config.settings import processor_features

    name = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "processor": name[1] if name else platform.processor(),
        "features": processor_features(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def peak_megabytes():
    """Returns this process's peak memory; `ru_maxrss` would include the parent's at the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
