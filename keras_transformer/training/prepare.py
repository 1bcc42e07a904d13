"""Prepares text for training: tokenized, shuffled, in shards. Read `prepare` from top to bottom."""

import contextlib
import dataclasses
import json
import math
import pathlib
import re
import shlex
import shutil
from collections.abc import Callable
from typing import Any, cast

import tqdm

from keras_transformer.config import Config
from keras_transformer.config.settings import NUM_CORES
from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.data.preparation import (
    CHUNK_PAIRS,
    Plan,
    merge_shard,
    num_left_out,
    pieces_made,
    write_chunk,
)
from keras_transformer.data.shards import (
    MANIFEST,
    SHARD_NAME,
    SHARD_PAIRS,
    TOKENIZER,
    VALIDATION,
    Manifest,
    write_validation,
)
from keras_transformer.data.streamed_text import StreamedText
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import lock, replacing
from keras_transformer.files.text import check_directory
from keras_transformer.runs.run import checksum_of_tokenizers, load_tokenizers, save_tokenizers
from keras_transformer.tokenizers import from_file
from keras_transformer.training.train import print_line
from keras_transformer.training.translation_task import check_learner, check_tags, train_tokenizers
from keras_transformer.types import StrPath

WORK, BEGUN = ".work", "begun.json"
"""A directory of chunks beside the shards, until all is done, and in it what they are made of."""
FILES = "|".join([*map(re.escape, (MANIFEST, VALIDATION)), SHARD_NAME.pattern])
OWN = re.compile("|".join([FILES, *map(re.escape, (TOKENIZER, WORK))]))
UNFINISHED = re.compile(rf"\.\d+\.({FILES})")
"""What `files.atomic.replacing` leaves in a process that is killed."""


def prepare(
    config: Config,
    output: StrPath,
    num_processes: int = NUM_CORES,
    shard_pairs: int = SHARD_PAIRS,
    write: Callable[[str], Any] = print_line,
) -> Manifest:
    """Tokenizes the text of a configuration into shards, or goes on where it was stopped.

    The result is a function of the text and of the settings of the groups `data` and `tokenizer`
    and `training.seed`, whatever the number of processes and of interruptions.

    Args:
        config: `Config`.
        output: the directory, new, empty, or one in which the same preparation has begun.
        num_processes: number of processes that tokenize.
        shard_pairs: pairs of each shard, about.
        write: called with each line of the report.
    Returns:
        The `Manifest`.
    Raises:
        InputError: bad input; nothing was written.
    """
    output = pathlib.Path(output)
    check_settings(config)
    check_directory(output)
    with locked(output):
        if (output / MANIFEST).exists():
            return finished(config, output, write)

        # === The text, which is read once to know it, and again for its tokens ===
        text = StreamedText(config.data, config.training.seed)
        write(f"text        {text.summary}")
        num_shards = math.ceil(text.num_train / shard_pairs)
        plan = begin_or_go_on(config, text, output, num_shards, write)

        # === Chunks of the text, in a file each; then the shards, made of their pieces ===
        write(f"shards      {num_shards:,}, made by {num_processes} processes")
        parts = []

        def missing_chunks():
            for chunk in text.chunks(CHUNK_PAIRS):
                parts.append(chunk.part)
                if not plan.path_of_chunk(chunk.number).exists():
                    yield write_chunk, chunk

        num_chunks = math.ceil(text.num_train / CHUNK_PAIRS)
        made(plan, missing_chunks(), num_processes, "tokenizing", num_chunks)
        tasks = ((merge_shard, number, parts) for number in range(num_shards))
        entries = made(plan, tasks, num_processes, "merging", num_shards)

        return finish(config, text, plan, len(parts), entries, write)


def made(plan, tasks, num_processes, description, number):
    """Returns what tasks return, see `pieces_made`, and shows the progress on a terminal."""
    pieces = pieces_made(plan, tasks, num_processes)
    bar = tqdm.tqdm(pieces, description, number, disable=None, leave=False, dynamic_ncols=True)
    with contextlib.closing(pieces):
        return list(bar)


def check_settings(config):
    """Raises `InputError` for settings with which nothing can be prepared."""
    check_learner(config.tokenizer)
    data = config.data
    if config.tokenizer.sampling:
        raise InputError(
            "Expected no subword sampling, which tokenizes the text anew in each epoch. Received: "
            f"tokenizer.sampling={config.tokenizer.sampling}. Set it to 0, or train on the text."
        )
    if data.prepared is not None:
        raise InputError(
            f"Expected text to prepare. Received: data.prepared={data.prepared}. Leave it out."
        )
    if not data.names_training_text:
        raise InputError(
            "Expected text to prepare: data.train, or data.dataset. Received: neither. Add a list "
            "of files, or the name of a data set, to the configuration."
        )
    if any("-" in corpus.paths for corpus in data.train):
        raise InputError(
            "Expected files, because the text is read more than once. Received: tsv=-. Write the "
            "text to a file."
        )


