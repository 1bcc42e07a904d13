import gzip
import socket
import types
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import CorpusConfig
from keras_transformer.data import CorpusSummary, ParallelCorpus, parallel
from keras_transformer.files.text import iterate_lines


def read_lines(path):
    return [line.strip() for line in iterate_lines(path)]


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def files(tmp_path):
    """Writes two files and returns their paths."""

    def make(source, target, suffix=".txt"):
        return (
            write(tmp_path / f"source{suffix}", source.encode()),
            write(tmp_path / f"target{suffix}", target.encode()),
        )

    return make


@pytest.mark.parametrize("suffix", [".txt", ".gz"])
def test_files_are_read_line_by_line(files, suffix):
    corpus = ParallelCorpus.from_files(
        *files("one\n two \nthree", "eins\r\nzwei\r\ndrei\n", suffix)
    )
    assert corpus.source == ["one", "two", "three"]
    assert corpus.target == ["eins", "zwei", "drei"]
    assert len(corpus) == 3
    assert str(corpus.summary) == "3 pairs; left out: none"


def test_only_a_line_feed_ends_a_line(tmp_path):
    content = "one\u2028half\ntwo\x85half\nthree\x0b\x0chalf\nfour\rhalf\n\ufeff\n"
    path = write(tmp_path / "text", b"\xef\xbb\xbf" + content.encode())
    assert read_lines(path) == [
        "one\u2028half",
        "two\x85half",
        "three\x0b\x0chalf",
        "four\rhalf",
        "\ufeff",
    ]


def test_blank_lines_count_as_lines(tmp_path):
    assert read_lines(write(tmp_path / "a", b"")) == []
    assert read_lines(write(tmp_path / "b", b"\n")) == [""]
    assert read_lines(write(tmp_path / "c", b"x\n\n \ny")) == ["x", "", "", "y"]


def test_pairs_with_a_blank_side_are_left_out_and_counted(files):
    corpus = ParallelCorpus.from_files(*files("a\n\nc\n \u3000\ne\n", "A\nB\n\t\n\nE\n"))
    assert list(zip(corpus.source, corpus.target, strict=True)) == [("a", "A"), ("e", "E")]
    assert corpus.summary == CorpusSummary(num_pairs=2, num_blank=3)
    assert str(corpus.summary) == "2 pairs; left out: 3 with a blank side"


def test_sides_of_invisible_characters_are_blank():
    invisible = "\x85 \xad \u200c \u200d\u200c \u2060 \ufe0f \u180e \u115f \u3164 \u2800".split(" ")
    pairs = [*[(text, "A") for text in invisible], *[("a", text) for text in invisible]]
    corpus = ParallelCorpus.from_pairs([*pairs, ("\u2764\ufe0f", "\xadA")])
    assert (corpus.source, corpus.target) == (["\u2764\ufe0f"], ["\xadA"])
    assert corpus.summary.num_blank == 20


def test_summary_is_one_line_with_every_reason():
    summary = CorpusSummary(num_pairs=28_990, num_blank=3, num_long=1_007, max_length=128)
    expected = "28,990 pairs; left out: 3 with a blank side, 1,007 longer than 128 tokens"
    assert str(summary) == expected


@pytest.mark.parametrize("name", ["missing.txt", "missing.gz"])
def test_missing_file(tmp_path, name):
    with pytest.raises(ValueError, match=f"Received: .*{name}: No such file"):
        read_lines(tmp_path / name)


def test_directory_for_a_file(tmp_path):
    with pytest.raises(ValueError, match="Expected a readable file.*directory"):
        read_lines(tmp_path)


def test_unequal_line_counts(files):
    with pytest.raises(ValueError, match=r"source.txt: 3 lines, .*target.txt: 2 lines"):
        ParallelCorpus.from_files(*files("a\nb\nc\n", "A\nB\n"))


@pytest.mark.parametrize(
    ("content", "remedy"), [("one\ntwo\n", "the other language"), ("one\teins\ntwo\n", "--train F")]
)
def test_the_same_text_on_both_sides_is_refused(files, content, remedy):
    with pytest.raises(
        ValueError, match=f"same 2 lines in .*source.txt and .*target.txt.*{remedy}"
    ):
        ParallelCorpus.from_files(*files(content, content))


