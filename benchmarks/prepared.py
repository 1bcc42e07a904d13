"""Prepared text beside text in memory: preparation on one core and on two, and trainings.

Makes pairs of recombined sentences of Multi30k and Tatoeba, and prepares them. Then it measures
reading: milliseconds for each batch, the peak memory of a training, and the seconds to its first
step; with `--turns`, a training on shards and in memory by turns, in the backend of KERAS_BACKEND.
`repeat` lists each shard several times, under other names, in place of more text: a training
reads them all, and preparing them would take as many times as long.

    python benchmarks/prepared.py make --data DIR --pairs 20000000 --output WORK
    python benchmarks/prepared.py prepare --output WORK --cores 0,1
    python benchmarks/prepared.py repeat --output WORK --times 4
    python benchmarks/prepared.py train --output WORK --cores 0 --steps 300 [--in-memory PAIRS]
    python benchmarks/prepared.py train --output WORK --cores 0 --steps 20 --turns 3
    python benchmarks/prepared.py formats --output WORK
"""

import argparse
import dataclasses
import gzip
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from keras_transformer.config import DataConfig
from keras_transformer.data.prepared import PreparedBatches, PreparedCorpus
from keras_transformer.data.shards import Manifest, read_shard, shard_name

CHUNK = 100_000
VALIDATION_PAIRS = 1000
TOKENIZER_PAIRS = 200_000
SIDE = str(pathlib.Path(__file__).with_name("prepared_side.py"))


