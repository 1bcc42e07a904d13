"""Draws validation BLEU against the minutes of the trainings that are kept in `results/quality`.

    python benchmarks/quality.py

Each training is kept as NAME.yaml, its settings, and NAME.jsonl, its validations: the files
`config.yaml` and `metrics.jsonl` of the run. The trainings of one kind have one color. All
translate Multi30k en-de, lowercased and tokenized, but for `raw-*`, with greedy search.
`benchmarks/README.md` names the processors, and `scores.json` has the final scores. Those in
`french` translate en-fr and those in `backward` de-en; they are not drawn. The training of a
teacher is not part of the minutes of a run that learns from it or from its translations.

`keras-transformer train --config NAME.yaml` trains such a run again, with these exceptions. The
peak of `rdrop-16000` was lowered by hand, twice. A run that is distilled needs its teachers at the
paths in its settings; `distilled-three*` begins with `--init-from` the first of them, and
`diversified-longer-zen4` with `diversified-wide-4-h100`. `distilled-three-back-zen4` also needs the
text translated back as `bt_all.en` and `bt_all.de`, and `diversified-*` the text with its
translations as `all.en` and `all.de` (`diversified-nine-*`: `nine.en` and `nine.de`, with those of
four more models), and the tokenizer of `wide-dropout-4-8000-h100` at the path in its settings. The
search in the settings may be the one that `tune-decoding` has chosen: `evaluate --beam-size 5
--length-penalty 0.6` repeats a score that was not tuned.
"""

import json

from pinned import HERE

from keras_transformer.plots.figures import colours_of, figure_style, new_figure, write

RUNS = HERE / "results" / "quality"
GROUPS = {
    "R-Drop": ["rdrop-16000", "rdrop-linear-14000"],
    "batches of 4,096 tokens": [
        "linear-6000",
        "linear-9000-zen4",
        "linear-9000-dropout-ema",
        "linear-9000-smooth-zen4",
    ],
    "the recipe": ["linear-8192-8000-xeon"],
    "raw text": ["raw-9000-xeon", "raw-8192-8000-h200", "raw-8192-8000-h100"],
    "distilled": [
        "distilled-zen4",
        "distilled-three-zen4",
        "distilled-three-back-zen4",
        "distilled-wide-3-h200",
        "distilled-wide-4-h200",
    ],
    "width 256": ["wide-dropout-3-h200", "wide-dropout-4-h200", "wide-dropout-4-8000-h100"],
    "width 256, with translations": [
        "diversified-wide-3-h100",
        "diversified-wide-4-h100",
        "diversified-longer-zen4",
        "diversified-nine-wide-4-h100",
        "diversified-nine-deep-4-h100",
        "diversified-nine-wide-5-h100",
    ],
}
"""The trainings of each kind, by their names without the seeds; the last are drawn on top."""
GPUS = "-h100", "-h200"
"""The ends of the names of those that ran on a GPU."""
MARIAN = {8: 12.3, 12: 24.0, 20: 30.1}
"""Minutes and BLEU of Hugging Face's `MarianMTModel` on one core: raw text, cased, greedy."""
BEFORE = {
    1.3: 1.6, 2.4: 12.2, 4.9: 22.6, 9.7: 33.7, 15.3: 36.0, 20.8: 38.2, 31.7: 39.0, 42.2: 39.6,
    52.8: 40.2, 59.8: 40.9,
}  # fmt: skip
"""The same of the preset `tiny` in float32 on two cores, tokenized text (docs/results.md)."""


def curve(path):
    """Returns the minutes and the BLEU of the validations of a training."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if "weights" not in row]  # of the steps, not of the chosen weights
    return [row["minutes"] for row in rows], [row["val_bleu"] for row in rows]


def draw(axis, ylim, on_gpu=False):
    for (label, names), color in zip(GROUPS.items(), colours_of(GROUPS), strict=True):
        for name in names:
            for path in [RUNS / f"{name}.jsonl", *sorted(RUNS.glob(f"{name}-seed-*.jsonl"))]:
                if name.endswith(GPUS) == on_gpu:
                    axis.plot(*curve(path), color=color, label=label)
                    label = None  # once for all trainings of a kind
    if not on_gpu:
        axis.plot(MARIAN.keys(), MARIAN.values(), "s", color="#1f2937", label="Marian, raw text")
        axis.plot(BEFORE.keys(), BEFORE.values(), "x", color="#1f2937", label="tiny, two cores")
    axis.set(xlabel="minutes, GPU" if on_gpu else "minutes, CPU", ylim=ylim)
    axis.grid(axis="y", color="#e6e6e6")


def main():
    kept = {path.stem.partition("-seed-")[0] for path in RUNS.glob("*.jsonl")}
    if missing := kept - set(sum(GROUPS.values(), [])):
        raise ValueError(f"Expected a kind for each training. Received: {missing}. Add to GROUPS.")
    with figure_style():
        figure = new_figure((9.6, 4.4), layout="constrained")
        whole, end, gpu = figure.subplots(1, 3, width_ratios=(5, 5, 3))
        draw(whole, (0, None))
        draw(end, (36, 44))
        draw(gpu, (30, 44), on_gpu=True)
        whole.set_ylabel("validation BLEU, greedy")
        found = dict.fromkeys(GROUPS)  # one line of each kind, wherever it is drawn
        for axis in (whole, gpu):
            handles, labels = axis.get_legend_handles_labels()
            found.update(zip(labels, handles, strict=True))
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=5)
        write(figure, RUNS.with_suffix(".png"))


if __name__ == "__main__":
    main()
