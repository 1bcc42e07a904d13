"""What all models share: they create their weights themselves before training or export."""

from typing import Any

import keras

from keras_transformer.layers.base import Layer, NotQuantized, check_ids


class BaseModel(NotQuantized, Layer, keras.Model):
    """A model whose weights follow from the arguments of its constructor; builds them when it must.

    - `fit`: TensorFlow traces a step again if its first trace creates weights, as Keras's
      optimizers do. With all weights there before, a training begins in half the time.
    - `export`: Keras refuses a model that was never called.

    - a call with NumPy arrays: ids outside the vocabulary are refused, see `id_ranges`.

    A user's subclass may have more layers, whose weights come with its first call. Keras does with
    it what it does with every model.
    """

    supports_masking = False  # a model's output has no positions, or others than its input

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs = args[0] if args else kwargs.get("inputs")
        inputs = inputs if isinstance(inputs, dict) else {next(iter(self.id_ranges), ""): inputs}
        for name, allowed in self.id_ranges.items():
            check_ids(inputs.get(name), allowed, name)
        return super().__call__(*args, **kwargs)

    @property
    def id_ranges(self) -> dict[str, range]:
        """From the name of each input of ids to its ids. An input without a name is the first."""
        return {}

    def make_train_function(self, force=False):
        if self._is_ours():
            if not self.built:
                self.build()
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def export(self, *args, **kwargs):
        if self._is_ours() and not self.built:
            self.build()
        return super().export(*args, **kwargs)

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
