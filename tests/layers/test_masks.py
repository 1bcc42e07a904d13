"""Masks against values written by hand."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import causal_mask, combined_mask, padding_mask


def test_padding_is_masked_by_its_id():
    mask = ops.convert_to_numpy(padding_mask(np.array([[5, 0, 0], [1, 3, 0]])))
    assert mask.dtype == bool
    assert mask.tolist() == [[True, False, False], [True, True, False]]


def test_causal_mask():
    mask = ops.convert_to_numpy(causal_mask(3))
    assert mask.dtype == bool
    assert mask.astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_causal_mask_of_the_last_queries():
    mask = ops.convert_to_numpy(causal_mask(2, 5)).astype(int)
    assert mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_causal_mask_of_more_queries_than_keys():
    assert ops.convert_to_numpy(causal_mask(3, 2)).astype(int).tolist() == [[0, 0], [1, 0], [1, 1]]


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("attention", [0, 2, 3])  # rank of the attention mask, 0 = none
def test_combined_mask_is_the_conjunction(padding, causal, attention):
    rng = np.random.default_rng(1)
    batch_size, target_length, source_length = 2, 5, 7
    query, key = np.zeros((2, 5, 3, 11)), np.zeros((2, 7, 3, 11))
    real = rng.random((2, 7)) < 0.6
    allowed = rng.random((2, 5, 7) if attention == 3 else (5, 7)) < 0.6
    mask = combined_mask(
        query, key, real if padding else None, causal, allowed if attention else None
    )
    if not (padding or causal or attention):
        assert mask is None
        return
    assert len(mask.shape) == 4
    mask = np.broadcast_to(ops.convert_to_numpy(mask), (2, 3, 5, 7))
    for b, t, s in np.ndindex(batch_size, target_length, source_length):
        expected = not padding or real[b, s]
        expected = expected and (not causal or s <= t + source_length - target_length)
        if attention:
            expected = expected and (allowed[b, t, s] if attention == 3 else allowed[t, s])
        assert np.all(mask[b, :, t, s] == expected)


def test_numbers_are_taken_as_masks():
    query = np.zeros((1, 2, 1, 4))
    mask = combined_mask(query, query, padding_mask=np.array([[1.0, 0.0]]))
    assert ops.convert_to_numpy(mask).tolist() == [[[[True, False]]]]


@pytest.mark.parametrize("shape", [(7,), (2, 5, 7)])
def test_a_padding_mask_of_another_rank_is_refused(shape):
    query, key = np.zeros((2, 5, 3, 11)), np.zeros((2, 7, 3, 11))
    with pytest.raises(ValueError, match=rf"shape \(B, S\)\. Received: .*=\({shape[0]}"):
        combined_mask(query, key, padding_mask=np.ones(shape, bool))


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5, 7)])
def test_an_attention_mask_of_another_rank_is_refused(shape):
    query, key = np.zeros((2, 5, 3, 11)), np.zeros((2, 7, 3, 11))
    with pytest.raises(ValueError, match=rf"or \(B, T, S\)\. Received: .*=\({shape[0]}"):
        combined_mask(query, key, attention_mask=np.ones(shape, bool))
