"""Scores several runs by the length of the source: how well does each translate long sentences?

    python benchmarks/bleu_by_length.py --runs RUN RUN ... --source F --target F

translates F with each run, groups the sentences by the number of words of their source, and prints
a table of BLEU for each group and for all. It writes the numbers to
`benchmarks/results/bleu-by-length.json` and draws them beside it as a PNG. `--labels` names the
runs in table and picture; without it, their directories do.
"""

import argparse
import pathlib

from matplotlib import colormaps
from matplotlib.figure import Figure
from pinned import HERE, write_results

import keras_transformer
from keras_transformer.evaluation import bleu
from keras_transformer.text_files import iterate_lines

COLOURS = colormaps["tab10"].colors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", nargs="+", required=True, metavar="RUN")
    parser.add_argument("--labels", nargs="+", metavar="LABEL")
    parser.add_argument("--source", required=True, metavar="F")
    parser.add_argument("--target", required=True, metavar="F")
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[9, 12, 15, 19], help="first words of a group"
    )
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    labels = arguments.labels or [pathlib.Path(run).name for run in arguments.runs]
    if len(labels) != len(arguments.runs):
        parser.error(f"{len(arguments.runs)} runs need as many labels; received {len(labels)}")
    if len(set(labels)) != len(labels) or len(labels) > len(COLOURS):
        parser.error(f"expected at most {len(COLOURS)} different labels; received {labels}")
    if arguments.edges != sorted(set(arguments.edges)) or arguments.edges[0] < 2:
        parser.error(f"expected rising edges from 2; received {arguments.edges}")
    sources = list(iterate_lines(arguments.source))
    references = list(iterate_lines(arguments.target))
    if len(sources) != len(references):
        parser.error(f"{len(sources)} source lines have {len(references)} lines of target")
    groups = grouped(sources, arguments.edges)

    print("| source words |", " | ".join([*groups, "all"]), "|")
    print("|---" * (len(groups) + 2) + "|")
    counts = [len(rows) for rows in groups.values()]
    print("| sentences |", " | ".join(map(str, [*counts, len(sources)])), "|", flush=True)
    results = {}
    for label, run in zip(labels, arguments.runs, strict=True):
        translations = keras_transformer.load(run, beam_size=arguments.beam_size)(sources)
        scores = {name: score_of(rows, translations, references) for name, rows in groups.items()}
        whole = bleu(translations, references)
        results[label] = {"all": whole.value, "by_length": scores, "signature": whole.signature}
        values = [*scores.values(), whole.value]
        print(f"| {label} |", " | ".join(f"{value:.1f}" for value in values), "|", flush=True)
    sizes = dict(zip(groups, counts, strict=True))
    path = arguments.output or HERE / "results" / "bleu-by-length.json"
    conditions = {"source": pathlib.Path(arguments.source).name, "beam_size": arguments.beam_size}
    write_results(path, {**conditions, "sentences": sizes, "results": results})
    draw(sizes, results, path.with_suffix(".png"))


def grouped(sources, edges):
    """Returns a dict from the name of a group, such as "9-11", to the indices of its sentences."""
    lengths = [len(source.split()) for source in sources]
    groups = {}
    for first, end in zip([0, *edges], [*edges, None], strict=True):
        name = f"{first}+" if end is None else f"{first}-{end - 1}"
        rows = [
            i for i, length in enumerate(lengths) if length >= first and not (end and length >= end)
        ]
        if rows:
            groups[name] = rows
    return groups


def score_of(rows, translations, references):
    """Returns the corpus BLEU of some sentences."""
    hypotheses, references = ([texts[i] for i in rows] for texts in (translations, references))
    return bleu(hypotheses, references, hints=False).value


def draw(sizes, results, path):
    """Draws a curve for each run over the groups of lengths."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    for colour, (label, found) in zip(COLOURS, results.items(), strict=False):
        label = f"{label} ({found['all']:.1f})"
        axis.plot(list(sizes), list(found["by_length"].values()), "o-", color=colour, label=label)
    names = [f"{name}\n{count} sentences" for name, count in sizes.items()]
    axis.set_xticks(range(len(names)), names)
    axis.set(xlabel="words of the source", ylabel="BLEU")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#e6e6e6")
    axis.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
