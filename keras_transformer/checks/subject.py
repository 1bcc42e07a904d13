"""What is checked: a model from token ids to logits, and what is known about its text.

Shapes: B batch, T length of the output, S length of the source, V vocabulary.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.nested import nested_layers

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1 to the next number."""
NUM_ROWS = 3
SOURCE_LENGTH, TARGET_LENGTH = 7, 8
"""The sizes of random inputs. They differ, so that they tell the source from the target."""
SPECIAL_IDS = 4
"""Smaller ids are not drawn at random: padding, unknown, start and end in most vocabularies."""


class Subject:
    """A model, and what else the checks read.

    Args:
        model: a Keras model. Its inputs are token ids `(B, T)`, or those of a source `(B, S)` and
            of a target `(B, T)`, in any structure that Keras has; inputs whose names have "mask",
            "segment", "token_type" or "position" are made from them. Its output is logits
            `(B, T, V)`, or a structure whose first array of rank 3 is the logits. None: there is
            only a translator.
        inputs: names of the ids of a subclassed model that takes a dict, the source first; None: as
            the model says, or one tensor.
        pad_id: the id of padding; None: that of the model, or 0.
        is_causal: False for a model that reads the whole text, such as BERT.
        batch: a batch of the training, `(inputs, labels)` or `(inputs, labels, weights)`.
        tokenizers: those of source and target, or one for both.
        texts: sentences of validation, a list for each side.
        train_texts: the same of the training.
        max_length: the largest number of tokens of a text that the training keeps.
        translator: a `Translator` or the translator of an export.
        path: directory of a run or an export.
        modules: names of the modules that a new process imports before it loads the model.
    """

    def __init__(
        self,
        model: Any,
        inputs: Sequence[str] | None = None,
        pad_id: int | None = None,
        is_causal: bool = True,
        batch: Any = None,
        tokenizers: Sequence[Any] = (),
        texts: Sequence[Sequence[str]] = (),
        train_texts: Sequence[Sequence[str]] = (),
        max_length: int | None = None,
        translator: Any = None,
        path: Any = None,
        modules: Sequence[str] = (),
    ) -> None:
        self.model = model
        self.pad_id = getattr(model, "pad_id", 0) if pad_id is None else pad_id
        self.is_causal = is_causal
        self.batch = batch
        self.tokenizers = tokenizers
        self.texts = texts
        self.train_texts = train_texts
        self.max_length = max_length
        self.translator = translator
        self.path = path
        self.modules = ["keras_transformer", *modules]
        self.names = list(inputs or ())
        self._structure = None if model is None else _input_structure(model, inputs)

    def has(self, name: str) -> bool:
        """Returns whether an attribute is known; texts also need tokenizers."""
        if name == "texts" and len(self.tokenizers) == 0:
            return False
        value = getattr(self, name)
        return value is not None and (not hasattr(value, "__len__") or len(value) > 0)

    # === The model as a function of NumPy arrays ===

    @functools.cached_property
    def _ids(self) -> list[str]:
        """The paths of the inputs that are token ids, the source before the target."""
        leaves = keras.tree.flatten(self._structure)
        names = [leaf.name for leaf in leaves if leaf.kind == "ids"]
        if not 1 <= len(names) <= 2:
            raise InputError(
                "Expected a model with one input of token ids, or with those of a source and of a "
                f"target. Received: inputs named {', '.join(leaf.name for leaf in leaves)}. Return "
                "a Subject from the factory, with inputs=(NAME, NAME)."
            )
        if len(names) == 2:
            lengths = {leaf.name: leaf.length for leaf in leaves}
            sizes = {
                name: lengths[name] or size
                for name, size in zip(names, (SOURCE_LENGTH, TARGET_LENGTH), strict=True)
            }
            if len(set(sizes.values())) == 1:  # both are fixed: only the names tell
                return sorted(names, key=lambda name: "target" in name or "decoder" in name)
            arrays = {name: self._random((1, size), 0) for name, size in sizes.items()}
            if np.shape(self._call(arrays))[1] == sizes[names[0]]:
                names.reverse()
        return names

    @property
    def has_source(self) -> bool:
        return len(self._ids) == 2

    @functools.cached_property
    def vocab_size(self) -> int:
        """The ids that may be drawn: fewer than V where an embedding has fewer rows."""
        ranges = getattr(self.model, "id_ranges", None)
        if ranges:
            return min(ids.stop for name, ids in ranges.items() if _Leaf(name).kind == "ids")
        tables = [layer for layer in self.layers if isinstance(layer, keras.layers.Embedding)]
        names = ("position", "segment")  # whose tables have a row for something else
        sizes = [
            layer.input_dim
            for layer in tables
            if not any(name in f"{type(layer).__name__} {layer.name}".lower() for name in names)
        ]
        return min(sizes, default=2 * SPECIAL_IDS)

    @functools.cached_property
    def tolerance(self) -> float:
        """Largest difference of logits that should be the same, as a share of the largest one."""
        epsilons = (EPSILONS.get(str(layer.compute_dtype), 0.0) for layer in self.layers)
        return max(1e-4, 8 * max(epsilons))

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """All layers of the model, those within others included, each once."""
        return nested_layers(self.model)

    def random_ids(self, num_rows: int = NUM_ROWS, seed: int = 0) -> dict[str, np.ndarray]:
        """Returns random ids: "target" `(B, T)` and, if there is one, "source" `(B, S)`."""
        sides = {"source": SOURCE_LENGTH, "target": TARGET_LENGTH}
        if not self.has_source:
            del sides["source"]
        return {
            side: self._random((num_rows, self.length_of(side) or length), seed + len(side))
            for side, length in sides.items()
        }

    def typical_ids(self) -> dict[str, np.ndarray]:
        """Returns ids of the batch, as many rows as of random ones; without a batch, random ids."""
        if self.batch is None:
            return self.random_ids()
        sides = ["source", "target"] if self.has_source else ["target"]
        return {side: self.batch_ids(side)[:NUM_ROWS] for side in sides}

    def batch_ids(self, side: str) -> np.ndarray:
        """Returns the ids `(B, T)` of a side in the batch."""
        leaves = keras.tree.flatten(self._structure)
        values = keras.tree.flatten(self.batch[0])
        name = self._ids[0 if side == "source" else -1]
        by_name = {leaf.name: value for leaf, value in zip(leaves, values, strict=True)}
        return np.asarray(ops.convert_to_numpy(by_name[name]))

    def length_of(self, side: str) -> int | None:
        """The length that the model fixes for a side; None: it takes any."""
        name = self._ids[0 if side == "source" else -1]
        leaves = keras.tree.flatten(self._structure)
        return next(leaf.length for leaf in leaves if leaf.name == name)

    def _random(self, shape, seed):
        first = min(SPECIAL_IDS, self.vocab_size // 2)
        ids = np.random.default_rng(seed).integers(first, self.vocab_size, shape)
        return ids.astype("int32")

    def inputs(self, target: np.ndarray, source: np.ndarray | None = None) -> Any:
        """Returns the inputs of the model for ids."""
        sides = [target] if source is None else [source, target]
        return self._filled(dict(zip(self._ids, sides, strict=True)))

    def _filled(self, arrays):
        def value(leaf):
            if leaf.kind == "ids":
                return ops.convert_to_tensor(arrays[leaf.name])
            ids = arrays[max(arrays, key=lambda name: _shared_beginning(name, leaf.name))]
            if leaf.kind == "mask":
                return ops.cast(ops.not_equal(ids, self.pad_id), leaf.dtype)
            zeros = ops.zeros_like(ids)
            return zeros + ops.arange(ops.shape(ids)[1]) if leaf.kind == "position" else zeros

        return keras.tree.map_structure(value, self._structure)

    def logits_tensor(self, target: np.ndarray, source: np.ndarray | None = None) -> Any:
        """Returns the logits `(B, T, V)` as a tensor."""
        return _logits_of(self.model(self.inputs(target, source), training=False))

    def logits(self, target: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
        """Returns the logits `(B, T, V)`, float32; raises ValueError for one that is not finite."""
        logits = as_array(self.logits_tensor(target, source))
        if not np.all(np.isfinite(logits)):
            raise ValueError(
                "the logits are not finite; see the checks finite weights and activations"
            )
        return logits

    def _call(self, arrays):
        return as_array(_logits_of(self.model(self._filled(arrays), training=False)))


class _Leaf:
    """An input of the model."""

    def __init__(self, name, length=None, dtype="int32"):
        self.name, self.length, self.dtype = name, length, dtype
        kinds = (kind for kind in ("mask", "segment", "token_type", "position") if kind in name)
        self.kind = next(kinds, "ids")


def _input_structure(model, names):
    """Returns the structure of the model's inputs, with a `_Leaf` for each."""
    if names is not None:
        return {name: _Leaf(name) for name in names}
    if names := getattr(model, "id_ranges", None):
        leaves = {name: _Leaf(name) for name in names}
        return leaves if len(leaves) > 1 else leaves.popitem()[1]
    try:
        given = model.input
    except (AttributeError, ValueError):  # a subclass, which says nothing about its inputs
        return _Leaf("ids")
    return keras.tree.map_structure(lambda x: _Leaf(x.name, x.shape[1], x.dtype), given)


def _shared_beginning(name, other):
    return len(os.path.commonprefix([name, other]))


def _logits_of(output):
    for value in keras.tree.flatten(output):
        if len(value.shape) == 3:
            return value
    shapes = [tuple(value.shape) for value in keras.tree.flatten(output)]
    raise InputError(
        f"Expected logits (B, T, V), or a structure whose first array of rank 3 is the logits. "
        f"Received: shapes {shapes}. Return such a model from the factory."
    )


def as_array(tensor: Any) -> np.ndarray:
    """Returns a tensor of numbers as a float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
