"""Draws validation BLEU against the minutes of the trainings that are kept in `results/quality`.

    python benchmarks/quality.py

Each training is kept as NAME.yaml, its settings, and NAME.jsonl, its validations: the files
`config.yaml` and `metrics.jsonl` of the run. The seeds of one training have one color. All
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

from keras_transformer.plots.drawing import BLUE, ORANGE, house_style, new_figure, write

RUNS = HERE / "results" / "quality"
COLORS = {
    "linear-6000": "#93b7e0",
    "linear-9000-zen4": BLUE,
    "linear-9000-dropout-ema": "#17becf",
    "linear-8192-8000-xeon": "#1f2f6b",
    "rdrop-16000": "#bdbdbd",
    "rdrop-linear-14000": "#7f7f7f",
    "distilled-zen4": "#a5d6b7",
    "distilled-three-zen4": "#2a9d6f",
    "distilled-three-back-zen4": "#14532d",
    "raw-9000-xeon": "#b0568f",
    "wide-dropout-3-h200": "#f2b366",
    "wide-dropout-4-h200": "#b45309",
    "distilled-wide-3-h200": "#d6c3a5",
    "distilled-wide-4-h200": "#8c6d46",
    "raw-8192-8000-h200": "#dba3c8",
    "wide-dropout-4-8000-h100": "#be123c",
    "diversified-wide-3-h100": "#6ee7b7",
    "diversified-wide-4-h100": "#047857",
    "diversified-longer-zen4": "#dc2626",
    "diversified-nine-wide-4-h100": "#0ea5a4",
    "diversified-nine-deep-4-h100": "#134e4a",
    "diversified-nine-wide-5-h100": "#99f6e4",
    "raw-8192-8000-h100": "#7e22ce",
}  # by the name without the seed
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
    for name, color in COLORS.items():
        label = name
        for path in [RUNS / f"{name}.jsonl", *sorted(RUNS.glob(f"{name}-seed-*.jsonl"))]:
            if name.endswith(GPUS) == on_gpu:
                axis.plot(*curve(path), color=color, linewidth=1.2, label=label)
            label = None  # once for all seeds
    if not on_gpu:
        axis.plot(MARIAN.keys(), MARIAN.values(), "s", color=ORANGE, label="Marian, raw text")
        axis.plot(BEFORE.keys(), BEFORE.values(), "x", color="#1f2937", label="tiny, two cores")
    axis.set(xlabel="minutes, GPU" if on_gpu else "minutes, CPU", ylim=ylim)
    axis.grid(axis="y", color="#e6e6e6")


def main():
    names = {path.stem.partition("-seed-")[0] for path in RUNS.glob("*.jsonl")}
    if missing := names - set(COLORS):
        raise ValueError(f"Expected a color for each training. Received: {missing}. Add to COLORS.")
    with house_style():
        figure = new_figure((9.6, 4.4), layout="constrained")
        whole, end, gpu = figure.subplots(1, 3, width_ratios=(5, 5, 3))
        draw(whole, (0, None))
        draw(end, (36, 44))
        draw(gpu, (30, 44), on_gpu=True)
        whole.set_ylabel("validation BLEU, greedy")
        handles, labels = (
            sum(each, [])
            for each in zip(*(a.get_legend_handles_labels() for a in (whole, gpu)), strict=True)
        )
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        write(figure, RUNS.with_suffix(".png"))


if __name__ == "__main__":
    main()
