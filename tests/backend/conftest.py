"""A loop whose every number depends on its sentence, its hypothesis and all steps before."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from keras import ops


class Progress(NamedTuple):
    """The state of the loop."""

    active: Any
    pushes: Any


class Journeys:
    """N hypotheses of B sentences, sentence b of lengths[b] steps.

    In each step a hypothesis's state moves on, is written into its history, is pushed by the whole
    of the history, and the hypotheses of a sentence change places in a circle.
    """

    def __init__(self, lengths, num_hypotheses, seed=1):
        rng = np.random.default_rng(seed)
        self.lengths = np.array(lengths, "int32")
        self.num_hypotheses = num_hypotheses
        rows = len(lengths) * num_hypotheses
        self.states = rng.normal(size=(rows, 5)).astype("float32")
        self.topics = rng.normal(size=(len(lengths), 5)).astype("float32")

    @property
    def arrays(self):
        return self.lengths, self.states, self.topics

    def run(self, implementation, max_length, arrays=None, watch=lambda step, state, cache: None):
        """Returns which sentence is active, and the last push of each hypothesis `(B, N, D)`.

        Args:
            implementation: the module, `portable` or a backend's.
            max_length: most steps.
            arrays: tensors in the place of `arrays`.
            watch: called on what the body is called on.
        """
        n = self.num_hypotheses
        lengths, states, topics = map(ops.convert_to_tensor, arrays or self.arrays)

        def body(step, state, cache, memory):
            watch(step, state, cache)
            active, pushes = state
            lengths, topics = memory["lengths"], memory["topics"]
            states, history = cache["states"], cache["history"]
            states = ops.tanh(states + ops.repeat(topics, n, axis=0))[:, None]  # (R, 1, D)
            values = ops.concatenate([states, ops.square(states)], axis=1)  # (R, H, D)
            [history] = implementation.cache_update(
                [history], implementation.cache_position(history, step), [values]
            )
            positions = ops.arange(ops.shape(history)[2], dtype="float32")
            read = ops.cos(positions)[:, None] * history
            push = 0.3 * ops.sum(read, axis=(1, 2))  # (R, D)
            states = ops.tanh(states[:, 0] + push)
            new_pushes = ops.reshape(push, (-1, n, 5))
            pushes = ops.where(active[:, None, None], new_pushes, pushes)
            rows = ops.reshape(ops.arange(ops.shape(lengths)[0] * n), (-1, n))
            rows = ops.reshape(ops.roll(rows, -1, axis=1), (-1,))
            cache = {"states": states, "history": history}
            if n > 1:  # of one, a cache stays where it is from step to step
                cache = {
                    name: implementation.take_rows(tensor, rows) for name, tensor in cache.items()
                }
            return Progress(active & (step + 1 < lengths), pushes), cache

        num_rows = ops.shape(states)[0]
        history = implementation.start_cache(num_rows, 2, max_length, 5, "float32")
        cache = {"states": states, "history": history}
        state = Progress(lengths > 0, ops.zeros((ops.shape(lengths)[0], n, 5)))
        memory = {"lengths": lengths, "topics": topics}
        return implementation.search_loop(body, state, cache, memory, n, max_length)

    def pushes_by_loops(self):
        pushes = np.zeros((len(self.lengths), self.num_hypotheses, 5))
        for b, length in enumerate(self.lengths):
            first = b * self.num_hypotheses
            hypotheses = [(self.states[first + n], []) for n in range(self.num_hypotheses)]
            for _ in range(length):
                extended = []
                for n, (state, history) in enumerate(hypotheses):
                    state = np.tanh(state + self.topics[b].astype("float64"))
                    history = [*history, state + state**2]
                    push = 0.3 * sum(np.cos(i) * entry for i, entry in enumerate(history))
                    pushes[b, n] = push
                    extended.append((np.tanh(state + push), history))
                hypotheses = [*extended[1:], extended[0]]
        return pushes


@pytest.fixture(scope="session")
def journeys():
    return Journeys
