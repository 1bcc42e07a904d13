"""Compares what each attention learns in the same time: steps, BLEU on Multi30k, translation time.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/attention_translation.py --minutes 12

measures how fast `tiny` trains with each kind of self-attention on the same batches of Multi30k
(DATA/multi30k), each kind in turn. Then it trains each kind for the given minutes, one after
another on the same pinned cores, exports it, and translates test_2016_flickr by the SavedModel
without XLA, with beam size 4. `benchmarks/attention_translation_side.py` does the training.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

import sacrebleu
from attention_translation_side import KINDS
from pinned import HERE, count, multi30k, positive, run_pinned, write_results
from training import write_batches

BEAM_SIZE = 4
BATCH_SIZES = (64, 1)
SENTENCES_ONE_AT_A_TIME = 200
SPEED_STEPS, SPEED_REPEATS = 15, 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=positive, default=12)
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()

    from keras_transformer.files.text import iterate_lines

    source, references = (
        list(iterate_lines(multi30k() / f"test_2016_flickr.{language}.gz"))
        for language in ("en", "de")
    )
    speeds = training_speeds(arguments.kinds, arguments.cores)
    print("| self-attention | tokens a second | steps | perplexity | BLEU | ms a sentence: 64, 1 |")
    print("|---|---|---|---|---|---|", flush=True)
    results = {}
    for kind in arguments.kinds:
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "source.txt").write_text("\n".join(source) + "\n")
            flags = ["--threads", arguments.cores, "--beam-size", BEAM_SIZE]
            trained = run_pinned(
                "attention_translation_side.py",
                [kind, folder, "--minutes", arguments.minutes, *flags],
                arguments.cores,
            )
            milliseconds = []
            for batch_size in BATCH_SIZES:
                number = len(source) if batch_size > 1 else SENTENCES_ONE_AT_A_TIME
                several = ["--batch-size", batch_size, "--sentences", number]
                side = ["keras_transformer", folder, *flags, *several]
                found = run_pinned("decoding_side.py", side, arguments.cores)
                milliseconds.append(1000 * found["seconds"] / number)
                if batch_size > 1:
                    bleu = sacrebleu.corpus_bleu(found["translations"], [references]).score
        results[kind] = {
            **trained,
            "tokens_a_second": speeds[kind],
            "bleu": bleu,
            "milliseconds_a_sentence": milliseconds,
        }
        print(
            f"| {kind} | {speeds[kind]:,.0f} | {trained['steps']:,} "
            f"| {trained['val_perplexity']:.2f} | {bleu:.2f} "
            f"| {milliseconds[0]:.2f}, {milliseconds[1]:.1f} |",
            flush=True,
        )
    path = arguments.output or HERE / "results" / "attention-translation.json"
    write_results(
        path, {"cores": arguments.cores, "minutes": arguments.minutes, "results": results}
    )


def training_speeds(kinds, cores):
    """Returns target tokens per second of each kind, the median of repeats in turn."""
    runs = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        batches = pathlib.Path(folder, "batches.npz")
        write_batches(batches, SPEED_STEPS)
        for _ in range(SPEED_REPEATS):
            for kind in kinds:
                flags = ["--batches", batches, "--preset", "tiny", "--threads", cores]
                flags += ["--model", json.dumps(KINDS[kind])]
                run = run_pinned("training_side.py", ["keras_transformer", *flags], cores)
                runs[kind].append(run["tokens_a_second"])
    return {kind: statistics.median(values) for kind, values in runs.items()}


if __name__ == "__main__":
    main()
