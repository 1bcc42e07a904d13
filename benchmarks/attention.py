"""Measures how time and memory of each attention grow with the length.

    python benchmarks/attention.py

runs causal self-attention with one head of width 64 and batch size 1, forward and with its
gradient, for lengths of 128 to 16,384. Each point is measured in its own process, which is
`benchmarks/attention_side.py`. The first length that does not fit into memory is the last one of
its kind.
"""

import argparse
import pathlib

import numpy as np
from attention_side import KINDS
from pinned import HERE, count, run_pinned, write_results

LENGTHS = [2**i for i in range(7, 15)]
PASSES = {"forward": "forward", "backward": "forward and backward"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--lengths", nargs="+", type=count, default=LENGTHS)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    results = {}
    for kind in arguments.kinds:
        print(f"\n{kind}\n\n| length | forward: ms, MB | and backward: ms, MB |\n|---|---|---|")
        results[kind] = []
        for length in arguments.lengths:
            flags = [kind, "--length", length, "--threads", arguments.cores]
            try:
                point = run_pinned("attention_side.py", flags, arguments.cores)
            except SystemExit as failure:
                if not any(word in str(failure) for word in ("OOM", "bad_alloc", "failed (-9)")):
                    raise
                print(f"| {length:,} | out of memory | |", flush=True)
                break
            results[kind].append({"length": length, **point})
            cells = [
                f"{1000 * point[name]['seconds']:,.1f}, "
                f"{point[name]['megabytes'] - point['idle_megabytes']:,.0f}"
                for name in PASSES
            ]
            print(f"| {length:,} | {cells[0]} | {cells[1]} |", flush=True)
    path = arguments.output or HERE / "results" / "attention.json"
    write_results(path, {"cores": arguments.cores, "results": results})
    plot(results, path.with_suffix(".png"))


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    for column, (name, title) in enumerate(PASSES.items()):
        for kind, points in results.items():
            lengths = [point["length"] for point in points]
            times = [point[name]["seconds"] for point in points]
            memory = [point[name]["megabytes"] - point["idle_megabytes"] for point in points]
            for ax, values in zip(axes[:, column], (times, memory), strict=True):
                label = f"{kind}: {slope(lengths, values):.2f}"
                ax.loglog(lengths, values, "o-", markersize=3, label=label)
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("length")
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("MB above those before the first call")
    for ax in axes.flat:
        left, right = lengths[-4], lengths[-1]
        low = min(line.get_ydata()[-4] for line in ax.lines)
        for power in (1, 2):  # linear and quadratic growth
            ax.loglog([left, right], [low / 2, low / 2 * (right / left) ** power], "k:", alpha=0.6)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=6, title="growth at the end: length to the", title_fontsize=6)
    figure.savefig(path, dpi=150)


def slope(lengths, values):
    """Returns the exponent with which the last three values grow with the length."""
    logs = np.log([lengths[-3:], values[-3:]])
    return np.polyfit(*logs, 1)[0]


if __name__ == "__main__":
    main()