def sentences(data):
    """Returns the pairs of Multi30k (en-de) and of Tatoeba (en-fr): two lists."""
    sides = [
        gzip.open(data / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8")
        for language in ("en", "de")
    ]
    captions = [(a.strip(), b.strip()) for a, b in zip(*sides, strict=True)]
    with gzip.open(data / "tatoeba" / "train.en-fr.tsv.gz", "rt", encoding="utf-8") as file:
        others = [tuple(line.rstrip("\n").split("\t")[:2]) for line in file]
    return captions, others


def make(arguments):
    """Writes pairs that join two captions, or one or two sentences of Tatoeba, one tsv for each."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    corpora = dict(zip(("captions", "tatoeba"), sentences(arguments.data), strict=True))
    for name, pairs in corpora.items():
        with open(arguments.output / f"{name}.tsv", "w", encoding="utf-8") as file:
            for start in range(0, arguments.pairs // 2, CHUNK):
                size = min(CHUNK, arguments.pairs // 2 - start)
                for one, other in rng.integers(len(pairs), size=(size, 2)).tolist():
                    (a, b), (c, d) = pairs[one], pairs[other]
                    file.write(f"{a} {c}\t{b} {d}\n")
        with open(arguments.output / f"{name}.valid.tsv", "w", encoding="utf-8") as file:
            file.writelines(f"{a}\t{b}\n" for a, b in pairs[:VALIDATION_PAIRS])
    sample = arguments.output / "sample.tsv"
    with open(sample, "w", encoding="utf-8") as file:
        for name in corpora:
            with open(arguments.output / f"{name}.tsv", encoding="utf-8") as text:
                file.writelines(itertools.islice(text, TOKENIZER_PAIRS // 2))
    from keras_transformer.tokenizers import SentencePieceTokenizer

    text = sample.read_text(encoding="utf-8").replace("\t", "\n").splitlines()
    SentencePieceTokenizer.train(text, 16_000).save(arguments.output)
    corpora = ", ".join(f"{{tsv: {arguments.output / name}.tsv}}" for name in corpora)
    valid = ", ".join(
        f"{{tsv: {arguments.output / name}.valid.tsv}}" for name in ("captions", "tatoeba")
    )
    (arguments.output / "config.yaml").write_text(
        f"data:\n  train: [{corpora}]\n  valid: [{valid}]\n"
        f"tokenizer:\n  model: {arguments.output / 'tokenizer.model'}\n"
    )


def repeat(arguments):
    """Makes the prepared text several times as large: its shards have several names."""
    path = prepared_in(arguments.output)
    manifest = Manifest.load(path)
    number = len(manifest.shards)
    entries = []
    for i in range(arguments.times * number):
        entry = manifest.shards[i % number]
        entries.append(dataclasses.replace(entry, name=shard_name(i)))
        if i >= number:
            os.link(path / entry.name, path / shard_name(i))
    sizes = [arguments.times * size for size in manifest.sizes]
    dataclasses.replace(manifest, shards=entries, sizes=sizes).save(path)


def prepared_in(output):
    """Returns the directory of the prepared text."""
    return next(output.glob("prepared-*"))


def pinned(arguments, *command):
    """Runs a command on some cores; returns its seconds, and its peak memory in GB."""
    before = time.perf_counter()
    process = subprocess.Popen(["taskset", "-c", arguments.cores, sys.executable, *command])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"ended with status {status}")
    seconds = time.perf_counter() - before
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_gb": usage.ru_maxrss / 1e6}


def prepare(arguments):
    """Prepares the text, with as many processes as there are cores."""
    output = arguments.output / f"prepared-{arguments.cores}"
    config = arguments.output / "config.yaml"
    command = "-m", "keras_transformer", "prepare", str(config), "--output", str(output)
    print(json.dumps({"cores": arguments.cores, **pinned(arguments, *command)}))


def train(arguments):
    """Trains some steps of the preset tiny in a process of its own, and prints what it took."""
    print(json.dumps(pinned(arguments, SIDE, *sys.argv[2:], "--started", str(time.time()))))


def formats(arguments):
    """Times ways to store and read ids: shards of NumPy arrays, ArrayRecord, and Grain with it."""
    path = prepared_in(arguments.output)
    corpus = PreparedCorpus(path, DataConfig())
    entry = corpus.manifest.shards[0]
    results = {"pairs": len(corpus), "bytes_a_pair": entry.num_bytes / sum(entry.num_pairs)}

    def seconds(function):
        before = time.process_time()  # other programs may have the rest of the core
        value = function()
        return value, time.process_time() - before

    shard, results["read_a_shard"] = seconds(lambda: read_shard(path, entry))
    batches = PreparedBatches(corpus)
    _, results["first_batch"] = seconds(lambda: next(batches.arrays()))
    _, thousand = seconds(lambda: sum(1 for _ in itertools.islice(batches.arrays(), 1000)))
    results["ms_a_batch"] = thousand
    results |= array_records(shard, arguments.output, seconds)
    print(json.dumps(results, indent=1))


def array_records(shard, directory, seconds):
    """Returns the times of a shard as ArrayRecord, with a record for each pair or each 1,024."""
    try:
        from array_record.python import array_record_module as array_record
    except ImportError:
        return {}
    num_pairs, paths, results = len(shard.part_of), {}, {}
    for block in (1, 1024):
        paths[block] = str(directory / f"pairs-{block}.array_record")
        writer = array_record.ArrayRecordWriter(paths[block], "group_size:1,uncompressed")
        for start in range(0, num_pairs, block):
            pairs = np.arange(start, min(start + block, num_pairs))
            sides = shard.source.take(pairs), shard.target.take(pairs)
            arrays = [each for rows in sides for each in (rows.lengths, rows.ids)]
            writer.write(np.concatenate(arrays).astype("uint16").tobytes())
        writer.close()
        results[f"array_record_{block}_bytes_a_pair"] = os.path.getsize(paths[block]) / num_pairs
    chosen = np.random.default_rng(1).permutation(num_pairs)[:8000].tolist()
    single = array_record.ArrayRecordReader(paths[1], "readahead_buffer_size:0")
    _, results["array_record_1_seconds_for_8000_pairs"] = seconds(
        lambda: [np.frombuffer(row, "uint16") for i in chosen for row in single.read([i])]
    )
    _, results["array_record_1_seconds_for_8000_pairs_at_once"] = seconds(
        lambda: [np.frombuffer(row, "uint16") for row in single.read(chosen)]
    )
    blocks = array_record.ArrayRecordReader(paths[1024])
    _, results["array_record_1024_seconds_for_all"] = seconds(
        lambda: [np.frombuffer(row, "uint16") for row in blocks.read_all()]
    )
    return results | grain_records(paths[1], chosen, seconds)


def grain_records(path, chosen, seconds):
    """Returns the time that Grain takes for records in the order that it has chosen itself."""
    try:
        import grain
    except ImportError:
        return {}
    source = grain.sources.ArrayRecordDataSource(path)
    pairs = grain.MapDataset.source(source).shuffle(seed=1).map(_ids_of).to_iter_dataset()
    name = f"grain_seconds_for_{len(chosen)}_pairs"
    return {name: seconds(lambda: sum(1 for _ in itertools.islice(pairs, len(chosen))))[1]}


def _ids_of(record):
    return np.frombuffer(record, "uint16")


PARTS = {
    "make": make,
    "prepare": prepare,
    "repeat": repeat,
    "train": train,
    "formats": formats,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--pairs", type=int, default=20_000_000)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--in-memory", type=int, help="pairs of each corpus that are read as text")
    parser.add_argument(
        "--turns", type=int, help="trainings on shards and on all pairs in memory, in turn"
    )
    arguments = parser.parse_args()
    if arguments.turns and arguments.in_memory:
        parser.error("--turns reads all of the text into memory: make fewer pairs in a WORK for it")
    PARTS[arguments.part](arguments)


if __name__ == "__main__":
    main()
