"""Decoding many inputs with a model, batch by batch.

Shapes: B batch (inputs), S input length, N hypotheses of each input, L maximum output length.
"""

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.backend.parallel_calls import parallel_calls
from keras_transformer.decoding.hypotheses import IMPOSSIBLE, SearchResult
from keras_transformer.decoding.processors import (
    Processor,
    SteeredRows,
    config_for,
    options_of,
)
from keras_transformer.decoding.sampling import check_sampling, random_numbers
from keras_transformer.decoding.search import decode, decode_sampled, special_ids_of
from keras_transformer.decoding.shortlist import Shortlist
from keras_transformer.errors import InputError, check_positive_integers, check_seed
from keras_transformer.special_ids import PAD_ID

MAX_REMEMBERED = 16
"""Compiled functions that are kept, of one search or one model."""

_remembering = threading.Lock()  # so that two threads do not compile the same search


class BatchSearch:
    """Runs compiled searches of a model on lists of inputs of any length.

    On TensorFlow, without a GPU, each core of the machine decodes a batch of its own, the longest
    inputs first. If weights change, the next call uses the new ones.

    Args:
        model: model with a `start_decoding`, see `decode`, whose inputs are rows of ids.
        config: `DecodingConfig`.
        batch_size: maximum number of inputs that are decoded together.
        shortlist: function of ids `(B, S)` that returns their `Shortlist`; None: all tokens may be
            chosen.
        processors: functions that change log-probabilities, see `decoding.processors`, after those
            that `config` asks for.
    Raises:
        ValueError: batch_size below 1.

    Example:
        for indices, found in BatchSearch(model, config).search([[5, 6, 3], [7, 3]]):
            print(indices, found.ids)
    """

    def __init__(
        self,
        model: Any,
        config: Any,
        batch_size: int = 64,
        shortlist: Callable[[Any], Shortlist] | None = None,
        processors: Sequence[Processor] = (),
    ) -> None:
        check_positive_integers(batch_size=batch_size)
        self.model = model
        self.config = config
        self.batch_size = batch_size
        self.shortlist = shortlist
        self.processors = processors
        self._compiled: dict[Hashable, Callable[..., Any]] = {}

    def search(
        self, rows: Sequence[Any], n_best: int = 1
    ) -> Iterator[tuple[Sequence[int], SearchResult]]:
        """Yields the best hypotheses, batch by batch, as `(indices, SearchResult)`.

        Args:
            rows: list of int arrays, the inputs; empty ones are left out.
            n_best: N, hypotheses of each input, at most the beam size.
        Returns:
            Iterator of the indices of a batch's rows and its result as NumPy arrays.
        """
        with parallel_calls(backend.num_search_threads()) as submit:
            for indices, result in self.submit_search(submit, rows, n_best):
                yield indices, result()

    def submit_search(
        self,
        submit: Callable[..., Any],
        rows: Sequence[Any],
        n_best: int = 1,
        steered: Sequence[SteeredRows] = (),
    ) -> list[tuple[Sequence[int], Callable[[], SearchResult]]]:
        """Begins what `search` does, so that several lists can be searched one after the other.

        Args:
            submit: the function that `parallel_calls` yields.
            rows, n_best: see `search`.
            steered: what is known of each row, such as its `Prefixes` and `TermRows`. The searches
                then choose from all tokens.
        Returns:
            List of the indices of a batch's rows and a function that returns its result.
        """

        config = config_for(self.config, [each.vocabulary for each in steered])

        def find(ids, options):
            return decode(self.model, ids, config, n_best, **options)

        return self._submit(submit, ("decode", n_best), find, rows, steered)

    def sample(
        self,
        rows: Sequence[Any],
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> Iterator[tuple[Sequence[int], SearchResult]]:
        """Yields one random hypothesis of each input, as `search` does.

        Args:
            rows: list of int arrays, the inputs.
            temperature, top_k, top_p: see `decoding.sample`.
            seed: int from 0; the same seed, row and place in the list give the same answer.
        Raises:
            ValueError: an argument outside its range.
        """
        draws = [(seed, i) for i in range(len(rows))]
        check_seed(seed)
        check_sampling(temperature, top_k, top_p)
        return self._sample(rows, draws, temperature, top_k, top_p)

    def _sample(self, rows, draws, *options):
        with parallel_calls(backend.num_search_threads()) as submit:
            for indices, result in self.submit_samples(submit, rows, draws, *options):
                yield indices, result()

    def submit_samples(
        self,
        submit: Callable[..., Any],
        rows: Sequence[Any],
        draws: Sequence[tuple[int, ...]],
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        steered: Sequence[SteeredRows] = (),
    ) -> list[tuple[Sequence[int], Callable[[], SearchResult]]]:
        """Begins what `sample` does.

        Args:
            submit, rows, steered: see `submit_search`.
            draws: for each row, integers that decide its random numbers, see `random_numbers`.
            temperature, top_k, top_p: see `decoding.sample`.
        Returns:
            As `submit_search`.
        """
        sampling = temperature, top_k, top_p

        def find(ids, options, uniforms):
            options["uniforms"] = uniforms
            return decode_sampled(self.model, ids, self.config, *sampling, **options)

        return self._submit(submit, ("sample", *sampling), find, rows, steered, draws)

    def _submit(self, submit, key, find, rows, steered, draws=None):
        """Begins a search for all rows, compiled once for each `key`.

        Args:
            find: function of ids `(B, S)`, the last arguments of `decode`, and with draws of their
                random numbers `(B, L)`. Returns a `SearchResult`.
        """
        vocabularies = [each.vocabulary for each in steered]
        is_random = draws is not None

        def found(ids, *arrays):
            numbers, arrays = (arrays[:1], arrays[1:]) if is_random else ((), arrays)
            options = options_of(vocabularies, arrays, self.processors)
            if not vocabularies:
                options["shortlist"] = self.shortlist_of(ids)
            return find(ids, options, *numbers)

        compiled = self.compiled((*key, *map(type, vocabularies)), found)
        pad, longest = special_ids_of(self.model).pad, getattr(self.model, "longest_input", None)

        def result(indices):
            ids = padded_rows([rows[i] for i in indices], pad, longest)
            arrays = [x for each in steered for x in each.arrays(indices, len(ids))]
            if is_random:
                drawn = [draws[i] for i in indices] + [0] * (len(ids) - len(indices))
                arrays = [random_numbers(drawn, self.config.max_length), *arrays]
            tensors = compiled(ids, *arrays)
            return SearchResult(*(ops.convert_to_numpy(x)[: len(indices)] for x in tensors))

        num_threads = backend.num_search_threads()
        batches = length_batches([len(row) for row in rows], self.batch_size, num_threads)
        return [(indices, submit(result, indices)) for indices in batches]

    def shortlist_of(self, ids: Any) -> Shortlist | None:
        """Returns the shortlist of ids `(B, S)`, None if all tokens may be chosen."""
        return None if self.shortlist is None else self.shortlist(ids)

    def compiled(self, key: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the compiled function of tensors, which may read the model's weights.

        It is compiled in the first call with this `key`, see `remembered`.
        """

        def compile_it():
            return backend.compile_function(function, self.model.weights)

        return remembered(self._compiled, key, compile_it)


def length_batches(lengths, batch_size, num_threads=1):
    """Returns lists of indices of inputs, the longest inputs first.

    Args:
        lengths: list of int, in any unit. Inputs of length 0 are left out.
        batch_size: maximum number of indices in a list.
        num_threads: number of threads that share the lists; few inputs are divided among them.
    """
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    size = max(1, min(batch_size, -(-len(order) // num_threads)))
    return [order[i : i + size] for i in range(0, len(order), size)]


def remembered(cache, key, make):
    """Returns `make()`, called only in the first call with this `key` among the last ones.

    Args:
        cache: dict, which forgets what was not used for longest where it has too much: a compiled
            search takes memory, and each value of an option, such as a temperature, needs its own.
    """
    with _remembering:
        value = cache.pop(key, None)
        if value is None:
            value = make()
        cache[key] = value  # at the end
        if len(cache) > MAX_REMEMBERED:
            del cache[next(iter(cache))]
    return value


def padded_rows(rows, pad_id=PAD_ID, longest=None):
    """Returns rows of ids as one int32 array `(B, S)`, padded at the end.

    On JAX, which compiles for each shape, B is rounded up to a power of two with rows of padding,
    and S to a multiple of 16, but not above `longest`, the number of the model's learned positions.
    """
    num_rows, length = len(rows), max(len(row) for row in rows)
    if keras.backend.backend() == "jax":
        num_rows, rounded = 2 ** (num_rows - 1).bit_length(), -(-length // 16) * 16
        length = rounded if longest is None else max(length, min(rounded, longest))
    ids = np.full((num_rows, length), pad_id, "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def check_scores(scores, texts):
    """Raises `ValueError` if a score is not finite, or a search has found nothing for an input.

    Args:
        scores: array `(B,)`.
        texts: list of the inputs, for the message.
    """
    for value, text in zip(scores, texts, strict=True):
        if not value > IMPOSSIBLE / 2:  # a comparison with NaN is False
            raise InputError(
                "Expected a model with finite weights and scores. Received: a score that is not "
                f"finite, of the text {text!r}. Load another checkpoint or model, or train "
                "again with a lower learning rate."
            )
