"""Measures how time and memory grow with the length of the source and with the batch size.

    python benchmarks/growth.py

runs one training step and one greedy search of the preset `tiny`, for lengths of 16 to 2,048 (4
sentences at once) and for 1 to 256 sentences (32 tokens each). The model is untrained, so every
search goes on to its limit, as many tokens as the source has. Each point is measured in its own
process, which is `benchmarks/growth_side.py`.
"""

import argparse
import pathlib

from growth_side import JOBS
from pinned import HERE, count, run_pinned, write_results

SWEEPS = {  # (batch, length) of each point
    "length": [(4, 2**i) for i in range(4, 12)],
    "batch": [(2**i, 32) for i in range(9)],
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    results = {}
    for job in JOBS:
        for sweep, points in SWEEPS.items():
            rows = []
            print(
                f"\n{job}\n\n| batch | length | ms | ms a piece | peak MB |\n|---|---|---|---|---|"
            )
            for batch, length in points:
                flags = [job, "--batch", batch, "--length", length, "--threads", arguments.cores]
                row = run_pinned("growth_side.py", flags, arguments.cores)
                rows.append({"batch": batch, "length": length, **row})
                time = 1000 * row["seconds"]
                print(
                    f"| {batch} | {length} | {time:,.1f} | {time / batch / length:.3f} "
                    f"| {row['megabytes']:,.0f} |",
                    flush=True,
                )
            results[f"{job} by {sweep}"] = rows
    path = arguments.output or HERE / "results" / "growth.json"
    write_results(path, {"cores": arguments.cores, "results": results})
    plot(results, path.with_suffix(".png"))


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    for row, (quantity, unit) in zip(
        figure.subplots(2, 2), (("seconds", "s"), ("megabytes", "MB")), strict=True
    ):
        for ax, sweep in zip(row, SWEEPS, strict=True):
            for job in JOBS:
                points = results[f"{job} by {sweep}"]
                ax.loglog(
                    [p[sweep] for p in points], [p[quantity] for p in points], "o-", label=job
                )
            ax.set_xlabel(sweep)
            ax.set_ylabel(unit)
            ax.grid(alpha=0.3)
            ax.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
