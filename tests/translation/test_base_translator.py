"""What is common to all translators."""

from keras_transformer.translation.base_translator import one_ahead


def test_one_ahead_makes_the_next_item_first():
    made = []

    def items():
        for number in range(4):
            made.append(number)
            yield number

    found = [(item, list(made)) for item in one_ahead(items())]
    assert found == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3])]
    assert list(one_ahead([])) == []
