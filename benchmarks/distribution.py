"""Measures what it costs to divide a step into replicas, workers and micro-batches.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/distribution.py --preset tiny

trains on batches of 8,192 padded tokens of Multi30k (DATA/multi30k), on two cores: in one process
with 1, 2 and 4 logical devices, and with micro-batches. Then it compares two workers of one core
each with two independent runs on batches of 4,096. `benchmarks/distribution_side.py` is the timed
process.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

from pinned import HERE, count, free_ports, run_pinned, run_pinned_together, write_results
from training import BATCH_TOKENS, write_batches

CORES = 2
IN_ONE_PROCESS = {  # flags
    "1 device": ["one"],
    "2 devices": ["mirrored", "--devices", 2],
    "4 devices": ["mirrored", "--devices", 4],
    "1 device, 2 parts": ["one", "--parts", 2],
    "1 device, 4 parts": ["one", "--parts", 4],
}
TWO_RUNS, TWO_WORKERS = "2 runs of a core each", "2 workers of a core each"
SIDES = [*IN_ONE_PROCESS, TWO_RUNS, TWO_WORKERS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=("tiny", "base"), default="tiny")
    parser.add_argument("--steps", type=count, default=20)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    speeds = {side: [] for side in arguments.sides}
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, f"{cores}.npz") for cores in (1, CORES)]
        for cores, path in enumerate(paths, start=1):
            write_batches(path, arguments.steps, batch_tokens=cores * BATCH_TOKENS)
        for _ in range(arguments.repeats):
            for side in arguments.sides:
                speeds[side].append(measure(side, *paths, arguments.preset))
    speeds = {side: statistics.median(values) for side, values in speeds.items()}
    print("| | tokens a second | beside |\n|---|---|---|")
    for side, speed in speeds.items():
        reference = TWO_RUNS if side == TWO_WORKERS else SIDES[0]
        known = reference in speeds and side not in (reference, TWO_RUNS)
        ratio = f"{speed / speeds[reference]:.2f} of {reference}" if known else ""
        print(f"| {side} | {speed:,.0f} | {ratio} |")
    path = arguments.output or HERE / "results" / f"distribution-{arguments.preset}.json"
    settings = {name: getattr(arguments, name) for name in ("preset", "steps", "repeats")}
    write_results(path, {**settings, "tokens_a_second": speeds})


def measure(side, of_a_core, of_all_cores, preset):
    """Returns the target tokens per second of all processes together."""
    script, flags = "distribution_side.py", ["--preset", preset, "--batches"]
    if side in IN_ONE_PROCESS:
        flags = [*IN_ONE_PROCESS[side], *flags, of_all_cores, "--threads", CORES]
        return run_pinned(script, flags, CORES)["tokens_a_second"]
    if side == TWO_RUNS:
        flags = ["one", *flags, of_a_core, "--threads", 1]
        return sum(
            run["tokens_a_second"] for run in run_pinned_together(script, flags, [{}] * CORES)
        )
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(CORES)]}
    tasks = [{"type": "worker", "index": i} for i in range(CORES)]
    variables = [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]
    flags = ["multi_worker", *flags, of_all_cores, "--threads", 1]
    return run_pinned_together(script, flags, variables)[0]["tokens_a_second"]


if __name__ == "__main__":
    main()
