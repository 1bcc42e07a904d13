"""Positions on a grid: a vector for each cell, resized by bicubic interpolation."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import GridPositions
from keras_transformer.layers.grid_positions import resized_grid


def random_grid(rows, columns, width=2):
    return np.random.default_rng(1).normal(size=(rows, columns, width)).astype("float32")


def test_adds_the_vector_of_each_cell():
    layer = GridPositions(3, 5)
    x = np.random.default_rng(2).normal(size=(2, 3, 5, 4)).astype("float32")
    output = ops.convert_to_numpy(layer(x))
    (table,) = layer.get_weights()
    assert table.shape == (3, 5, 4) and np.all(table.std(axis=-1) > 0)
    np.testing.assert_allclose(output, x + table, rtol=1e-6)


def test_the_same_size_is_the_same_grid():
    grid = random_grid(3, 5)
    np.testing.assert_array_equal(ops.convert_to_numpy(resized_grid(grid, 3, 5)), grid)


@pytest.mark.parametrize("size", [(6, 10), (7, 4), (1, 1), (2, 9)])
def test_resizing_is_that_of_pytorch(size):
    torch = pytest.importorskip("torch")
    grid = random_grid(3, 5)
    expected = torch.nn.functional.interpolate(
        torch.tensor(grid).permute(2, 0, 1)[None], size=size, mode="bicubic", align_corners=False
    )
    expected = expected[0].permute(1, 2, 0).numpy()
    found = ops.convert_to_numpy(resized_grid(grid, *size))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rows_stay_rows_and_columns_columns():
    """A grid that changes from row to row alone still does, and keeps its order."""
    grid = np.repeat(np.arange(4.0, dtype="float32")[:, None, None], 3, axis=1)  # (4, 3, 1)
    found = ops.convert_to_numpy(resized_grid(grid, 8, 5))[..., 0]
    np.testing.assert_allclose(found, np.repeat(found[:, :1], 5, axis=1), atol=1e-5)
    assert np.all(np.diff(found[:, 0]) > 0)


def test_another_grid_is_resized_or_refused():
    layer = GridPositions(3, 5, resize=True)
    layer.build((None, 3, 5, 2))
    found = ops.convert_to_numpy(layer(np.zeros((1, 4, 2, 2))))
    expected = ops.convert_to_numpy(resized_grid(layer.get_weights()[0], 4, 2))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"3 rows and 5 columns.*Received: x.shape=\(1, 4, 2, 2\)"):
        GridPositions(3, 5)(np.zeros((1, 4, 2, 2)))
    with pytest.raises(ValueError, match=r"\(B, R, C, D\).*Received: x.shape=\(1, 15, 2\)"):
        GridPositions(3, 5)(np.zeros((1, 15, 2)))
    with pytest.raises(ValueError, match="Received: rows=0"):
        GridPositions(0, 5)
