"""What is common to all translators."""

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
