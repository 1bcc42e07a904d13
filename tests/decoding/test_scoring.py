import numpy as np
import pytest
from keras import ops

from keras_transformer.decoding import length_penalty


def test_is_equation_14_of_wu_et_al():
    lengths = np.array([1, 7, 13])
    expected = [[((5 + length) / (5 + 1)) ** alpha for length in lengths] for alpha in (0, 0.6, 2)]
    found = [ops.convert_to_numpy(length_penalty(lengths, alpha)) for alpha in (0, 0.6, 2)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert expected[0] == [1, 1, 1] and np.all(np.diff(expected[1]) > 0)


def test_marians_form_is_a_power_of_the_length():
    found = [ops.convert_to_numpy(length_penalty([1, 7, 13], a, "length")) for a in (0, 1, 2)]
    np.testing.assert_allclose(found, [[1, 1, 1], [1, 7, 13], [1, 49, 169]], rtol=1e-6)


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="length_normalization must be one of .* Received: 'gnm'"):
        length_penalty(7, 0.6, "gnm")


@pytest.mark.parametrize("alpha", [-0.5, float("nan"), float("inf")])
def test_a_length_penalty_is_a_number_from_0(alpha):
    with pytest.raises(ValueError, match=f"number from 0. Received: length_penalty={alpha}"):
        length_penalty(7, alpha)
