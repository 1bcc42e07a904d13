"""Compares decoding speed with CTranslate2 and Hugging Face, with one model, on the same cores.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/decoding.py RUN

translates Multi30k's 1,000 test sentences (DATA/multi30k) with the weights of RUN, a run of the
preset `tiny`: with our exported SavedModel without XLA, as TensorFlow Serving runs it, and with the
same weights in CTranslate2 and in Hugging Face. Sides named "shortlist" choose from `--shortlist`
likely translations of each source token, by the same lexicon. Sides named "int8" compute in int8,
ours only on processors with VNNI or AMX, whose features are printed. Times are from string to
string, including tokenization. `benchmarks/decoding_side.py` is the timed process; its search
settings are as similar as the options of the peers allow. Where a translation differs from ours,
our model scores both, to tell which search has found the more probable one.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

import sacrebleu
from decoding_side import LENGTH_PENALTY, SIDES, export_name
from pinned import HERE, count, machine, multi30k, run_pinned, write_results

BEAM_SIZES = (1, 4)
TASKS = {  # (beam size, sentences at once)
    "greedy, 64 at once": (1, 64),
    "beam 4, 64 at once": (4, 64),
    "greedy, one at a time": (1, 1),
    "beam 4, one at a time": (4, 1),
}
SENTENCES_OF_HUGGING_FACE = 200  # one at a time, all of them would take minutes
NEAR_TIE = 1e-3  # nats; rounding may swap two translations that are closer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", help="a run directory, trained on raw Multi30k")
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--shortlist", type=count, default=50, help="of the sides of that name")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    results = {}
    print(" ".join(map(str, machine().values())), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = write_models(arguments.run, folder, arguments.sides, arguments.shortlist)
        for task in arguments.tasks:
            results[task] = measure(task, folder, *text, arguments)
            print_table(task, results[task])
    path = arguments.output or HERE / "results" / "decoding.json"
    settings = {name: getattr(arguments, name) for name in ("cores", "repeats", "shortlist")}
    write_results(path, {**settings, "results": results})
    plot(results, path.with_suffix(".png"))


def write_models(run, folder, sides, num_translations):
    """Writes the models of all libraries, and the source text.

    Returns the translator, the source lines and the references.
    """
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import peer_models

    from keras_transformer import Translator, load
    from keras_transformer.export import export_saved_model
    from keras_transformer.export.ctranslate2_model import write_ctranslate2
    from keras_transformer.files.text import iterate_lines
    from keras_transformer.translation.lexicon import Lexicon

    data = multi30k()
    plain = load(run, length_penalty=LENGTH_PENALTY)
    lexicon = None
    if any("shortlist" in side for side in sides):
        corpus = data / "train.en.gz", data / "train.de.gz"
        tokens = (plain.tokenizer.encode(list(iterate_lines(path))) for path in corpus)
        rows = ([row.numpy() for row in each] for each in tokens)
        lexicon = Lexicon.learn(*rows, plain.tokenizer.vocab_size)
    for beam_size in BEAM_SIZES:
        for size in [0, num_translations] if lexicon else [0]:
            search = dataclasses.replace(plain.decoding, beam_size=beam_size, shortlist=size)
            translator = Translator(plain.model, plain.tokenizer, None, search, lexicon=lexicon)
            kind = "-shortlist" if size else ""
            export_saved_model(translator, folder / export_name(beam_size, kind))
            if "keras_transformer int8" in sides and not size:
                path = folder / export_name(beam_size, "-int8")
                export_saved_model(translator, path, weights="int8")
    for name in ("ctranslate2", "ctranslate2-shortlist"):
        (folder / name).mkdir()
        write_ctranslate2(plain, folder / name)
    if lexicon:
        path = folder / "ctranslate2-shortlist" / "vmap.txt"
        peer_models.write_vocabulary_map(lexicon.top(num_translations), plain.tokenizer, path)
    if "Hugging Face" in sides:
        peer_models.write_hugging_face(plain.model, folder / "hugging_face.pt")
    (tokenizer,) = pathlib.Path(run).glob("tokenizer/*.model")
    shutil.copy(tokenizer, folder / "tokenizer.model")
    source = list(iterate_lines(data / "test_2016_flickr.en.gz"))
    (folder / "source.txt").write_text("\n".join(source) + "\n")
    return plain, source, list(iterate_lines(data / "test_2016_flickr.de.gz"))


def measure(task, folder, translator, source, references, arguments):
    """Returns the results of each library, the median of repeats in turn."""
    beam_size, batch_size = TASKS[task]
    runs = {side: [] for side in arguments.sides}
    for _ in range(arguments.repeats):
        for side in runs:
            slow = side == "Hugging Face" and batch_size == 1
            sentences = SENTENCES_OF_HUGGING_FACE if slow else len(references)
            flags = ["--beam-size", beam_size, "--batch-size", batch_size]
            flags += ["--threads", arguments.cores, "--sentences", sentences]
            runs[side].append(
                run_pinned("decoding_side.py", [side, folder, *flags], arguments.cores)
            )
    ours = runs[arguments.sides[0]][0]["translations"]
    rows = {}
    for side, of_side in runs.items():
        found = of_side[0]["translations"]
        seconds = statistics.median(run["seconds"] for run in of_side)
        differing = [i for i, line in enumerate(found) if line != ours[i]]
        of_theirs, of_ours = (
            translator.score([source[i] for i in differing], [lines[i] for i in differing])
            for lines in (found, ours)
        )
        rows[side] = {
            "milliseconds_a_sentence": 1000 * seconds / len(found),
            "megabytes": statistics.median(run["megabytes"] for run in of_side),
            "bleu": sacrebleu.corpus_bleu(found, [references[: len(found)]]).score,
            "same_as_ours": 1 - len(differing) / len(found),
            "ours_more_probable": int(sum(of_ours > of_theirs + NEAR_TIE)),
            "near_ties": int(sum(abs(of_ours - of_theirs) <= NEAR_TIE)),
            "theirs_more_probable": int(sum(of_theirs > of_ours + NEAR_TIE)),
        }
    return rows


def print_table(task, rows):
    print(f"\n{task}\n", flush=True)
    print(
        "| | ms a sentence | ours is faster by | peak MB | BLEU | same as ours "
        "| others: ours more probable / near ties / theirs |"
    )
    print("|---|---|---|---|---|---|---|")
    (first, ours), *_ = rows.items()
    for side, row in rows.items():
        time = row["milliseconds_a_sentence"]
        ratio = "" if side == first else f"{time / ours['milliseconds_a_sentence']:.2f}"
        print(
            f"| {side} | {time:.3f} | {ratio} | {row['megabytes']:,.0f} | {row['bleu']:.2f} "
            f"| {row['same_as_ours']:.1%} | {row['ours_more_probable']} / {row['near_ties']} / "
            f"{row['theirs_more_probable']} |"
        )
    sys.stdout.flush()


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for ax, (task, sides) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
        ax.bar(range(len(sides)), [row["milliseconds_a_sentence"] for row in sides.values()])
        ax.set_xticks(range(len(sides)), sides, rotation=45, ha="right", fontsize=7)
        ax.set_title(task, fontsize=8)
        ax.set_ylabel("ms a sentence", fontsize=7)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
