"""What the benchmarks share: processes on pinned cores, and a place for what they found."""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_pinned(script, arguments, cores=1, preload=None):
    """Returns the JSON that a Python script prints last, run on the last so many cores.

    Args:
        script: name of a file beside this one.
        arguments: for the script.
        cores: number of cores, and of threads.
        preload: path of a shared library that the process is to load first, or None.
    """
    places = sorted(os.sched_getaffinity(0))[-cores:]
    command = ["taskset", "-c", ",".join(map(str, places)), sys.executable, HERE / script]
    done = subprocess.run(
        [str(part) for part in [*command, *arguments]],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            **dict.fromkeys(THREAD_VARIABLES, str(cores)),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **({"LD_PRELOAD": str(preload)} if preload else {}),
        },
    )
    if done.returncode:
        sys.exit(
            f"{script} {' '.join(map(str, arguments))} failed ({done.returncode}):\n{done.stderr}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def multi30k():
    """Returns the directory with Multi30k's raw text, or ends with a line that says how."""
    data = os.environ.get("KERAS_TRANSFORMER_DATA")
    if data is None or not pathlib.Path(data, "multi30k", "train.en.gz").exists():
        sys.exit(
            "Expected the directory that holds multi30k/train.en.gz and the like in "
            f"KERAS_TRANSFORMER_DATA. Received: {data}. README.md says where to get Multi30k."
        )
    return pathlib.Path(data, "multi30k")


def write_results(path, results):
    """Writes results as JSON, with the machine that they are of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), **results}, indent=2) + "\n")


def machine():
    name = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "processor": name[1] if name else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def peak_megabytes():
    """Returns this process's peak; `ru_maxrss` would count what its parent held at the fork."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
