"""The examples in the docstrings of layers and models run as they stand."""

import doctest
import inspect
import re

import keras
import numpy as np
import pytest

from keras_transformer import layers, models

CLASSES = {
    name: member
    for room in (layers, models)
    for name, member in vars(room).items()
    if inspect.isclass(member)
}


class Checker(doctest.OutputChecker):
    def check_output(self, want, got, flags):
        got = re.sub(r"(torch.Size|TensorShape)\(\[(.*)\]\)", r"(\2)", got)  # shapes are tuples
        return super().check_output(want, got, flags)


@pytest.mark.parametrize("name", CLASSES)
def test_examples(name):
    globs = {"np": np, "keras": keras, **CLASSES}
    text = inspect.getdoc(CLASSES[name])
    test = doctest.DocTestParser().get_doctest(text, globs, name, None, None)
    results = doctest.DocTestRunner(Checker()).run(test)
    assert results.failed == 0


def test_most_classes_have_an_example():
    assert sum(">>>" in CLASSES[name].__doc__ for name in CLASSES) >= len(CLASSES) - 2
