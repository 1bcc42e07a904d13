"""Compares translation on one core and on two, by a SavedModel and by CTranslate2.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/two_cores.py RUN

exports RUN, a run trained on raw Multi30k, in both formats with greedy search and with a beam of 4,
and translates Multi30k's 1,000 test sentences (DATA/multi30k) from string to string, as `translate`
does: a batch of 64 on each core. CTranslate2 gets as many `inter_threads` as there are cores.
`benchmarks/serving_side.py` is the timed process; all take turns. Times are those of the clock, so
the cores must have nothing else to do.
"""

import argparse
import pathlib
import statistics
import tempfile

from pinned import HERE, count, multi30k, run_pinned, write_results

CORES = (1, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", help="a run directory, trained on raw Multi30k")
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "two-cores.json")
    arguments = parser.parse_args()
    from keras_transformer import load
    from keras_transformer.export import export_ctranslate2, export_saved_model
    from keras_transformer.files.text import iterate_lines

    formats = {"SavedModel": export_saved_model, "CTranslate2": export_ctranslate2}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = folder / "source.txt"
        text.write_text("\n".join(iterate_lines(multi30k() / "test_2016_flickr.en.gz")) + "\n")
        rates = {}
        for beam_size in (1, 4):
            translator = load(arguments.run, beam_size=beam_size)
            for name, write in formats.items():
                version = write(translator, folder / f"{name}-{beam_size}")
                rates[name, beam_size] = (version, {cores: [] for cores in CORES})
        for _ in range(arguments.repeats):
            for version, of_one in rates.values():
                for cores in CORES:
                    found = run_pinned("serving_side.py", [version, text], cores)
                    of_one[cores].append(found["sentences"] / found["seconds"])
    results = {}
    print("| | beam size | one core | two cores | gain |\n|---|---|---|---|---|")
    for (name, beam_size), (_, of_one) in rates.items():
        one, two = (statistics.median(of_one[cores]) for cores in CORES)
        results[f"{name}, beam size {beam_size}"] = {"one core": one, "two cores": two}
        print(f"| {name} | {beam_size} | {one:,.0f} | {two:,.0f} | {two / one:.2f} |")
    write_results(arguments.output, {"repeats": arguments.repeats, "sentences a second": results})


if __name__ == "__main__":
    main()
