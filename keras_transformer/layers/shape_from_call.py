"""A mix-in for layers whose output shapes are found by tracing the call."""

from typing import Any

import keras
from keras import tree

from keras_transformer.types import Shape


class ShapeFromCall:
    """Has the `compute_output_shape` that Keras's wrappers, such as `TimeDistributed`, ask for.

    Keras would take a symbolic call's output from it alone, as if the call had no options. So the
    symbolic call is traced still, with its options, such as `return_attention_weights`.
    """

    built: bool  # of the layer
    build: Any

    def compute_output_spec(self, *arguments: Any, **options: Any) -> Any:
        return keras.Operation.compute_output_spec(self, *arguments, **options)

    def compute_output_shape(self, *shapes: Shape, **named: Shape) -> Shape:
        """Returns the shape of the call's output for the shapes of its inputs; builds the layer.

        Args:
            shapes, named: those of the inputs, in the order of the call; the names are those that
                `build` has for them.
        Raises:
            NotImplementedError: the call needs more than these inputs. `summary` expects this.
        """
        shapes = tuple(shape for shape in (*shapes, *named.values()) if shape is not None)
        if not self.built:
            self.build(*shapes)
        inputs = [tree.map_shape_structure(keras.KerasTensor, shape) for shape in shapes]
        try:
            return self.compute_output_spec(*inputs).shape
        except (ValueError, TypeError) as error:
            raise NotImplementedError(f"{type(self).__name__}: {error}") from error
