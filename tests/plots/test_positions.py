import numpy as np
import pytest

from keras_transformer import plots


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_position_encoding_draws_the_papers_formula(tmp_path, layout):
    num_positions, d_model = 11, 6
    figure = plots.position_encoding(num_positions, d_model, layout, tmp_path / "positions.png")
    matrix, waves, _ = figure.axes
    drawn = np.asarray(matrix.images[0].get_array()).T
    for position in range(num_positions):
        for pair in range(d_model // 2):
            angle = position / 10000 ** (2 * pair / d_model)
            sine, cosine = (
                (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, d_model // 2 + pair)
            )
            assert drawn[position, sine] == pytest.approx(np.sin(angle), abs=1e-5)
            assert drawn[position, cosine] == pytest.approx(np.cos(angle), abs=1e-5)
    np.testing.assert_allclose(waves.lines[0].get_ydata(), drawn[:, 0])
    assert (tmp_path / "positions.png").stat().st_size > 0
