"""Batches in memory, which Keras reads on every backend."""

import keras


class NumpyBatches(keras.utils.PyDataset):
    """Batches that can be iterated over again, such as those of a validation.

    Args:
        batches: iterator of batches, nested NumPy arrays, which is read at once.
    """

    def __init__(self, batches):
        super().__init__()
        self._batches = list(batches)

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        return self._batches[index]
