"""Draws BLEU by training text, size of the model, size of the vocabulary, and search.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/learning_curves.py --only data --runs RUNS
    KERAS_TRANSFORMER_DATA=DATA python benchmarks/learning_curves.py --only beam --run RUN

`data`, `model` and `vocabulary` train Multi30k en-de with the preset `tiny`, a run in the directory
RUNS for each point of the curve, and score it on test_2016_flickr. `tatoeba` does the same with
English-French sentences of Tatoeba. `beam` scores one trained RUN of Multi30k with each beam size
and each length penalty. Each point is written to
`results/learning-curve-*.json` as soon as it is measured, and the curve is drawn beside it. Started
again, the program goes on with the points that are left, from the last checkpoint of a run that was
stopped.
"""

import argparse
import json
import pathlib
import sys
import time

import keras
from pinned import (
    HERE,
    count,
    multi30k,
    positive,
    read_results,
    some_pairs,
    word_ratio,
    write_results,
)
from tutorial_model import read_pairs, test_text

import keras_transformer
from keras_transformer.cli import console
from keras_transformer.config import Config
from keras_transformer.data import ParallelCorpus
from keras_transformer.files.text import iterate_lines
from keras_transformer.plots.figures import BLUE, ORANGE, figure_style, new_figure, write
from keras_transformer.training import train
from keras_transformer.translation.evaluation import bleu, chrf

ALL_PAIRS = 29_000
# from the training pairs to the size of the vocabulary: little text has few subwords that repeat
DATA = {1_000: 2_000, 3_000: 4_000, 10_000: 8_000, ALL_PAIRS: 10_000}
TATOEBA = {5_000: 4_000, 15_000: 8_000, 50_000: 10_000, 162_107: 10_000}
WIDTHS = (32, 64, 128, 256)  # of the model; the feed-forward layers are twice as wide
VOCABULARIES = (2_000, 4_000, 10_000, 16_000)
BEAM_SIZES = (1, 2, 4, 8, 16, 32)
LENGTH_PENALTIES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5, 2.0)
TRAINED = {
    "data": ("training pairs", tuple(DATA)),
    "model": ("width of the model", WIDTHS),
    "vocabulary": ("size of the vocabulary", VOCABULARIES),
    "tatoeba": ("training pairs", tuple(TATOEBA)),
}
SEARCHES = {
    "beam_size": ("beam size", BEAM_SIZES),
    "length_penalty": ("length penalty", LENGTH_PENALTIES),
}


def settings_of(curve, point):
    """Returns the number of training pairs of a point, and what it changes of the preset."""
    if curve in ("data", "tatoeba"):
        sizes = DATA if curve == "data" else TATOEBA
        return point, [f"tokenizer.vocab_size={sizes[point]}"]
    if curve == "model":
        return ALL_PAIRS, [f"model.d_model={point}", f"model.ff_dim={2 * point}"]
    return ALL_PAIRS, [f"tokenizer.vocab_size={point}"]


def trained_point(curve, point, data, arguments):
    """Trains the run of a point, or goes on training it, and returns what was measured."""
    keras.backend.clear_session()
    num_pairs, changes = settings_of(curve, point)
    limits = [f"training.max_{name}={value}" for name, value in limits_of(arguments).items()]
    precision = f"training.mixed_precision={arguments.precision or 'null'}"
    patience = f"training.patience={arguments.patience}"
    config = Config.from_preset("tiny").override(
        [*changes, *limits, precision, patience, *arguments.set]
    )
    whole, valid, sources, references = text_of(curve, data)
    corpus = ParallelCorpus.from_pairs(some_pairs(whole, num_pairs))
    run = arguments.runs / f"{curve}-{point}"
    metrics = train(config, run, corpora=(corpus, valid))

    translator = keras_transformer.load(run)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "pairs": num_pairs,
        "vocabulary": config.tokenizer.vocab_size,
        "parameters": translator.model.count_params(),
        "steps": last["step"],
        "minutes": last["minutes"],
        "valid_bleu_greedy": metrics["val_bleu"],
        **scores(translator(sources), references),
    }


def text_of(curve, data):
    """Returns the training and validation corpus, the test sentences, and their references."""
    if curve == "tatoeba":
        corpora = (ParallelCorpus.from_pairs(read_pairs(name)) for name in ("train", "valid"))
        return *corpora, *test_text()
    corpora = (
        ParallelCorpus.from_files(data / f"{name}.en.gz", data / f"{name}.de.gz")
        for name in ("train", "val")
    )
    return *corpora, *captions(data)


def captions(data):
    """Returns the English sentences of test_2016_flickr, and the German ones."""
    return [list(iterate_lines(data / f"test_2016_flickr.{side}.gz")) for side in ("en", "de")]


def searched_point(name, value, data, arguments):
    """Returns the scores of the trained run with one setting of its search, and CPU seconds."""
    translator = keras_transformer.load(arguments.run, **{name: value})
    sources, references = captions(data)
    translator(sources[:64])  # builds the graph
    start = time.process_time()
    translations = translator(sources)
    seconds = time.process_time() - start
    return {**scores(translations, references), "cpu_seconds": seconds}