def test_a_pair_that_moves_to_another_corpus_makes_other_text(tmp_path):
    lines = [b"a\tA\n", b"b\tB\n", b"c\tC\n"]
    checksums = []
    for end in (1, 2):
        paths = [write(tmp_path / "first", b"".join(lines[:end]))]
        paths.append(write(tmp_path / "second", b"".join(lines[end:])))
        corpora = [CorpusConfig(tsv=str(path), weight=i) for i, path in enumerate(paths, start=1)]
        corpus = ParallelCorpus.from_corpora(corpora)
        checksums.append(corpus.checksum())
    assert checksums[0] != checksums[1] == ParallelCorpus.from_corpora(corpora).checksum()


def test_a_table_has_a_pair_on_each_line(tmp_path, monkeypatch):
    path = write(tmp_path / "pairs.tsv", b"one\teins\tby A\r\n\n two \t zwei\nthree\t\n")
    corpus = ParallelCorpus.from_tsv(path)
    assert (corpus.source, corpus.target) == (["one", "two"], ["eins", "zwei"])
    assert corpus.summary == CorpusSummary(2, num_blank=2)
    monkeypatch.setattr("sys.stdin", open(path))
    assert ParallelCorpus.from_tsv("-").checksum() == corpus.checksum()
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(isatty=lambda: True))
    with pytest.raises(ValueError, match="text on standard input. Received: a terminal"):
        ParallelCorpus.from_tsv("-")
    path.write_text("one\teins\n\ntwo\n")
    with pytest.raises(ValueError, match="separated by a tab. Received: .*tsv, line 3: 'two'"):
        ParallelCorpus.from_tsv(path)


def test_corpora_follow_one_another(files, tmp_path):
    source, target = files("a\nb\n\nc\n", "A\nB\n\nC\n")
    tsv = write(tmp_path / "pairs.tsv", b"d\tD\n\te\n")
    corpus = ParallelCorpus.from_corpora(
        [CorpusConfig(source=source, target=target, max_pairs=2), CorpusConfig(tsv=tsv)]
    )
    assert (corpus.source, corpus.target) == (["a", "b", "d"], ["A", "B", "D"])
    assert corpus.summary == CorpusSummary(3, num_blank=2)
    assert [part.weight for part in corpus.parts] == [1, 1]
    assert corpus.part_of.tolist() == [0, 0, 1]


def test_a_tag_stands_before_each_source_of_its_corpus(tmp_path):
    paths = [write(tmp_path / f"{i}.tsv", f"a{i}\tA\nb{i}\tB\n".encode()) for i in range(3)]
    tags = None, ">>b<<", ">>b<<"
    corpora = [CorpusConfig(tsv=path, tag=tag) for path, tag in zip(paths, tags, strict=True)]
    corpus = ParallelCorpus.from_corpora(corpora)
    assert corpus.source == ["a0", "b0", ">>b<< a1", ">>b<< b1", ">>b<< a2", ">>b<< b2"]
    assert corpus.untagged_source() == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert corpus.tags == [">>b<<"]
    by_tag = {">>b<<": [2, 3, 4, 5], "no tag": [0, 1]}
    by_path = {str(path): [2 * i, 2 * i + 1] for i, path in enumerate(paths)}
    assert corpus.groups() == by_tag | by_path
    assert ParallelCorpus.from_corpora(corpora[:2]).groups().keys() == {"no tag", ">>b<<"}
    assert ParallelCorpus.from_corpora(corpora[:1]).groups() == {}
    train, held_out = corpus.split(0.4, 99, seed=1)  # the pairs keep their corpora
    both = train.untagged_source() + held_out.untagged_source()
    assert sorted(both) == sorted(corpus.untagged_source())
    # but some parts may have no pair any more
    rows = [rows for seed in range(9) for rows in corpus.split(0.4, 99, seed)[1].groups().values()]
    assert rows and all(rows)


def test_a_source_that_has_the_tag_of_its_corpus_does_not_get_it_twice(tmp_path):
    path = write(tmp_path / "pairs.tsv", b">>b<< one\tA\n>>b<<two\tB\n>>c<< >>b<< three\tC\nd\tD\n")
    corpus = ParallelCorpus.from_corpora([CorpusConfig(tsv=path, tag=">>b<<")])
    assert corpus.source == [">>b<< one", ">>b<< two", ">>b<< >>c<< >>b<< three", ">>b<< d"]
    assert corpus.is_tagged.tolist() == [True, True, False, False]
    plain = write(tmp_path / "plain.tsv", b"one\tA\ntwo\tB\n>>c<< >>b<< three\tC\nd\tD\n")
    other = ParallelCorpus.from_corpora([CorpusConfig(tsv=plain, tag=">>b<<")])
    assert other.checksum() == corpus.checksum()


