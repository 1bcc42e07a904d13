"""A training says when its device is slow in the precision that the settings ask for."""

import importlib

import keras
import pytest

from keras_transformer.training import one_device


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_products_of_both_precisions_are_compared(policy, monkeypatch):
    """The first product of each prepares the device; of the others, the shortest counts."""
    seconds = {
        "bfloat16": iter([0.1, 0.5, 0.3, 0.7]),
        "float16": iter([0.1, 0.3, 0.8, 0.4]),
        "float32": iter([0.01, 0.2, 0.1, 0.4]),
    }
    dtype_of = keras.backend.standardize_dtype
    monkeypatch.setattr(
        one_device, "_seconds", lambda matrix: next(seconds[dtype_of(matrix.dtype)])
    )
    assert one_device.times_float32(policy) == pytest.approx(3.0)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float32"])
def test_the_device_computes_the_products(policy):
    assert one_device.times_float32(policy) > 0


def test_a_training_says_that_its_precision_is_slow(config, start_training, monkeypatch):
    train = importlib.import_module("keras_transformer.training.train")
    lower = config.override(["training.mixed_precision=mixed_bfloat16"])

    def says_so(config, times):
        monkeypatch.setattr(train, "times_float32", lambda policy: times)
        lines = start_training(config).lines
        return any("mixed_bfloat16 is slow here" in line and "1.8 times" in line for line in lines)

    assert says_so(lower, 1.8)
    assert not says_so(lower, 1.0)
    assert not says_so(config, 1.8)
