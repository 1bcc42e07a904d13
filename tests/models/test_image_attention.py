"""Maps of the class token's attention, against loops written from the definitions."""

import numpy as np
import pytest

from keras_transformer.models import attention_rollout, class_token_attention

GRID = (2, 3)


@pytest.fixture
def weights():
    """Of 3 blocks, 2 images, 5 heads."""
    scores = np.exp(np.random.default_rng(1).normal(size=(3, 2, 5, 7, 7)))
    return list((scores / scores.sum(axis=-1, keepdims=True)).astype("float32"))


def test_the_last_layer(weights):
    found = class_token_attention(weights, GRID)
    assert found.shape == (2, 2, 3)
    for image in range(2):
        mean = sum(weights[2][image, head, 0, 1:] for head in range(5)) / 5
        np.testing.assert_allclose(found[image].ravel(), mean / mean.sum(), rtol=1e-5)


def test_rollout_counts_all_paths_to_the_class_token(weights):
    """Each block passes on half of a position and half of what it attends to."""
    found = attention_rollout(weights, GRID)
    for image in range(2):
        steps = [(layer[image].mean(axis=0) + np.eye(7)) / 2 for layer in weights]
        share = np.zeros(7)
        for last in range(7):
            for middle in range(7):
                for first in range(7):
                    share[first] += (
                        steps[2][0, last] * steps[1][last, middle] * steps[0][middle, first]
                    )
        np.testing.assert_allclose(found[image].ravel(), share[1:] / share[1:].sum(), rtol=1e-5)


def test_one_block_that_looks_at_one_patch():
    weights = np.zeros((1, 1, 7, 7), "float32")
    weights[..., 5] = 1.0
    for function in (class_token_attention, attention_rollout):
        np.testing.assert_array_equal(function([weights], GRID)[0], [[0, 0, 0], [0, 1, 0]])


def test_a_class_token_that_looks_at_itself_alone_has_an_empty_map():
    weights = [np.broadcast_to(np.eye(7, dtype="float32"), (1, 1, 7, 7))]
    for function in (class_token_attention, attention_rollout):
        np.testing.assert_array_equal(function(weights, GRID)[0], np.zeros(GRID))


@pytest.mark.parametrize("weights", [[], [np.zeros((7, 7))]], ids=["none", "rank 2"])
def test_weights_that_are_none_of_a_block_are_refused(weights):
    for function in (class_token_attention, attention_rollout):
        with pytest.raises(ValueError, match="one for each block. Received: weights of the ranks"):
            function(weights, GRID)


def test_another_grid_is_refused(weights):
    with pytest.raises(ValueError, match=r"1 \+ 2 x 2 positions.*weights of 7 positions"):
        class_token_attention(weights, (2, 2))
