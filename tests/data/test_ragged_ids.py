import numpy as np
import pytest

from keras_transformer.data import ragged_ids
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.special_ids import END_ID


@pytest.fixture
def rows():
    return RaggedIds(np.array([5, 3, 6, 7, 8, 3, 3], "int32"), [2, 4, 1])


def test_rows_are_padded_behind_and_below(rows):
    padded = rows.padded(np.array([2, 0, 1]), 4, 5)
    assert padded.dtype == np.int32
    expected = [[3, 0, 0, 0, 0], [5, 3, 0, 0, 0], [6, 7, 8, 3, 0], [0, 0, 0, 0, 0]]
    assert padded.tolist() == expected


def test_selected_rows(rows):
    selected = rows.select(np.array([True, False, True]))
    assert [selected.row(i).tolist() for i in range(2)] == [[5, 3], [3]]
    assert selected.lengths.tolist() == [2, 1]


def test_encoding_in_chunks_ends_every_row(tokenizer, sentence_pairs, monkeypatch):
    monkeypatch.setattr(ragged_ids, "CHUNK", 7)
    texts = [source for source, _ in sentence_pairs] + ["\u200b"]  # the last has no pieces
    rows = RaggedIds.encode(tokenizer, texts)
    expected = [pieces + [END_ID] for pieces in tokenizer.encode(texts).to_list()]
    assert [rows.row(i).tolist() for i in range(len(texts))] == expected


def test_a_sampled_row_that_is_too_long_stays_plain(tokenizer, sentence_pairs):
    texts = [source for source, _ in sentence_pairs]
    plain = RaggedIds.encode(tokenizer, texts)
    free = RaggedIds.encode_sampled(tokenizer, texts, 0.5, 1, plain, max_length=10**6)
    for most in range(free.lengths.min(), free.lengths.max()):
        rows = RaggedIds.encode_sampled(tokenizer, texts, 0.5, 1, plain, max_length=most)
        for i in range(len(texts)):
            source = free if free.lengths[i] <= most else plain
            assert rows.row(i).tolist() == source.row(i).tolist()


def test_places_are_those_of_the_rows(rows):
    assert rows.places(np.array([2, 0])).tolist() == [6, 0, 1]
    indices = np.array([1, 2])
    padded = rows.padded(indices, 2, 4)
    assert rows.ids[rows.places(indices)].tolist() == padded[padded != 0].tolist()
