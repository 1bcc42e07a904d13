"""Links of words: from a file of an aligner to the labels of an attention head."""

import numpy as np
import pytest

from keras_transformer.config import CorpusConfig
from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.data.alignments import alignment_of_tokens, read_links, word_numbers
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.special_ids import END_ID, PAD_ID

PAIRS = [("a b c", "x y"), (" ", "z"), ("d e", "u v w"), ("f", "g")]


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines):
        path = tmp_path / "links"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write_lines


def lists_of(links):
    return [links.row(i).tolist() for i in range(len(links.lengths))]


def test_the_lines_are_those_of_the_text_without_the_pairs_that_are_left_out(write):
    corpus = ParallelCorpus.from_pairs(PAIRS)
    path = write("2-1  0-0 ", "0-0 7-7", "", "0-0 0-0")
    assert lists_of(read_links(path, corpus)) == [[[2, 1], [0, 0]], [], [[0, 0], [0, 0]]]
    train, held_out = corpus.split(0.4, 1, seed=1)
    found = {}
    for part in (train, held_out):
        found |= dict(zip(part.source, lists_of(read_links(path, part)), strict=True))
    assert found == {"a b c": [[2, 1], [0, 0]], "d e": [], "f": [[0, 0], [0, 0]]}


def test_a_tag_is_one_more_word_unless_the_text_has_it_already(write, tmp_path):
    text = tmp_path / "pairs.tsv"
    text.write_text(">>b<< a\tx\na\tx\n")
    corpus = ParallelCorpus.from_corpora([CorpusConfig(tsv=str(text), tag=">>b<<")])
    links = read_links(write("1-0", "0-0"), corpus)
    assert corpus.source == [">>b<< a"] * 2 and lists_of(links) == [[[1, 0]], [[1, 0]]]
    with pytest.raises(ValueError, match="0 to 0 of the source .* line 2: 1-0"):
        read_links(write("1-0", "1-0"), corpus)


@pytest.mark.parametrize(
    "lines, message",
    [
        (["0-0"] * 3, "the 4 training pairs, one line for each. Received: .*, with 3 lines"),
        (["0-0", "", "0-0 1:2", "0-0"], "pairs such as 0-0 1-2.* line 3: '0-0 1:2'"),
        (["0-0", "", "0-", "0-0"], "line 3: '0-'"),
        (["0-0", "", "0-00-1", "0-0"], "line 3: '0-00-1'"),
        (["0-0", "", "0-2 2-0", "0-0"], "0 to 1 of the source and to 2 .* line 3: 2-0"),
        (["0-2", "", "", "0-0"], "0 to 2 of the source and to 1 of .* line 1: 0-2"),
    ],
)
def test_other_files_are_refused(write, lines, message):
    with pytest.raises(ValueError, match=message):
        read_links(write(*lines), ParallelCorpus.from_pairs(PAIRS))


def test_links_of_words_are_spread_over_their_tokens():
    """Compared with a loop over all tokens of both sides."""
    rng = np.random.default_rng(2)
    begins = np.array([False] * 5 + [True] * 5)
    rows = [
        [np.append(rng.integers(4, 10, rng.integers(1, 9)), END_ID) for _ in range(4)] for _ in "st"
    ]
    words = [[np.cumsum(begins[row] | (np.arange(len(row)) == 0)) - 1 for row in side]
             for side in rows]  # fmt: skip
    links = [
        rng.integers(0, [words[0][i][-2] + 1, words[1][i][-2] + 1], (n, 2))
        for i, n in enumerate((3, 0, 1, 5))
    ]
    ragged = RaggedIds(np.concatenate(links), [len(each) for each in links])
    pairs = np.array([3, 0, 1])
    padded = [np.full((5, 10), PAD_ID), np.full((5, 12), PAD_ID)]  # two rows of padding
    expected = np.zeros((5, 12, 10))
    for place, pair in enumerate(pairs):
        for ids, side in zip(padded, rows, strict=True):
            ids[place, : len(side[pair])] = side[pair]
        for t in range(len(rows[1][pair]) - 1):
            for s in range(len(rows[0][pair]) - 1):
                link = [words[0][pair][s], words[1][pair][t]]
                expected[place, t, s] = link in links[pair].tolist()
            expected[place, t] /= max(1, expected[place, t].sum())
    numbers = [word_numbers(begins, ids) for ids in padded]
    found = alignment_of_tokens(ragged, pairs, *numbers)
    assert found.dtype == np.float32 and expected.any()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_batches_have_the_alignments_of_their_pairs(corpus, tokenizer):
    """Whatever the order, the padding and the subwords: the first words are aligned, no other."""
    for options in ({}, {"static_shapes": 5}, {"sampling": 0.3}):
        batches = TranslationBatches(corpus, tokenizer, batch_tokens=150, **options)
        batches.links = RaggedIds(np.zeros((len(corpus), 2), "int32"), [1] * len(corpus))
        for inputs, labels, _ in batches.dataset(repeat=False, row_multiple=4):
            found = inputs["alignment"].numpy()
            sides = inputs["source_ids"].numpy(), labels.numpy()
            for row, source, target in zip(found, *sides, strict=True):
                first = []
                for ids in (source, target):
                    ends = [i in (END_ID, PAD_ID) or tokenizer.surfaces[i][:1] == b" " for i in ids]
                    first.append((ends[1:].index(True) + 1) * bool(ids.any()))
                expected = np.zeros_like(row)
                expected[: first[1], : first[0]] = 1 / max(1, first[0])
                np.testing.assert_allclose(row, expected, rtol=1e-6)
