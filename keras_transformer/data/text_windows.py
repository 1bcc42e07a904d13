"""Windows of a text, in which a language model learns to predict each next token.

And the base class of batches that are drawn anew in each epoch, those of masked tokens included.

Shapes: B batch (windows), T length.
"""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.errors import InputError, check_positive_integers, check_seed
from keras_transformer.special_ids import PAD_ID
from keras_transformer.types import Self, Tensor, Texts

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer


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


class TextWindows(EpochBatches):
    """Cuts a text into windows of T + 1 tokens: T are read, and T are predicted.

    For training, the windows follow one another from a random offset, so that an epoch has each
    token at most once, and are shuffled. Windows and order depend only on `(seed, epoch)`. Windows
    that do not fill a batch are skipped, unless the text has fewer windows than a batch.

    For validation (`shuffle=False`), the windows start every `stride` tokens, and each token of the
    text except the first is predicted once. With a stride below T, the windows overlap, and each
    predicts only the tokens that earlier ones have not predicted. Each of these tokens then has at
    least T - stride tokens of context, at T / stride times the cost. The last window is padded.

    A batch is `(inputs, labels, weights)`: int32, int32 and float32 `(B, T)`. A weight is 1 / the
    number of labels in the batch that count, and 0 for the others, which are padding. So the sum of
    the weighted losses is the mean loss per token.

    Args:
        ids: integers `(N,)`, the text, N above 1. Padding is 0: `TokenAccuracy` and `Perplexity`
            ignore labels that are 0, so tokens should begin with 1, or with 4 as in our
            tokenizers.
        length: T; below N for training.
        batch_size: B.
        shuffle: True for training, False for validation.
        stride: only for validation; None means T.
        seed: int from 0.
    Raises:
        ValueError: ids are not integers of rank 1, do not fit into int32, are negative or too few;
            sizes are below 1, the seed is negative, or a stride is above T or with shuffle.

    Example:
        windows = TextWindows(np.arange(4, 1000), length=64, batch_size=8)
        inputs, labels, weights = next(windows.arrays())
        windows.dataset()  # for `model.fit`, with `steps_per_epoch=len(windows)`
    """

    def __init__(
        self,
        ids: Tensor,
        length: int,
        batch_size: int = 32,
        shuffle: bool = True,
        stride: int | None = None,
        seed: int = 1,
    ) -> None:
        check_positive_integers(("stride",), length=length, batch_size=batch_size, stride=stride)
        check_seed(seed)
        ids = np.asarray(ids)
        least = length + 1 if shuffle else 2
        if ids.ndim != 1 or ids.size and not np.issubdtype(ids.dtype, np.integer):
            raise InputError(
                "Expected the ids of a text: integers of rank 1. "
                f"Received: ids.shape={ids.shape}, ids.dtype={ids.dtype}."
            )
        if len(ids) < least:
            raise InputError(
                f"Expected at least {least} ids, {'a window' if shuffle else 'an input'} and its "
                f"last label. Received: {len(ids)}, with length={length}. Give more text"
                f"{', or a smaller length' if shuffle else ''}."
            )
        if ids.min() < 0 or ids.max() > np.iinfo("int32").max:
            raise InputError(
                "Expected ids from 0 that fit into int32. "
                f"Received ids from {ids.min()} to {ids.max()}."
            )
        if stride is not None and (shuffle or stride > length):
            raise InputError(
                "Expected a stride of at most the length, and only with shuffle=False. "
                f"Received: stride={stride}, length={length}, shuffle={shuffle}."
            )
        self.ids = ids.astype("int32")
        self.length = length
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.stride = stride or length
        self.seed = seed

    @classmethod
    def from_texts(cls, texts: Texts, tokenizer: "Tokenizer", length: int, **options: Any) -> Self:
        """Returns the windows of several texts in sequence, each with its end token.

        Args:
            texts: list of str, such as the lines of a file.
            tokenizer: a `Tokenizer`.
            length, options: see the class.
        """
        if isinstance(texts, (str, bytes)) or not len(texts):
            raise InputError(f"Expected a list of texts. Received: texts={texts[:30]!r}.")
        return cls(RaggedIds.encode(tokenizer, texts).ids, length, **options)

    @property
    def num_windows(self) -> int:
        """Windows in an epoch, before they are divided into batches."""
        if self.shuffle:  # as many as fit for any offset from 0 to T - 1
            return max(1, (len(self.ids) - self.length) // self.length)
        return 1 + -(-max(len(self.ids) - 1 - self.length, 0) // self.stride)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        if self.shuffle:
            return max(1, self.num_windows // self.batch_size)
        return -(-self.num_windows // self.batch_size)

    def _epoch(self, number):
        starts = self._starts(number)
        for batch in range(len(self)):
            yield self._batch(starts[batch * self.batch_size : (batch + 1) * self.batch_size])

    def _starts(self, epoch):
        """Returns the positions in the text at which the windows of an epoch start, in order."""
        if not self.shuffle:
            return np.arange(self.num_windows) * self.stride
        rng = np.random.default_rng([self.seed, epoch])
        offset = rng.integers(len(self.ids) - self.num_windows * self.length)
        return offset + self.length * rng.permutation(self.num_windows)

    def _batch(self, starts):
        places = starts[:, None] + np.arange(self.length + 1)
        is_text = places < len(self.ids)
        windows = np.where(is_text, self.ids[np.minimum(places, len(self.ids) - 1)], PAD_ID)
        inputs, labels = windows[:, :-1], windows[:, 1:]
        counts = is_text[:, 1:]
        if not self.shuffle:  # the first window predicts all, each other one the last `stride`
            counts &= (starts == 0)[:, None] | (np.arange(self.length) >= self.length - self.stride)
        labels = np.where(counts, labels, PAD_ID)
        return inputs, labels, counts.astype("float32") / np.float32(counts.sum())
