"""Scores several runs by the length of the source: how well does each translate long sentences?

    python benchmarks/bleu_by_length.py --runs RUN RUN ... --source F --target F

translates F with each run, groups the sentences by the number of words of their source, and prints
a table of BLEU for each group and for all. It writes the numbers to
`benchmarks/results/bleu-by-length.json` and draws them beside it as a PNG. `--labels` names the
runs in table and picture; without it, their directories do.
"""

import argparse
import pathlib

from pinned import HERE, count, write_results

import keras_transformer
from keras_transformer.files.text import iterate_lines
from keras_transformer.plots import bleu_by_length
from keras_transformer.translation.evaluation import bleu, length_groups


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", nargs="+", required=True, metavar="RUN")
    parser.add_argument("--labels", nargs="+", metavar="LABEL")
    parser.add_argument("--source", required=True, metavar="F")
    parser.add_argument("--target", required=True, metavar="F")
    parser.add_argument("--beam-size", type=count, default=5)
    parser.add_argument(
        "--edges", type=count, nargs="+", default=[9, 12, 15, 19], help="first words of a group"
    )
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    labels = arguments.labels or [pathlib.Path(run).name for run in arguments.runs]
    if len(labels) != len(arguments.runs):
        parser.error(f"{len(arguments.runs)} runs need as many labels; received {len(labels)}")
    if len(set(labels)) != len(labels):
        parser.error(f"expected different labels; received {labels}")
    sources = list(iterate_lines(arguments.source))
    references = list(iterate_lines(arguments.target))
    if len(sources) != len(references):
        parser.error(f"{len(sources)} source lines have {len(references)} lines of target")
    groups = length_groups(sources, arguments.edges)

    print("| source words |", " | ".join([*groups, "all"]), "|")
    print("|---" * (len(groups) + 2) + "|")
    counts = [len(rows) for rows in groups.values()]
    print("| sentences |", " | ".join(map(str, [*counts, len(sources)])), "|", flush=True)
    results, translated = {}, {}
    for label, run in zip(labels, arguments.runs, strict=True):
        translations = keras_transformer.load(run, beam_size=arguments.beam_size)(sources)
        scores = {name: score_of(rows, translations, references) for name, rows in groups.items()}
        translated[label] = translations
        whole = bleu(translations, references)
        results[label] = {"all": whole.value, "by_length": scores, "signature": whole.signature}
        values = [*scores.values(), whole.value]
        print(f"| {label} |", " | ".join(f"{value:.1f}" for value in values), "|", flush=True)
    sizes = dict(zip(groups, counts, strict=True))
    path = arguments.output or HERE / "results" / "bleu-by-length.json"
    conditions = {"source": pathlib.Path(arguments.source).name, "beam_size": arguments.beam_size}
    write_results(path, {**conditions, "sentences": sizes, "results": results})
    picture = path.with_suffix(".png")
    bleu_by_length(sources, references, translated, picture, arguments.edges)


def score_of(rows, translations, references):
    """Returns the corpus BLEU of some sentences."""
    hypotheses, references = ([texts[i] for i in rows] for texts in (translations, references))
    return bleu(hypotheses, references, hints=False).value


if __name__ == "__main__":
    main()
