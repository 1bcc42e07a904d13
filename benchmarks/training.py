"""Compares training speed with KerasHub, PyTorch and Hugging Face, on the same pinned cores.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/training.py --preset tiny

trains the same model on Multi30k (DATA/multi30k) in each library in turn, and prints target tokens
per second without padding: once with the same batches for all, and once with each library's own
batches of 4,096 padded tokens. Ours are from `TranslationBatches`. The others have no such feature,
and get the usual buckets of 8 tokens, padded to the longest. `benchmarks/training_side.py` is the
timed process.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import numpy as np
from pinned import HERE, count, multi30k, run_pinned, write_results
from training_side import SIDES as ALL_SIDES

SIDES = [side for side in ALL_SIDES if side != "matrix product"]
BATCHES = ("the same batches", "batches of their own")
BATCH_TOKENS = 4096
BUCKET_WIDTH = 8
# glibc then keeps the memory that is freed, which makes PyTorch 1.2 to 1.3 times as fast
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(20 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
}
LOSS_STEPS = 10  # the mean loss of this many last steps is compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=("tiny", "base"), default="tiny")
    parser.add_argument("--steps", type=count, default=40)
    parser.add_argument("--repeats", type=count, default=3)
    parser.add_argument("--cores", type=count, default=1)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--batches", nargs="+", choices=BATCHES, default=BATCHES)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        ours, usual = (pathlib.Path(folder, f"{name}.npz") for name in ("ours", "usual"))
        write_batches(ours, arguments.steps, usual)
        arguments.mkl = build_mkl_switch(pathlib.Path(folder))
        for precision in ("float32", "bfloat16"):
            for title in arguments.batches:
                of_peers = ours if title == BATCHES[0] else usual
                batches = {side: of_peers for side in arguments.sides}
                batches["keras_transformer"] = ours
                rows = measure(batches, precision, arguments)
                print_table(f"{arguments.preset}, {precision}, {title}", rows)
                results.append({"precision": precision, "batches": title, "sides": rows})
    settings = {name: getattr(arguments, name) for name in ("preset", "cores", "steps", "repeats")}
    path = arguments.output or HERE / "results" / f"training-{arguments.preset}.json"
    write_results(path, {**settings, "results": results})
    plot(results, path.with_suffix(".png"))


def write_batches(ours, num_batches, usual=None, batch_tokens=BATCH_TOKENS, static_shapes=0):
    """Writes our batches of Multi30k and, if there is a path, the usual; returns the tokenizer."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from keras_transformer.data import ParallelCorpus, TranslationBatches
    from keras_transformer.tokenizers import SentencePieceTokenizer

    folder = multi30k()
    corpus = ParallelCorpus.from_files(folder / "train.en.gz", folder / "train.de.gz")
    tokenizer = SentencePieceTokenizer.train([*corpus.source, *corpus.target], vocab_size=10_000)
    batches = TranslationBatches(
        corpus, tokenizer, batch_tokens=batch_tokens, seed=1, static_shapes=static_shapes
    )
    arrays = batches.arrays(repeat=False)
    all_batches = [(x["source_ids"], x["target_ids"], labels) for x, labels, _ in arrays]
    save(ours, all_batches[:num_batches])
    if usual is not None:
        save(usual, usual_batches(all_batches, np.random.default_rng(1))[:num_batches])
    return tokenizer


def build_mkl_switch(folder):
    """Returns the path of a library that lets PyTorch's MKL use AVX-512 on non-Intel processors.

    It makes PyTorch up to 1.4 times as fast there, and changes nothing on Intel processors. Returns
    None without a C compiler.
    """
    source, library = folder / "mkl.c", folder / "mkl.so"
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    if shutil.which("gcc") is None:
        return None
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def usual_batches(batches, rng):
    """Returns the same pairs in buckets of 8 tokens, as `bucket_by_sequence_length` does."""
    pairs = [
        [row[row != 0] for row in rows] for batch in batches for rows in zip(*batch, strict=True)
    ]
    rng.shuffle(pairs)
    buckets, result = {}, []
    for pair in pairs:
        ceiling = -(-max(map(len, pair)) // BUCKET_WIDTH) * BUCKET_WIDTH
        bucket = buckets.setdefault(ceiling, [])
        bucket.append(pair)
        if len(bucket) == BATCH_TOKENS // ceiling:
            result.append(tuple(padded(rows) for rows in zip(*buckets.pop(ceiling), strict=True)))
    return result


def padded(rows):
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def save(path, batches):
    names = ("source_ids", "target_ids", "labels")
    arrays = {
        f"{name}/{i}": array
        for i, batch in enumerate(batches)
        for name, array in zip(names, batch, strict=True)
    }
    np.savez(path, **arrays)


def measure(batches, precision, arguments):
    """Returns the results of each library, the median of repeats in turn."""
    runs = {side: [] for side in arguments.sides}
    for _ in range(arguments.repeats):
        for side in runs:
            flags = ["--bfloat16"] if precision == "bfloat16" else []
            flags += ["--batches", batches[side], "--preset", arguments.preset]
            flags += ["--threads", arguments.cores]
            variables = dict(ALLOCATOR)
            if arguments.mkl and side in ("PyTorch", "Marian"):
                variables["LD_PRELOAD"] = str(arguments.mkl)
            run = run_pinned("training_side.py", [side, *flags], arguments.cores, variables)
            runs[side].append(run)
    return {
        side: {
            "tokens_a_second": statistics.median(run["tokens_a_second"] for run in of_side),
            "megabytes": statistics.median(run["megabytes"] for run in of_side),
            "loss": statistics.mean(of_side[0]["losses"][-LOSS_STEPS:]),
        }
        for side, of_side in runs.items()
    }


def print_table(title, rows):
    print(f"\n{title}\n", flush=True)
    print("| | tokens a second | ours is faster by | peak MB | loss of the last steps |")
    print("|---|---|---|---|---|")
    best = rows["keras_transformer"]["tokens_a_second"] if "keras_transformer" in rows else None
    for side, row in rows.items():
        speed = row["tokens_a_second"]
        ratio = f"{best / speed:.2f}" if best and side != "keras_transformer" else ""
        print(f"| {side} | {speed:,.0f} | {ratio} | {row['megabytes']:,.0f} | {row['loss']:.3f} |")


def plot(results, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, len(results), sharey=True)
    for ax, result in zip(axes, results, strict=True):
        sides = result["sides"]
        ax.bar(range(len(sides)), [row["tokens_a_second"] for row in sides.values()])
        ax.set_xticks(range(len(sides)), sides, rotation=45, ha="right", fontsize=7)
        ax.set_title(f"{result['precision']},\n{result['batches']}", fontsize=8)
    axes[0].set_ylabel("target tokens a second")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
