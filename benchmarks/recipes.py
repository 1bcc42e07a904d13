"""Measures a step of each recipe at full size on one core, and extrapolates the training from it.

    python benchmarks/recipes.py

prints and writes seconds a step, peak memory, and hours for all steps of the recipe, which is an
extrapolation: nobody trains them on one core. Seconds are those of the processor, so that other
programs on the machine count less; with `KERAS_BACKEND=jax` on a GPU, they and the memory are the
GPU's. A recipe that is in the results of this processor already is not measured again, unless its
batches have changed. `TFLOP` is 6 times the parameters times the tokens of a side, a usual estimate
of the floating-point operations of a step, to extrapolate to other devices with.
"""

import argparse
import pathlib
import statistics

from pinned import HERE, count, machine, read_results, run_pinned, write_results
from recipes_side import LENGTH, size_of_step

from keras_transformer.config import Config
from keras_transformer.config.presets import RECIPES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--steps", type=count, default=3, help="steps that are timed")
    parser.add_argument("--part-tokens", type=count, default=4096, help="most tokens of a part")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    path = arguments.output or HERE / "results" / "recipes.json"
    settings = {"part_tokens": arguments.part_tokens, "bfloat16": arguments.bfloat16}
    results = read_results(path, {**settings, "processor": machine()["processor"]})
    print("| recipe | parameters | tokens | parts | TFLOP | s a step | GB | steps | hours |")
    print("|---" * 9 + "|")
    for name in arguments.recipes:
        _, rows = size_of_step(Config.from_preset(name).training, arguments.part_tokens)
        if name not in results or results[name]["tokens"] != rows * LENGTH:
            flags = ["--steps", arguments.steps, "--part-tokens", arguments.part_tokens]
            precision = ["--bfloat16"] if arguments.bfloat16 else []
            results[name] = run_pinned("recipes_side.py", [name, *flags, *precision])
            write_results(path, {**settings, "results": results})
        print(row_of(name, results[name]), flush=True)


def row_of(name, measured):
    steps = Config.from_preset(name).training.max_steps
    on_gpu = measured.get("gpu_bytes") is not None  # its steps take little of the processor
    seconds = statistics.median_low(measured["wall_seconds" if on_gpu else "cpu_seconds"])
    gigabytes = measured["gpu_bytes"] / 2**30 if on_gpu else measured["megabytes"] / 1024
    hours = steps * seconds / 3600
    cells = (
        name,
        f"{measured['parameters']:,}",
        f"{measured['tokens']:,}",
        measured["micro_batches"],
        f"{6 * measured['parameters'] * measured['tokens'] / 1e12:.3g}",
        f"{seconds:.3g}",
        f"{gigabytes:.1f}",
        f"{steps:,}",
        f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
