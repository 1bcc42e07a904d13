"""Trains, translates and evaluates where TensorFlow is not installed; other commands need it.

    KERAS_BACKEND=jax python benchmarks/without_tensorflow.py benchmarks/ablations.py ARGUMENTS
    KERAS_BACKEND=jax python benchmarks/without_tensorflow.py train ARGUMENTS

This is how the trainings of `README.md` in this directory ran on a GPU. Layers, models, losses,
training and search are those of the package, on JAX; the library `sentencepiece` does in Python
what the tokenizer does in a TensorFlow graph, with the same model, and Keras iterates over the
batches without a `tf.data.Dataset`. There are no TensorBoard files. The run directory is that of
any other training, and TensorFlow reads its weights.

JAX compiles for each shape, which takes longer than training with it, so give trainings few:
`--set training.static_shapes=true`. Three things shorten this further: dropout hashes the places of
the entries instead of drawing from Threefry, texts are translated in large batches, and the
variables of `ENVIRONMENT` keep XLA from timing kernels and let processes share what it compiles.
"""

# ruff: noqa: E402 (JAX reads the environment when it is imported)
import importlib
import importlib.util
import os
import pathlib
import runpy
import sys
import types
from typing import NamedTuple

ENVIRONMENT = {
    "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several trainings share the GPU
    "JAX_COMPILATION_CACHE_DIR": "/tmp/jax-cache",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}
for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)

import jax.numpy as jnp
import keras
import numpy as np
import sentencepiece
from jax import lax

from keras_transformer import backend
from keras_transformer.data import batches
from keras_transformer.files.text import is_blank, without_surrogates
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.translation import translator


class Ragged(NamedTuple):
    """What the package reads of a `tf.RaggedTensor`."""

    flat_values: np.ndarray
    row_splits: np.ndarray

    @classmethod
    def of(cls, rows):
        lengths = [len(row) for row in rows]
        values = np.fromiter((i for row in rows for i in row), "int32", sum(lengths))
        return cls(values, np.cumsum([0, *lengths]))


class SentencePieceTokenizer:
    """What training, translation and scores need of `tokenizers.SentencePieceTokenizer`."""

    SUFFIX = ".model"

    def __init__(self, serialized):
        # `stand_in` must come before this import
        from keras_transformer.tokenizers.sentence_piece_model import with_our_special_ids

        self.serialized = with_our_special_ids(serialized)
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.serialized)
        self.vocab_size = self.processor.get_piece_size()

    @classmethod
    def train(cls, sentences, vocab_size, model_type="bpe", seed=1, user_symbols=()):
        from keras_transformer.tokenizers.sentence_piece_model import trained_model

        arguments = sentences, vocab_size, model_type, seed, user_symbols
        return cls(trained_model(*arguments))

    def encode(self, texts):
        return Ragged.of(self._rows(texts))

    def encode_truncated(self, texts, max_tokens):
        rows = self._rows(texts)
        truncated = np.array([len(row) > max_tokens for row in rows], bool)
        return Ragged.of([[*row[:max_tokens], END_ID] for row in rows]), truncated

    def copies(self, texts, ids):
        pieces = map(self.processor.id_to_piece, range(self.vocab_size))
        words = [piece.replace("\u2581", "") for piece in pieces]
        says_something = np.array([i > END_ID and not is_blank(w) for i, w in enumerate(words)])
        rows = np.split(ids.flat_values, ids.row_splits[1:-1])
        texts = [without_surrogates(text).strip() for text in texts]
        is_copied = [
            not says_something[row].any() or is_blank(text)
            for text, row in zip(texts, rows, strict=True)
        ]
        copies = [
            text.encode() if UNKNOWN_ID in row and not is_blank(text) else b""
            for text, row in zip(texts, rows, strict=True)
        ]
        return np.array(is_copied, bool), np.array(copies, object)

    def encode_sampled(self, sentences, sampling, seed):
        from keras_transformer.tokenizers.subword_sampling import SubwordSampler

        return SubwordSampler(self.processor).rows(sentences, sampling, seed)

    def decode(self, ids):
        texts = []
        for row in np.asarray(ids).tolist():
            row = row[: row.index(END_ID)] if END_ID in row else row
            known = [i if 0 <= i < self.vocab_size else UNKNOWN_ID for i in row]
            kept = [i for i in known if i not in (PAD_ID, START_ID)]
            texts.append(self.processor.decode(kept).encode())
        return np.array(texts, object)

    def save(self, directory, name="tokenizer"):
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}{self.SUFFIX}").write_bytes(self.serialized)

    def _rows(self, texts):
        return self.processor.encode([without_surrogates(text) for text in texts])


def load(directory, name="tokenizer"):
    return from_file(pathlib.Path(directory) / f"{name}{SentencePieceTokenizer.SUFFIX}")


def from_file(path):
    return SentencePieceTokenizer(pathlib.Path(path).read_bytes())


class Batches(keras.utils.PyDataset):
    """The batches of an epoch, which can be iterated again."""

    def __init__(self, batches):
        super().__init__()
        self.batches = list(batches)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def tf_dataset(generate, example, num_batches=None):
    """Returns what stands in for the `tf.data.Dataset` of the batches."""
    return generate() if num_batches is None else Batches(generate())


BATCH_SIZE = 512  # texts that are translated together: a GPU has room for more than a CPU


def dropout(x, rate, seed_generator):
    """Returns `x` with each entry zeroed with probability `rate` and the others scaled up.

    An entry is dropped if the hash of its place and of the seed is small. The hash is Wellons's
    lowbias32 (https://nullprogram.com/blog/2018/07/31/), twice, once for each half of the seed.
    """
    halves = jnp.asarray(seed_generator.next(), "uint32")
    bits = lax.iota(jnp.uint32, x.size).reshape(x.shape)
    for half in halves:
        bits = (bits ^ half) * jnp.uint32(0x9E3779B9)
        bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
        bits = bits ^ (bits >> 16)
    kept = bits >= jnp.uint32(rate * 2**32)
    return jnp.where(kept, x / (1 - rate), jnp.zeros_like(x))


class NoTensorBoard(keras.callbacks.Callback):
    def __init__(self, *arguments):
        super().__init__()


def stand_in(name, *members):
    """Puts a module of some classes and functions in the place of one of the package.

    The files beside the module, of which some need no TensorFlow, can still be imported.
    """
    module = types.ModuleType(name)
    module.__path__ = importlib.util.find_spec(name).submodule_search_locations or []
    module.__dict__.update({member.__name__: member for member in members})
    sys.modules[name] = module


def main():
    if not sys.argv[1:]:
        sys.exit("Expected a program or a command of keras-transformer. Received: no arguments.")
    program, *arguments = sys.argv[1:]
    sys.argv[:] = [program, *arguments]
    stand_in("keras_transformer.tokenizers", SentencePieceTokenizer, from_file, load)
    batches.tf_dataset = tf_dataset
    importlib.import_module("keras_transformer.training.train").TensorBoard = NoTensorBoard
    backend.dropout = dropout
    defaults = translator.Translator.__init__.__defaults__
    translator.Translator.__init__.__defaults__ = tuple(
        BATCH_SIZE if default == 64 else default for default in defaults
    )
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
    else:
        sys.argv[:] = ["keras-transformer", program, *arguments]
        runpy.run_module("keras_transformer", run_name="__main__")


if __name__ == "__main__":
    main()