def scores(translations, references):
    """Returns the scores of translations of raw text.

    `references` is a list of str, or a list of such lists, whose first has no None.
    """
    score = bleu(translations, references, hints=False)
    first = references if isinstance(references[0], str) else references[0]
    return {
        "bleu": score.value,
        "chrf": chrf(translations, references).value,
        "length_ratio": word_ratio(translations, first),
        "signature": score.signature,
    }


def limits_of(arguments):
    limits = {"steps": arguments.steps, "minutes": arguments.minutes}
    return {name: value for name, value in limits.items() if value is not None}


def measure(curve, points, path, settings, point_of):
    """Measures the points of a curve that are not in `path` yet; prints a table of all."""
    results = read_results(path, settings)
    print(f"| {curve} | BLEU | chrF | length |\n|---|---|---|---|", flush=True)
    for point in points:
        if str(point) not in results:
            results[str(point)] = point_of(point)
            write_results(path, {**settings, "results": results})
        row = results[str(point)]
        print(
            f"| {point:,} | {row['bleu']:.2f} | {row['chrf']:.2f} | {row['length_ratio']:.3f} |",
            flush=True,
        )
    return results


def draw(results, xlabel, axis, in_powers, text="test_2016_flickr"):
    """Draws BLEU on a test text by the points of one curve."""
    points = sorted(map(float, results))
    rows = {float(point): row for point, row in results.items()}
    axis.plot(points, [rows[point]["bleu"] for point in points], "o-", color=BLUE)
    if in_powers:
        axis.set_xscale("log")
        axis.set_xticks(points, [f"{point:,.0f}" for point in points])
        axis.minorticks_off()
    axis.set(xlabel=xlabel, ylabel=f"BLEU, {text}")
    axis.grid(axis="y", color="#e6e6e6")


def draw_trained(results, xlabel, path, text):
    with figure_style():
        figure = new_figure((4.4, 3.2), layout="constrained")
        draw(results, xlabel, figure.subplots(), True, text)
        write(figure, path)


def draw_searches(results, path):
    """Draws BLEU by beam size, with the time that it takes, and by length penalty."""
    with figure_style():
        figure = new_figure((7.4, 3.2), layout="constrained")
        panels = zip(figure.subplots(1, len(results)), results.items(), strict=True)
        for axis, (name, rows) in panels:
            draw(rows, SEARCHES[name][0], axis, in_powers=name == "beam_size")
            if name == "beam_size":
                times = axis.twinx()
                points = sorted(rows, key=float)
                seconds = [rows[point]["cpu_seconds"] for point in points]
                times.plot([float(x) for x in points], seconds, "s--", color=ORANGE)
                times.set_ylabel("CPU seconds (dashed)", color=ORANGE)
                times.set_ylim(bottom=0)
        write(figure, path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=(*TRAINED, "beam"), required=True)
    parser.add_argument("--runs", type=pathlib.Path, help="directory of the runs of the points")
    parser.add_argument("--run", type=pathlib.Path, help="the trained run for `beam`")
    parser.add_argument("--steps", type=count, help="most steps of each point")
    parser.add_argument("--minutes", type=positive, help="most minutes of each point")
    parser.add_argument("--patience", type=int, default=10, help="of each training")
    parser.add_argument("--precision", choices=("mixed_bfloat16",), help="default: float32")
    parser.add_argument("--points", type=positive, nargs="+", help="of each curve; default: all")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="group.key=value", help="settings of each training"
    )
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results")
    arguments = parser.parse_args()
    is_training = set(arguments.only) & set(TRAINED)
    if is_training and (arguments.runs is None or not limits_of(arguments)):
        parser.error("a training needs --runs, and --steps or --minutes")
    if "beam" in arguments.only and arguments.run is None:
        parser.error("the search needs a trained --run")
    data = None if arguments.only == ["tatoeba"] else multi30k()

    def chosen(points):
        return [point for point in points if point in (arguments.points or points)]

    def path_of(name):
        return arguments.output / f"learning-curve-{name.replace('_', '-')}.json"

    for curve in arguments.only:
        path = path_of(curve)
        if curve == "beam":
            results = {
                name: measure(
                    name,
                    chosen(points),
                    path_of(name),
                    {"run": arguments.run.name},
                    lambda value, name=name: searched_point(name, value, data, arguments),
                )
                for name, (_, points) in SEARCHES.items()
            }
            draw_searches(results, path.with_suffix(".png"))
            continue
        xlabel, points = TRAINED[curve]
        settings = {
            "preset": "tiny",
            **limits_of(arguments),
            "patience": arguments.patience,
            "precision": arguments.precision or "float32",
            "set": arguments.set,
        }
        results = measure(
            curve,
            chosen(points),
            path,
            settings,
            lambda point, curve=curve: trained_point(curve, point, data, arguments),
        )
        text = "Tatoeba" if curve == "tatoeba" else "test_2016_flickr"
        draw_trained(results, xlabel, path.with_suffix(".png"), text)


if __name__ == "__main__":
    sys.exit(console.run(main))
