"""A training says when its device is slow in a precision, or too small for a step."""

import importlib

import keras
import pytest

from keras_transformer.config import TrainingConfig
from keras_transformer.errors import InputError
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


def full(name, message):
    """An error of the name that a library gives it."""
    return type(name, (RuntimeError,), {})(message)


FULL = [
    full("ResourceExhaustedError", "Graph execution error:\n\nOOM when allocating"),
    full("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
    full("JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
def test_full_memory_names_the_batch_and_what_halves_it(error):
    training = TrainingConfig(batch_tokens=600, gradient_accumulation_steps=3)
    with pytest.raises(InputError) as said, one_device.explaining_full_memory(training):
        raise error
    assert "training.batch_tokens=600, " in str(said.value) and "steps=6" in str(said.value)
    assert "\n" not in str(said.value)
    with pytest.raises(RuntimeError, match="another"):  # and no `InputError`
        with one_device.explaining_full_memory(training):
            raise RuntimeError("another")


def test_a_training_explains_full_memory(config, corpus, validated, tmp_path, monkeypatch):
    train = importlib.import_module("keras_transformer.training.train")

    def too_large(*arguments):
        raise FULL[1]

    monkeypatch.setattr(train, "fit", too_large)
    with pytest.raises(InputError, match="2.00 GiB.*gradient_accumulation_steps=2"):
        train.train(config, tmp_path / "run", None, (corpus, validated), write=lambda line: None)
