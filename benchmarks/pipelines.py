"""Lines per second of `translate` and of the pipeline of Apache Beam, on all cores, in turn.

    python benchmarks/pipelines.py EXPORT TEXT --lines 4000 --repeats 3

It needs the extra `beam`. Each command is timed from its start to its end, in a process of its own;
CPU seconds are of all its processes.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from pinned import count, machine

from keras_transformer.files.text import iterate_lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("export", help="directory of an export")
    parser.add_argument("text", help="file of text, perhaps .gz")
    parser.add_argument("--lines", type=count, default=4000)
    parser.add_argument("--files", type=count, default=4, help="that the pipeline reads")
    parser.add_argument("--repeats", type=count, default=3)
    arguments = parser.parse_args()
    lines = itertools.islice(iterate_lines(arguments.text), arguments.lines)
    texts = [f"{line}\n" for line in lines]
    num_cores = machine()["cores"]
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "all.txt").write_text("".join(texts), encoding="utf-8")
        size = -(-len(texts) // arguments.files)
        for i in range(arguments.files):
            part = "".join(texts[i * size : (i + 1) * size])
            (directory / f"in-{i}.txt").write_text(part, encoding="utf-8")
        modules = "keras_transformer", "keras_transformer.pipelines"
        commands = {
            "translate": [arguments.export, "--input", "all.txt", "--output"],
            "pipeline": ["--export", arguments.export, "--input", "in-*.txt"]
            + ["--direct_running_mode=multi_processing", f"--direct_num_workers={num_cores}"]
            + ["--output"],
        }
        seconds = {name: [] for name in commands}
        for repeat in range(arguments.repeats):
            for (name, options), module in zip(commands.items(), modules, strict=True):
                command = [sys.executable, "-m", module, "translate", *options, f"{name}-{repeat}"]
                seconds[name].append(seconds_of(command, directory))
                print("{}: {:.1f} s, {:.1f} CPU s".format(name, *seconds[name][-1]), flush=True)
    for name, pairs in seconds.items():
        wall, cpu = (statistics.median(each) for each in zip(*pairs, strict=True))
        rates = len(texts) / wall, len(texts) / cpu
        print("{}: {:,.1f} lines a second, {:,.1f} a CPU second".format(name, *rates))
    print(machine())


def seconds_of(command, directory):
    """Returns the seconds, and the CPU seconds, of a command."""
    command = [os.path.abspath(each) if os.path.exists(each) else each for each in command]
    begin, before = time.perf_counter(), os.times()
    process = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if process.returncode:
        sys.exit(process.stderr)
    used = [b - a for a, b in zip(before, os.times(), strict=True)]
    return time.perf_counter() - begin, used[2] + used[3]  # those of children


if __name__ == "__main__":
    main()
