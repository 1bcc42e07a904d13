"""Compares the formats and types of weights that `export` writes, and models, on one core.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/formats.py RUN [RUN ...]

exports each RUN, trained on raw Multi30k, in each format, and translates Multi30k's 1,000 test
sentences (DATA/multi30k) from string to string, by greedy search or with a beam, 64 at a time and
one at a time. A shortlist that a run's settings have is used. Random weights, whose translations do
not end, need a `--max-length` that all sentences reach, as CTranslate2 has one limit for a batch.
It prints the processor, as int8 computes in int8 on those with VNNI or AMX alone.
`benchmarks/formats_side.py` is the timed process; the formats take turns.
"""

import argparse
import itertools
import pathlib
import statistics
import tempfile

import sacrebleu
from pinned import HERE, count, machine, multi30k, run_pinned, write_results

FORMATS = ("SavedModel", "CTranslate2")
TYPES = ("float32", "float16", "bfloat16", "int8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", help="run directories, trained on raw Multi30k")
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--beam-size", type=count, default=1)
    parser.add_argument("--max-length", type=count, help="limit of a translation in tokens")
    parser.add_argument("--alone", type=count, default=100, help="sentences translated alone")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "formats.json")
    arguments = parser.parse_args()
    from keras_transformer.files.text import iterate_lines

    data = multi30k()
    source = list(iterate_lines(data / "test_2016_flickr.en.gz"))
    references = list(iterate_lines(data / "test_2016_flickr.de.gz"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "source.txt").write_text("\n".join(source) + "\n")
        versions = export(arguments, folder)
        runs = {name: [] for name in versions}
        for _ in range(arguments.repeats):
            for name, version in versions.items():
                flags = [version, folder / "source.txt", "--alone", arguments.alone]
                runs[name].append(run_pinned("formats_side.py", flags))
        results = {
            name: summary(of_one, versions[name], references) for name, of_one in runs.items()
        }
    first = next(iter(runs.values()))[0]["translations"]
    for name, of_one in runs.items():
        found = of_one[0]["translations"]
        results[name]["same_as_first"] = sum(map(str.__eq__, found, first)) / len(first)
    settings = {name: getattr(arguments, name) for name in ("repeats", "beam_size", "max_length")}
    write_results(arguments.output, {**settings, "results": results})
    print(" ".join(map(str, machine().values())))
    print_table(results)


def export(arguments, folder):
    """Returns the path of each export: dict from the name of a row."""
    from keras_transformer import load
    from keras_transformer.export import export_ctranslate2, export_saved_model

    writers = dict(zip(FORMATS, (export_saved_model, export_ctranslate2), strict=True))
    versions = {}
    for run in map(pathlib.Path, arguments.runs):
        search = {name: getattr(arguments, name) for name in ("beam_size", "max_length")}
        given = {name: value for name, value in search.items() if value is not None}
        translator = load(run, **given)
        for label, weights in itertools.product(arguments.formats, arguments.types):
            name = f"{run.name} {label} {weights}"
            versions[name] = writers[label](translator, folder / run.name / label, weights=weights)
    return versions


def summary(runs, version, references):
    """Returns the medians of the runs of one export, its size and its BLEU."""
    names = ("seconds_of_loading", "milliseconds_64", "milliseconds_1", "megabytes")
    size = sum(file.stat().st_size for file in version.rglob("*") if file.is_file())
    return {
        **{name: statistics.median(run[name] for run in runs) for name in names},
        "megabytes_on_disk": size / 1e6,
        "bleu": sacrebleu.corpus_bleu(runs[0]["translations"], [references]).score,
    }


def print_table(results):
    first = next(iter(results.values()))
    print("| | MB on disk | s to load | peak MB | 64 at once, ms | alone, ms | BLEU | same |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in results.items():
        times = [
            f"{row[key]:.2f} ({first[key] / row[key]:.2f})"
            for key in ("milliseconds_64", "milliseconds_1")
        ]
        print(
            f"| {name} | {row['megabytes_on_disk']:.1f} | {row['seconds_of_loading']:.1f} "
            f"| {row['megabytes']:,.0f} | {' | '.join(times)} | {row['bleu']:.2f} "
            f"| {row['same_as_first']:.1%} |"
        )


if __name__ == "__main__":
    main()
