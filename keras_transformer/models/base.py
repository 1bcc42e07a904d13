"""What all models share: they create their weights when they are made, and check their inputs."""

import functools
from typing import Any

import keras

from keras_transformer.layers.base import Layer, NotQuantized, check_ids


def _checking(name):
    """Returns the method `name` of `keras.Model`, which checks its inputs first."""

    @functools.wraps(getattr(keras.Model, name))
    def checked(self, x=None, *args, **kwargs):
        self.check_inputs(x)
        if isinstance(kwargs.get("validation_data"), tuple | list):
            self.check_inputs(kwargs["validation_data"][0])
        return getattr(super(BaseModel, self), name)(x, *args, **kwargs)

    return checked


class BaseModel(NotQuantized, Layer, keras.Model):
    """A model whose weights follow from the arguments of its constructor, which creates them.

    So `summary` has numbers, and `export` needs no call before. A user's subclass may have more
    layers, whose weights come with its first call or `build`, as Keras does it.

    In NumPy arrays, in a call and in `fit`, `evaluate` and `predict`, ids outside the vocabulary
    are refused, see `id_ranges`. Labels, tensors and datasets are not looked at.
    """

    supports_masking = False  # a model's output has no positions, or others than its input

    fit, evaluate, predict = map(_checking, ("fit", "evaluate", "predict"))
    train_on_batch, test_on_batch, predict_on_batch = map(
        _checking, ("train_on_batch", "test_on_batch", "predict_on_batch")
    )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.check_inputs(args[0] if args else kwargs.get("inputs"))
        return super().__call__(*args, **kwargs)

    def check_inputs(self, inputs: Any) -> None:
        """Raises `ValueError` for NumPy arrays with ids that the model does not have."""
        inputs = inputs if isinstance(inputs, dict) else {next(iter(self.id_ranges), ""): inputs}
        for name, allowed in self.id_ranges.items():
            check_ids(inputs.get(name), allowed, name)

    @property
    def id_ranges(self) -> dict[str, range]:
        """From the name of each input of ids to its ids. An input without a name is the first."""
        return {}

    def build_when_made(self, input_shape: Any) -> None:
        """Creates the weights at the end of the constructor, but for the subclass of a user.

        Args:
            input_shape: of the inputs, from which Keras makes the signature of an export.
        """
        if self._is_ours():
            self.build(input_shape)

    def get_build_config(self) -> dict[str, Any] | None:
        # a copy is built by its constructor, whatever shape the last call of `build` was given
        return None if self._is_ours() else super().get_build_config()

    def make_train_function(self, force=False):
        # TensorFlow traces a step again if its first trace creates variables. With those of the
        # optimizer there before, a training begins in half the time.
        if self._is_ours() and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _is_ours(self):
        return type(self).__module__.startswith(__package__ + ".")


def build_parts(model: BaseModel, *parts: tuple[Any, ...]) -> None:
    """Builds the parts of a model that are not built: one may have been called alone, or loaded.

    Args:
        parts: tuples of a layer and the shapes of its inputs; None for a layer that there is not.
    """
    for layer, *shapes in parts:
        if layer is not None and not layer.built:
            layer.build(*shapes)
    model.built = True
