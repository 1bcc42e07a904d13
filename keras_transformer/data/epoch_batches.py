"""Batches that are drawn anew in each epoch, of language models."""

import itertools
from collections.abc import Iterator
from typing import Any


class EpochBatches:
    """Batches that are drawn anew in each epoch.

    A subclass defines the number of batches in an epoch, and the batches of one.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    def _epoch(self, number: int) -> Iterator[Any]:
        raise NotImplementedError

    def arrays(self, repeat: bool = True, epoch: int = 0) -> Iterator[tuple[Any, Any, Any]]:
        """Yields batches `(inputs, labels, weights)` of NumPy arrays, see the class.

        Args:
            repeat: whether to continue with the following epochs, without end.
            epoch: the first epoch, from 0.
        """
        for number in itertools.count(epoch) if repeat else [epoch]:
            yield from self._epoch(number)

    def dataset(self, repeat: bool = True, epoch: int = 0) -> Any:
        """Returns the batches of `arrays`, with the same arguments, for `fit`.

        That is a `tf.data.Dataset`; on JAX and PyTorch, a generator, or a `keras.utils.PyDataset`
        with `repeat=False`. With this, each iteration yields the same batches.
        """
        from keras_transformer.data.fit_batches import fit_batches  # NumPy alone makes the arrays

        num_batches = None if repeat else len(self)
        example = next(self.arrays())
        return fit_batches(lambda: self.arrays(repeat, epoch), example, num_batches)
