"""What is common to all translators."""

import pytest

from keras_transformer.translation.base_translator import prefetched


def test_the_next_item_is_made_first():
    made = []

    def items():
        for number in range(4):
            made.append(number)
            yield number

    found = [(item, list(made)) for item in prefetched(items())]
    assert found == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3])]
    assert list(prefetched([])) == []


def test_an_item_comes_before_the_error_of_the_next():
    def items():
        yield 1
        yield 2
        raise ValueError("3")

    found = []
    with pytest.raises(ValueError, match="3"):
        found.extend(prefetched(items()))
    assert found == [1, 2]
