"""A toy model whose logits depend on everything said before, in `keras.ops` and in NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.layers import DecodingState


class ToyModel:
    """Random next-token logits of B sentences, each with its own, from a state and a history.

    A search that mixes up hypotheses or sentences meets other logits: the recurrent state
    `(R, 1, 1, D)` and the history `(R, 1, L, D)` are cache tensors that must follow their
    hypothesis, the topic `(B, D)` is a memory that must stay with its sentence.
    """

    def __init__(self, seed, batch_size, vocab_size, end_bias=0.0, sharpness=2.0):
        rng = np.random.default_rng(seed)
        d_model = 5
        self.vocab_size = vocab_size
        self.first_states, self.topics = rng.normal(size=(2, batch_size, d_model)).astype("float32")
        self.embeddings = rng.normal(size=(vocab_size, d_model)).astype("float32")
        self.recurrence = rng.normal(size=(d_model, d_model)).astype("float32")
        self.output = sharpness * rng.normal(size=(d_model, vocab_size)).astype("float32")
        self.position_weights = rng.normal(size=61).astype("float32")
        self.bias = np.zeros(vocab_size, "float32")
        self.bias[3] = end_bias

    def sentences(self, rows):
        """Returns the same model with some of the sentences."""
        part = object.__new__(ToyModel)
        part.__dict__.update(self.__dict__)
        part.first_states, part.topics = self.first_states[rows], self.topics[rows]
        return part

    def start(self, num_hypotheses, max_length):
        """Returns the state and the prompts of a search."""
        states = np.repeat(self.first_states, num_hypotheses, axis=0)[:, None, None]
        history = backend.start_cache(len(states), 1, max_length, states.shape[-1], "float32")
        cache = {"states": ops.convert_to_tensor(states), "history": history}
        state = DecodingState(cache, {"topics": ops.convert_to_tensor(self.topics)})
        return state, ops.full((len(self.topics), 1), 2, dtype="int32")

    def step(self, token_ids, step, state):
        """The step function of a search."""
        tokens = ops.reshape(token_ids, (-1,))
        inputs = ops.take(ops.convert_to_tensor(self.embeddings), tokens, axis=0)  # (R, D)
        states = state.cache["states"][:, 0, 0]
        states = ops.tanh(ops.matmul(states, self.recurrence) + inputs)
        history = state.cache["history"]
        place = backend.cache_position(history, step)
        [history] = backend.cache_update([history], place, [inputs[:, None]])
        weights = ops.convert_to_tensor(self.position_weights)[: ops.shape(history)[2], None]
        features = states + ops.sum(weights * history[:, 0], axis=1)
        features = ops.reshape(features, (-1, token_ids.shape[1], features.shape[-1]))
        features = features + state.memory["topics"][:, None]
        logits = ops.add(ops.matmul(features, self.output), self.bias)
        cache = {"states": states[:, None, None], "history": history}
        return logits, state._replace(cache=cache)

    def log_probs(self, sentence, prefix):
        """Returns the log-probabilities `(V,)` after a list of tokens, by a loop over it."""
        state = self.first_states[sentence].astype("float64")
        features = self.topics[sentence].astype("float64")
        for position, token in enumerate([2, *prefix]):
            state = np.tanh(state @ self.recurrence + self.embeddings[token])
            features += self.position_weights[position] * self.embeddings[token]
        logits = (state + features) @ self.output + self.bias
        return logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()

    def log_prob(self, sentence, tokens):
        """Returns the summed log-probability of a list of tokens."""
        steps = range(len(tokens))
        return sum(self.log_probs(sentence, tokens[:i])[tokens[i]] for i in steps)


def padded_sources(lengths, vocab_size):
    """Returns random ids `(B, 13)`: so many tokens in each row, the end token, and padding."""
    rng = np.random.default_rng(5)
    ids = np.zeros((len(lengths), 13), "int32")
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = rng.integers(4, vocab_size, size=length)
        row[length] = 3
    return ids


def parts(result):
    return [ops.convert_to_numpy(part) for part in result]


def assert_same_parts(found, expected, tolerance=1e-5):
    """The same ids as far as both go, and the same scores."""
    width = min(found[0].shape[-1], expected[0].shape[-1])
    np.testing.assert_array_equal(found[0][..., :width], expected[0][..., :width])
    np.testing.assert_allclose(found[1], expected[1], rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(found[2], expected[2])
    np.testing.assert_array_equal(found[3], expected[3])


@pytest.fixture(scope="session")
def toy_model():
    return ToyModel


@pytest.fixture(scope="session")
def hypotheses():
    """From a search's result to the lists of (tokens, score, finished), one list a sentence."""

    def read(result):
        ids, scores, lengths, finished = parts(result)
        for row_ids, row_lengths in zip(ids, lengths, strict=True):
            for hypothesis, length in zip(row_ids, row_lengths, strict=True):
                assert np.all(hypothesis[:length] > 2) and np.all(hypothesis[length:] == 0)
        return [
            [
                (tuple(map(int, row[:length])), float(score), bool(end))
                for row, length, score, end in zip(*sentence, strict=True)
            ]
            for sentence in zip(ids, lengths, scores, finished, strict=True)
        ]

    return read