@contextlib.contextmanager
def locked(output):
    """Keeps other processes from preparing in a directory, which is made, and removed if empty."""
    made = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if not lock(output, stack):
            raise InputError(
                f"Expected a directory that no other process prepares. Received: {output}, where "
                "another one does, or whose file system has no locks. Wait, or name another."
            )
        for path in output.iterdir():
            if UNFINISHED.fullmatch(path.name):
                path.unlink()
            elif not OWN.fullmatch(path.name):
                raise InputError(
                    "Expected a new or empty directory, or one of an unfinished preparation. "
                    f"Received: {output}, which holds {path.name}. Name another."
                )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # there is something in it
                for path in made:
                    path.rmdir()


def begun_of(config, text, num_shards):
    """Returns what the pieces of a preparation are functions of, as JSON."""
    groups = {name: dataclasses.asdict(getattr(config, name)) for name in ("data", "tokenizer")}
    content = {
        **groups,
        "seed": config.training.seed,
        "text": text.checksum,
        "validation": text.validation and text.validation.checksum(),
        "chunk_pairs": CHUNK_PAIRS,
        "num_shards": num_shards,
    }
    return json.dumps(content, indent=1)


def begin_or_go_on(config, text, output, num_shards, write):
    """Returns the `Plan` of a preparation, which it begins unless it has been begun.

    Raises:
        InputError: another one has been begun.
    """
    begun, path = begun_of(config, text, num_shards), output / WORK / BEGUN
    if not path.exists():
        begin(config, text, output, begun, write)
    elif path.read_text(encoding="utf-8") != begun:
        raise InputError(
            "Expected the text and the settings of data and tokenizer with which the "
            f"preparation in {output} was begun. Received: others. Name another directory, or "
            f"remove {output}."
        )
    tokenizers = load_tokenizers(output / TOKENIZER, config.tokenizer.shared)
    settings = config.data.max_length, len(text.sizes), num_shards, config.training.seed
    return Plan(output, output / WORK, tokenizers, *settings)


def begin(config, text, output, begun, write):
    """Writes the tokenizers, then what the preparation is of."""
    if config.tokenizer.model is not None:
        tokenizers = (from_file(config.tokenizer.model),) * 2
    else:
        tokenizers = train_tokenizers(config, text, text.tags, write)
    check_tags(text.tags, tokenizers[0])
    shutil.rmtree(output / TOKENIZER, ignore_errors=True)  # left by a killed process
    save_tokenizers(output / TOKENIZER, *tokenizers)
    (output / WORK).mkdir(exist_ok=True)
    with replacing(output / WORK / BEGUN) as partial:
        partial.write_text(begun, encoding="utf-8")


def finished(config, output, write):
    """Returns the manifest of a finished preparation, whose files are compared with it."""
    manifest = Manifest.load(output)
    if (manifest.data, manifest.tokenizer) != (config.data, config.tokenizer):
        raise InputError(
            f"Expected the settings of data and tokenizer with which {output} was prepared. "
            "Received: others. Name another directory."
        )
    manifest.check_content(output)
    shutil.rmtree(output / WORK, ignore_errors=True)  # of a process that was killed at its end
    write(f"{output} is prepared already: {manifest.summary}; its checksums are right")
    return manifest


def finish(config, text, plan, num_chunks, shards, write):
    """Writes the validation text and the manifest, which makes the directory a preparation.

    Args:
        num_chunks: number of chunks of the text.
        shards: the `Entry` of each shard.
        write: called with each line of the report.
    Returns:
        The `Manifest`.
    Raises:
        InputError: no pair is short enough.
    """
    if not any(any(entry.num_pairs) for entry in shards):
        raise InputError(
            f"Expected pairs of 1 to {config.data.max_length} tokens per side. Received: "
            f"{text.num_train} pairs, all longer or without tokens. Raise data.max_length."
        )
    num_blank, num_long = num_left_out(plan, num_chunks)
    manifest = Manifest(
        config.data,
        config.tokenizer,
        checksum_of_tokenizers(plan.tokenizers),
        text.sizes,
        text.num_blank + num_blank,
        num_long,
        write_validation(plan.directory, cast(ParallelCorpus, text.validation)),
        shards,
    )
    manifest.save(plan.directory)
    shutil.rmtree(plan.work)
    report(manifest, text, plan.directory, write)
    return manifest


def report(manifest, text, output, write):
    """Writes what was prepared, and the command that uses it."""
    num_bytes = sum(entry.num_bytes for entry in manifest.shards)
    write(f"training    {manifest.summary}; {num_bytes / 1e6:,.1f} MB")
    write(f"validation  {text.validation.summary}")
    if text.num_overlapping:
        write(
            f"overlap     {text.num_overlapping:,} of {len(text.validation):,} validation pairs "
            "are in the training text, too: scores on new text will be lower (keras-transformer "
            "clean --against removes them)"
        )
    write(f"next        keras-transformer train --prepared {shlex.quote(str(output))} --output RUN")
