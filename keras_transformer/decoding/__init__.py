"""From a model's logits to translations: greedy and beam search, sampling, forced scoring.

The searches are pure functions of a step function and run on every backend of Keras.
"""

from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.scoring import score
from keras_transformer.decoding.search import decode, decode_sampled
from keras_transformer.decoding.search_result import SearchResult

__all__ = [
    "SearchResult",
    "beam_search",
    "decode",
    "decode_sampled",
    "greedy_search",
    "length_penalty",
    "sample",
    "score",
]
