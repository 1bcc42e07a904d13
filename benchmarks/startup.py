"""Measures the seconds from the command to the first training step, and waits for the input.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/startup.py

starts the command `train --preset tiny` on Multi30k (DATA/multi30k) with a trained tokenizer, and
the same recipe in KerasHub. Then it compares steps with input from `TranslationBatches` with steps
on the same batches in memory. `benchmarks/startup_side.py` is the timed process.

With `--translate MODEL` or `--serve EXPORT/VERSION` it measures something else: where time and
memory go until `translate` has translated, or until `serve` has loaded a version.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

from pinned import HERE, count, multi30k, run_pinned, write_results

STARTS = ("keras_transformer", "KerasHub")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    parser.add_argument("--translate", metavar="MODEL", help="a run, or a version of an export")
    parser.add_argument("--serve", metavar="EXPORT/VERSION")
    arguments = parser.parse_args()
    if arguments.translate or arguments.serve:
        for side in ("translate", "serve"):
            if model := getattr(arguments, side):
                phases(side, model, arguments)
        return
    data = multi30k()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        batches, tokenizer = folder / "batches.npz", folder / "tokenizer"
        write_inputs(batches, tokenizer)
        starts = {}
        for side in STARTS:
            runs = []
            for repeat in range(arguments.repeats):
                flags = [side, "--batches", batches, "--data", data, "--tokenizer", tokenizer]
                flags += ["--run", folder / f"run-{repeat}", "--started", time.time()]
                runs.append(run_pinned("startup_side.py", flags, arguments.cores))
            starts[side] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        flags = ["pipeline", "--data", data, "--tokenizer", tokenizer, "--started", time.time()]
        pipeline = run_pinned("startup_side.py", flags, arguments.cores)
    print("| seconds from the command | first step | ten steps |\n|---|---|---|")
    for side, row in starts.items():
        print(f"| {side} | {row['first']:.1f} | {row['tenth']:.1f} |")
    ready, piped = pipeline["ready"], pipeline["pipeline"]
    print(f"\nsteps with the pipeline take {piped / ready:.3f} of those with data ready")
    path = arguments.output or HERE / "results" / "startup.json"
    write_results(path, {"cores": arguments.cores, "starts": starts, "pipeline": pipeline})


def phases(side, model, arguments):
    """Prints the medians of what each phase of a start takes."""
    runs = [
        run_pinned(
            "startup_side.py", [side, "--model", model, "--started", time.time()], arguments.cores
        )
        for _ in range(arguments.repeats)
    ]
    medians = {
        name: [statistics.median(run[name][i] for run in runs) for i in range(3)]
        for name in runs[0]
    }
    medians["together"] = [sum(each[i] for each in medians.values()) for i in range(3)]
    print(f"\n| {side} | seconds | of the processor | MB |\n|---|---|---|---|")
    for name, (seconds, of_processor, megabytes) in medians.items():
        print(f"| {name} | {seconds:.2f} | {of_processor:.2f} | {megabytes:.0f} |", flush=True)


def write_inputs(batches_path, tokenizer_path):
    from training import write_batches

    tokenizer = write_batches(batches_path, 10)
    tokenizer_path.mkdir()
    tokenizer.save(tokenizer_path)


if __name__ == "__main__":
    main()
