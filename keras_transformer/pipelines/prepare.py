"""`prepare`: tokenizes text into shards, with the bytes of `keras-transformer prepare`.

Workers read the corpora of `data.train`, each one after the other, and tokenize chunks of them. The
output is a directory that all workers reach, such as one on NFS: a chunk stands in a file of its
own until the shards are put together, so a pipeline that was killed goes on there.
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import shutil

import apache_beam as beam

from keras_transformer.cli import console
from keras_transformer.cli.arguments import add_set
from keras_transformer.config import Config, DataConfig
from keras_transformer.data import ParallelCorpus
from keras_transformer.data.parallel import CorpusSummary, tags_of
from keras_transformer.data.preparation import CHUNK_PAIRS, merge_shard, write_chunk
from keras_transformer.data.shards import MANIFEST, SHARD_PAIRS, Entry
from keras_transformer.data.streamed_text import StreamedText
from keras_transformer.errors import InputError
from keras_transformer.files.atomic import replacing
from keras_transformer.files.text import check_directory, check_readable
from keras_transformer.pipelines.running import options_of, run_pipeline


def add_arguments(parser):
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="YAML file with the files of text in data.train and data.valid, which each worker has "
        "at these paths, and tokenizer.model",
    )
    add_set(parser)
    parser.add_argument(
        "--output",
        metavar="DIR",
        required=True,
        help="directory of the shards, which all workers share",
    )


def run(arguments, beam_options):
    config = Config.load(arguments.config).override(arguments.set)
    check_directory(arguments.output)
    _check_settings(config)
    options = options_of(beam_options)
    console.start_keras()
    from keras_transformer.training.prepare import (
        BEGUN,
        WORK,
        begin_or_go_on,
        check_settings,
        finish,
        finished,
        locked,
        print_line,
    )

    check_settings(config)
    output = pathlib.Path(arguments.output).absolute()
    with locked(output):
        if (output / MANIFEST).exists():
            finished(config, output, print_line)
            return
        work = output / WORK
        try:
            text = _text(config, work, options)
        except BaseException:
            if not (work / BEGUN).exists():
                shutil.rmtree(work)
            raise
        print_line(f"text        {text.summary}")
        num_shards = math.ceil(text.num_train / SHARD_PAIRS)
        plan = begin_or_go_on(config, text, output, num_shards, print_line)
        data = _with_absolute_paths(config.data)
        run_pipeline(options, lambda pipeline: _tokenize(pipeline, plan, data, text.sizes))

        shards = [_entry(plan, number) for number in range(num_shards)]
        num_chunks = sum(map(_num_chunks, text.sizes))
        finish(config, text, plan, num_chunks, shards, print_line)


def _check_settings(config):
    """Refuses what needs the whole text in one place, and files that are not there."""
    if not config.data.train or not config.data.valid or config.tokenizer.model is None:
        raise InputError(
            "Expected data.train, data.valid and tokenizer.model, because no worker has all text "
            "to train a tokenizer on, or to hold pairs out. Received: "
            f"{len(config.data.train)} and {len(config.data.valid)} corpora, tokenizer.model="
            f"{config.tokenizer.model}. `keras-transformer prepare` on a sample trains a tokenizer."
        )
    for corpus in config.data.train + config.data.valid:
        for path in corpus.paths:
            check_readable(path)


def _with_absolute_paths(data):
    """Returns the `DataConfig` as workers need it, who run elsewhere."""
    names = "source", "target", "tsv"

    def absolute(corpus):
        paths = {name: getattr(corpus, name) for name in names}
        paths = {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
        return dataclasses.replace(corpus, **paths)

    train, valid = (tuple(map(absolute, each)) for each in (data.train, data.valid))
    return dataclasses.replace(data, train=train, valid=valid)


@dataclasses.dataclass
class CountedText:
    """What workers have found in the text, under the names that a `StreamedText` has for it.

    The overlap of training and validation text is not counted: it would need all text in one place.
    """

    sizes: list[int]
    num_blank: int
    checksum: str
    validation: ParallelCorpus
    tags: list[str]
    num_overlapping: int = 0

    @property
    def num_train(self):
        return sum(self.sizes)

    @property
    def summary(self):
        return CorpusSummary(self.num_train, self.num_blank)


def _text(config, work, options):
    """Returns the `CountedText` of a configuration, whose corpora workers count."""
    work.mkdir(exist_ok=True)
    data = _with_absolute_paths(config.data)
    numbers = range(len(data.train))

    def count(pipeline):
        parts = pipeline | beam.Create(numbers) | beam.Reshuffle()
        _ = parts | "Count" >> beam.Map(_count, data, work)

    run_pipeline(options, count)
    found = [json.loads(_count_path(work, part).read_text()) for part in numbers]
    sizes, blanks, checksums = ([each[i] for each in found] for i in range(3))
    checksum = hashlib.sha256("\n".join(checksums).encode()).hexdigest()
    validation = ParallelCorpus.from_corpora(config.data.valid)
    tags = tags_of([*data.train, *validation.parts])
    return CountedText(sizes, sum(blanks), checksum, validation, tags)


def _part_of(data: DataConfig, part: int) -> StreamedText:
    """Returns the text of one corpus of several."""
    return StreamedText(dataclasses.replace(data, train=(data.train[part],)), seed=0)


def _count(part, data, work):
    text = _part_of(data, part)
    (size,) = text.sizes
    with replacing(_count_path(work, part)) as partial:
        partial.write_text(json.dumps([size, text.num_blank, text.checksum]))


def _count_path(work, part):
    return work / f"count-{part:05}.json"


def _num_chunks(size):
    return math.ceil(size / CHUNK_PAIRS)


def _tokenize(pipeline, plan, data, sizes):
    """Adds the steps from the text to the shards."""
    numbers = [_num_chunks(size) for size in sizes]
    firsts = [sum(numbers[:part]) for part in range(len(sizes))]
    parts = [part for part, number in enumerate(numbers) for _ in range(number)]
    made = (
        pipeline
        | "Corpora" >> beam.Create(list(enumerate(firsts)))
        | "Distribute corpora" >> beam.Reshuffle()
        | "Read" >> beam.FlatMap(_missing_chunks, plan, data)
        | "Distribute chunks" >> beam.Reshuffle()
        | "Tokenize" >> beam.Map(_write, plan)
        | "All chunks" >> beam.combiners.Count.Globally()
    )
    _ = (
        pipeline
        | "Shards" >> beam.Create(range(plan.num_shards))
        | "Distribute shards" >> beam.Reshuffle()
        | "Merge" >> beam.Map(_merge, plan, parts, beam.pvalue.AsSingleton(made))
    )


def _missing_chunks(corpus, plan, data):
    """Yields the chunks of a corpus that are not written yet."""
    part, first = corpus
    for chunk in _part_of(data, part).chunks(CHUNK_PAIRS):
        chunk = chunk._replace(number=first + chunk.number, part=part)
        if not plan.path_of_chunk(chunk.number).exists():
            yield chunk


def _write(chunk, plan):
    write_chunk(plan, chunk)


def _merge(number, plan, parts, _all_chunks):
    entry = merge_shard(plan, number, parts)
    with replacing(_entry_path(plan, number)) as partial:
        partial.write_text(json.dumps(dataclasses.asdict(entry)))


def _entry(plan, number):
    return Entry(**json.loads(_entry_path(plan, number).read_text()))


def _entry_path(plan, number):
    return plan.work / f"entry-{number:05}.json"