@pytest.mark.parametrize("temperature", [1, 2, 5])
def test_an_epoch_has_the_powers_of_the_sizes_that_the_temperature_says(tmp_path, temperature):
    sizes, corpora = (7, 100, 20), []
    for size in sizes:
        path = write(tmp_path / f"{size}.tsv", b"a\tA\n" * size)
        corpora.append(CorpusConfig(tsv=path, weight=3))
    corpus = ParallelCorpus.from_corpora(corpora, temperature)
    drawn = np.array([size * part.weight for size, part in zip(sizes, corpus.parts, strict=True)])
    expected = np.array(sizes) ** (1 / temperature)
    np.testing.assert_allclose(drawn / sum(drawn), expected / sum(expected))
    assert corpus.parts[1].weight == 3


@pytest.mark.parametrize("content", ["", "\n\n", " \n\t\n"])
def test_empty_corpus_names_the_files(files, content):
    with pytest.raises(ValueError, match="at least one pair.*source.txt.*target.txt"):
        ParallelCorpus.from_files(*files(content, content))


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_bytes_that_are_not_utf8_name_the_line(tmp_path, name):
    path = write(tmp_path / name, "eins\nzwölf\n".encode() + "fünf\nölf\n".encode("latin-1"))
    with pytest.raises(ValueError, match=f"{name}, line 3: .*0xfc") as error:
        read_lines(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [b"plain text\n", gzip.compress(b"a line\n" * 99)[:-9], gzip.compress(b"a")[:-4] + b"\0\0\0\0"],
    ids=["not gzip", "truncated", "wrong length"],
)
def test_a_gz_that_is_no_whole_gzip(tmp_path, content):
    path = tmp_path / "text.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="Expected a whole gzip file.*text.gz"):
        read_lines(path)


def test_from_dataset_takes_pairs_of_strings():
    pairs = [("a", "A"), ("ö", "Ö"), (" ", "C")]
    sides = tuple(list(side) for side in zip(*pairs, strict=True))
    corpus = ParallelCorpus.from_dataset(tf.data.Dataset.from_tensor_slices(sides))
    assert (corpus.source, corpus.target) == (["a", "ö"], ["A", "Ö"])
    assert corpus.summary.num_blank == 1


def test_from_dataset_refuses_one_without_end():
    dataset = tf.data.Dataset.from_tensor_slices((["a"], ["A"])).repeat()
    with pytest.raises(ValueError, match="finite"):
        ParallelCorpus.from_dataset(dataset)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (None, "list of pairs of strings, .* Received: None"),
        ("ab", "pairs of strings, .* Received: 'a' as item 0"),
        ([("a", "A"), ("b", None)], r"Received: \('b', None\) as item 1"),
        ((pair for pair in [("a", "A", "x")]), r"Received: \('a', 'A', 'x'\) as item 0"),
    ],
)
def test_what_are_no_pairs_of_strings_is_refused(pairs, message):
    with pytest.raises(ValueError, match=message):
        ParallelCorpus.from_pairs(pairs)


def test_split_holds_out_a_seeded_part():
    pairs = [(f"s{i}", f"t{i}") for i in range(101)]
    corpus = ParallelCorpus.from_pairs([*pairs, ("", "x")])
    train, held_out = corpus.split(0.1, limit=2000, seed=3)
    assert len(train) == 91 and len(held_out) == 10
    split = [list(zip(part.source, part.target, strict=True)) for part in (train, held_out)]
    assert sorted(split[0] + split[1]) == sorted(pairs)
    assert train.summary == CorpusSummary(91, num_blank=1)
    assert held_out.summary == CorpusSummary(10)

    assert corpus.split(0.1, 2000, seed=3)[1].source == held_out.source
    assert corpus.split(0.1, 2000, seed=4)[1].source != held_out.source
    assert len(corpus.split(0.1, limit=7, seed=3)[1]) == 7
    assert len(corpus.split(0.001, limit=7, seed=3)[1]) == 1


@pytest.mark.parametrize(("share", "limit"), [(1.0, 2000), (0.5, 0)])
def test_split_that_leaves_nothing(share, limit):
    corpus = ParallelCorpus.from_pairs([("a", "A"), ("b", "B")])
    with pytest.raises(ValueError, match="some pairs to train on"):
        corpus.split(share, limit, seed=1)


def test_without_a_network_one_line_names_the_files_to_give(monkeypatch, tmp_path):
    builder = types.SimpleNamespace(data_path=tmp_path / "none", download_and_prepare=None)

    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    with pytest.raises(ValueError, match="to download x.*known.*--source-train F") as error:
        parallel._download(builder, "x")
    assert "\n" not in str(error.value)
