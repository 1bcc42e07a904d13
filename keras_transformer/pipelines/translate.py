"""`translate`: translates files of text with an export, each line once, in order within a file.

A file is cut into blocks of lines. A worker keeps the translations of a block in a file of their
own, and blocks that are kept are not translated again: a pipeline that was killed goes on there.
When all are kept, those of each file are joined. What stands in the output directory:

    NAME               the translations of the input file NAME, a line for each line
    bad/NAME.jsonl     the lines of NAME that have no translation, and why
    shards/NAME.json   a `Shard`: what NAME was made of
    parts/             the blocks, until the pipeline has ended
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
from typing import NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import ModelHandler, RunInference

from keras_transformer.cli import console
from keras_transformer.cli.arguments import whole_number
from keras_transformer.config.settings import LARGEST
from keras_transformer.errors import InputError
from keras_transformer.files.text import check_directory, decode_line
from keras_transformer.pipelines.running import options_of, run_pipeline, threads_of_a_process
from keras_transformer.pipelines.storage import (
    absolute,
    base_name,
    join,
    make_directories,
    matching,
    read_json,
    read_lines,
    whole_file,
    write_json,
)
from keras_transformer.translation.exported_translator import checksum_of_export
from keras_transformer.translation.loading import load_export, version_path

BLOCK_LINES = 512
"""Lines that a worker translates at once, and that a kill may take: 8 batches."""
CUT = "cut: the text or its translation is longer than the export allows"
"""Why a line has no translation that ends; what there is of it is noted."""
LONGEST_LINE = 1 << 16
"""Bytes; a longer line is no sentence, and would take a tokenizer too long."""


def add_arguments(parser):
    parser.add_argument(
        "--export",
        metavar="DIR",
        required=True,
        help="directory of an export, or of one version; it must be at this path on each worker",
    )
    parser.add_argument(
        "--input",
        metavar="F",
        nargs="+",
        required=True,
        help="files of text, or patterns such as 'gs://bucket/in-*.txt'; each is translated into "
        "a file of the same name",
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="directory of translations")
    parser.add_argument(
        "--threads",
        metavar="N",
        type=whole_number(1, LARGEST),
        help="threads of each process (default: 1, as a core has a process; on this machine, the "
        "cores divided by --direct_num_workers)",
    )


def run(arguments, beam_options):
    export = version_path(os.path.abspath(arguments.export))
    checksum = checksum_of_export(export)
    output = absolute(arguments.output)
    inputs = matching(arguments.input)
    if "://" not in output:
        check_directory(output)
    _check_names(inputs, output)
    done = _check_output(inputs, output, checksum)
    if done:
        console.say(f"goes on: {len(done):,} of {len(inputs):,} files are there")
    options = options_of(beam_options)
    handler = TranslatorHandler(
        os.fspath(export), checksum, arguments.threads or threads_of_a_process(options)
    )
    with _begun(output, checksum):
        run_pipeline(options, lambda pipeline: build(pipeline, inputs, output, checksum, handler))
    shards = [_read_shard(output, base_name(path)) for path in inputs]
    changed = {(each.name, each.sha256) for each in done}
    changed -= {(each.name, each.sha256) for each in shards}
    if changed:
        console.say(f"{len(changed):,} of the files had changed, and were translated anew")
    _say_what_was_made(shards, output)


def build(pipeline, inputs, output, checksum, handler):
    """Adds the steps to a pipeline."""
    files = pipeline | "Files" >> beam.Create(inputs) | "Distribute files" >> beam.Reshuffle()
    read = files | "Read" >> beam.ParDo(ReadBlocks(output, checksum)).with_outputs("shards")
    kept = (
        read[None]
        | "Distribute blocks" >> beam.Reshuffle()
        | "Translate" >> RunInference(handler)
        | "Keep" >> beam.Map(keep_block)
    )
    groups = {"shards": read.shards, "kept": kept}
    _ = groups | "Gather" >> beam.CoGroupByKey() | "Join" >> beam.ParDo(join_blocks, output)


@dataclasses.dataclass
class Shard:
    """What a file of translations was made of."""

    name: str
    """The name of the input file, and of the file of translations."""
    input: str
    """Its path or address."""
    sha256: str
    """Of its lines."""
    export: str
    """The checksum of the export."""
    lines: int = 0
    """Number of lines."""
    bad: int = 0
    """Number of lines without a translation."""


class Block(NamedTuple):
    """Some lines of a file."""

    name: str
    """The name of the file."""
    part: str
    """Path of the file that keeps the translations."""
    first: int
    """Number of the lines before the block."""
    texts: list[str]
    """The lines; empty for those in `bad`."""
    bad: list[tuple[int, str]]
    """Numbers of lines in the file that are not translated, and the reasons."""


class ReadBlocks(beam.DoFn):
    """Yields the `Block`s of a file that are not kept yet; nothing if its translations are there.

    The output "shards" has, by name, the `Shard` of each file that is to be joined, and the paths
    of the parts of it.
    """

    def __init__(self, output, checksum):
        self.output, self.checksum = output, checksum

    def process(self, path):
        name = base_name(path)
        made = _read_shard(self.output, name)
        if made is not None and made.sha256 == _digest(path):
            return
        digest, parts, first = hashlib.sha256(), [], 0
        lines = read_lines(path)
        while block := list(itertools.islice(lines, BLOCK_LINES)):
            for line in block:
                digest.update(line + b"\n")
            key = "\n".join([self.checksum, name, str(first), digest.hexdigest()])
            part = join(self.output, "parts", hashlib.sha256(key.encode()).hexdigest() + ".json")
            parts.append(part)
            if not FileSystems.exists(part):
                yield Block(name, part, first, *checked(block, first))
            first += len(block)
        shard = Shard(name, path, digest.hexdigest(), self.checksum, first)
        yield beam.pvalue.TaggedOutput("shards", (name, (shard, parts)))


def checked(lines, first):
    """Returns the texts of lines, "" for bad ones, and the numbers of these with the reasons.

    Args:
        lines: list of bytes.
        first: number of the lines before them.
    """
    texts, bad = [], []
    for number, line in enumerate(lines, start=first + 1):
        text, reason = "", None
        if len(line) > LONGEST_LINE:
            reason = f"too long: {len(line):,} bytes, more than {LONGEST_LINE:,}"
        else:
            try:
                text = decode_line(line, number)
            except UnicodeDecodeError as error:
                reason = f"invalid UTF-8: {error.reason} (byte 0x{line[error.start]:02x})"
        texts.append(text)
        if reason is not None:
            bad.append((number, reason))
    return texts, bad


class TranslatorHandler(ModelHandler):
    """Loads an export once in each process, and translates `Block`s.

    Args:
        export: path of one version, on each worker.
        checksum: of the export; a worker that has another refuses to translate.
        num_threads: number of threads that translate in a process.
    """

    def __init__(self, export, checksum, num_threads):
        super().__init__(min_batch_size=1, max_batch_size=1)  # a block has several batches
        self.export, self.checksum, self.num_threads = export, checksum, num_threads

    def load_model(self):
        os.environ.setdefault(console.LOG_LEVEL, "3")
        translator = load_export(self.export, self.num_threads)
        if translator.checksum() != self.checksum:
            raise InputError(
                "Expected the same export on each worker. Received: another one at "
                f"{self.export}. Copy that with which the pipeline was started to all workers."
            )
        return translator

    def run_inference(self, batch, model, inference_args=None):
        """Yields pairs of a `Block` and the list of the best `Translation` of each text."""
        for block in batch:
            yield block, [best for (best,) in model.translate(block.texts)]


def keep_block(answer):
    """Writes the lines of a `Block`, and what is bad; returns its name and its part."""
    block, translations = answer
    lines = [" ".join(translation.text.splitlines()) for translation in translations]
    bad = [{"line": number, "reason": reason} for number, reason in block.bad]
    for i, translation in enumerate(translations):
        if translation.truncated:
            bad.append({"line": block.first + i + 1, "reason": CUT, "translation": lines[i]})
            lines[i] = ""
    bad.sort(key=lambda each: each["line"])
    write_json(block.part, {"lines": lines, "bad": bad}, FileSystems.split(block.part)[0])
    return block.name, block.part


def join_blocks(group, output):
    """Writes the files of a shard, all of whose parts are kept."""
    name, found = group
    for shard, parts in found["shards"]:
        directory = join(output, "parts")
        bad_path = join(output, "bad", f"{name}.jsonl")
        with (
            whole_file(bad_path, directory) as bad,
            whole_file(join(output, name), directory) as translations,
        ):
            for part in parts:
                content = read_json(part)
                translations.write("".join(f"{line}\n" for line in content["lines"]).encode())
                for each in content["bad"]:
                    each = {"file": shard.input, **each}
                    bad.write(json.dumps(each, ensure_ascii=False).encode() + b"\n")
                    shard.bad += 1
        path = join(output, "shards", f"{name}.json")
        write_json(path, dataclasses.asdict(shard), directory)
        yield name


def _digest(path):
    digest = hashlib.sha256()
    for line in read_lines(path):
        digest.update(line + b"\n")
    return digest.hexdigest()


def _read_shard(output, name):
    """Returns the `Shard` of a name whose translations are there, or None."""
    content = read_json(join(output, "shards", f"{name}.json"))
    if content is None or not FileSystems.exists(join(output, name)):
        return None
    return Shard(**content)


def _check_names(inputs, output):
    """Refuses two inputs of one name, and an output that is an input."""
    if set(output) & set("*?["):  # Beam would look for files that match it
        raise InputError(f"Expected a path without *, ? and [. Received: {output}. Name another.")
    paths = {os.path.realpath(path) for path in inputs}
    for name, number in collections.Counter(map(base_name, inputs)).items():
        if number > 1 or name in ("bad", "shards", "parts"):
            raise InputError(
                f"Expected input files of different names, none of them bad, shards or parts. "
                f"Received: {name}. Translate them into directories of their own, or rename them."
            )
        if os.path.realpath(join(output, name)) in paths:
            raise InputError(
                "Expected an output directory without inputs. Received: "
                f"{join(output, name)}, which is an input. Name another directory."
            )


def _check_output(inputs, output, checksum):
    """Returns the `Shard`s that are there; refuses what is not of this export."""
    begun = read_json(join(output, "parts", "export.json"))
    done = []
    for path in inputs:
        made = _read_shard(output, base_name(path))
        if made is not None:
            done.append(made)
        elif begun is None and FileSystems.exists(join(output, base_name(path))):
            raise InputError(
                "Expected an output directory that only this pipeline writes to. Received: "
                f"{join(output, base_name(path))}, of something else. Name another directory."
            )
    others = [shard.export for shard in done] + ([] if begun is None else [begun["export"]])
    if set(others) - {checksum}:
        raise InputError(
            f"Expected the export that has begun the output. Received: another one for {output}. "
            "Name another directory."
        )
    return done


@contextlib.contextmanager
def _begun(output, checksum):
    """Makes the directories, and removes the parts when all files are joined.

    If the pipeline fails before it has kept anything, nothing new is left.
    """
    is_new, parts = not FileSystems.exists(output), join(output, "parts")
    make_directories(output, *(join(output, name) for name in ("bad", "shards", "parts")))
    write_json(join(parts, "export.json"), {"export": checksum}, parts)
    try:
        yield
    except BaseException:
        if len(FileSystems.match([join(parts, "*.json")])[0].metadata_list) == 1:
            FileSystems.delete([output if is_new else parts])
        raise
    FileSystems.delete([parts])


def _say_what_was_made(shards, output):
    num_lines, num_bad = sum(shard.lines for shard in shards), sum(shard.bad for shard in shards)
    console.say(f"{num_lines:,} lines of {len(shards):,} files are translated in {output}")
    if num_bad:
        bad = join(output, "bad")
        console.say(f"{num_bad:,} of them are empty there; {bad} says which and why")
