"""Compares the gain of training by a second core with that of a large matrix product.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/scaling.py --preset tiny

trains on the same batches on 1 core and on 2, each library in turn, like `benchmarks/training.py`.
"""

import argparse
import pathlib
import statistics
import tempfile

from pinned import HERE, count, run_pinned, write_results
from training import write_batches

SIDES = ("matrix product", "keras_transformer", "KerasHub", "PyTorch")
CORES = (1, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=("tiny", "base"), default="tiny")
    parser.add_argument("--steps", type=count, default=40)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        batches = pathlib.Path(folder, "batches.npz")
        write_batches(batches, arguments.steps)
        speeds = {(side, cores): [] for side in arguments.sides for cores in CORES}
        for _ in range(arguments.repeats):
            for side, cores in speeds:
                flags = ["--batches", batches, "--preset", arguments.preset, "--threads", cores]
                run = run_pinned("training_side.py", [side, *flags], cores)
                speeds[side, cores].append(run["tokens_a_second"])
    speeds = {key: statistics.median(values) for key, values in speeds.items()}
    print("| | 1 core | 2 cores | gain |\n|---|---|---|---|")
    results = {}
    for side in arguments.sides:
        one, two = (speeds[side, cores] for cores in CORES)
        results[side] = {"one_core": one, "two_cores": two, "gain": two / one}
        print(f"| {side} | {one:,.0f} | {two:,.0f} | {two / one:.2f} |", flush=True)
    path = arguments.output or HERE / "results" / f"scaling-{arguments.preset}.json"
    settings = {"preset": arguments.preset, "steps": arguments.steps, "repeats": arguments.repeats}
    write_results(path, {**settings, "results": results})


if __name__ == "__main__":
    main()
