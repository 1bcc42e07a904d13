"""A signal is remembered, or obeyed at once where that is safe."""

import os
import signal

import keras
import pytest

from keras_transformer.training.interruption import Interrupted, Interruption, StopAtOnce


def test_a_signal_waits_for_a_good_moment():
    with Interruption.watched() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.signal_number == signal.SIGTERM
        with pytest.raises(Interrupted, match="SIGTERM; the work is saved"):
            interruption.stop_at_once()


def test_a_signal_at_the_beginning_of_a_validation_waits_for_its_first_batch():
    """Weights and their averages are exchanged there, which must not be done by half."""
    with Interruption.watched() as interruption:
        callbacks = keras.callbacks.CallbackList([StopAtOnce(interruption)])
        callbacks.on_test_begin()
        signal.raise_signal(signal.SIGTERM)  # raises nothing
        with pytest.raises(Interrupted):
            callbacks.on_test_batch_begin(0)


def test_a_signal_is_obeyed_at_once_whatever_becomes_of_the_exception():
    with Interruption.watched() as interruption:
        with pytest.raises(Interrupted), interruption.stopping_at_once():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except Interrupted:
                raise ValueError("as Keras does with what a layer raises") from None
        assert not interruption.at_once


def test_other_errors_stay_what_they_are():
    with Interruption.watched() as interruption:
        with pytest.raises(ValueError, match="another"), interruption.stopping_at_once():
            raise ValueError("another")
