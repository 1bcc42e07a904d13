"""From a model's logits to its outputs: greedy search, beam search, sampling, and scoring.

The searches are pure functions of a step function, prompts, limits and a state, and run on every
backend of Keras.
"""

from keras_transformer.decoding.batch_search import BatchSearch
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.greedy import greedy_search
from keras_transformer.decoding.hypotheses import DecodingStart, SearchResult
from keras_transformer.decoding.processors import MinLength, NoRepeatNgram, RepetitionPenalty
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.scoring import length_penalty, score
from keras_transformer.decoding.search import decode, decode_sampled, stream
from keras_transformer.decoding.search_tree import SearchNode, SearchTree, search_tree
from keras_transformer.decoding.shortlist import Shortlist

__all__ = [
    "BatchSearch",
    "DecodingStart",
    "MinLength",
    "NoRepeatNgram",
    "RepetitionPenalty",
    "SearchNode",
    "SearchResult",
    "SearchTree",
    "Shortlist",
    "beam_search",
    "decode",
    "decode_sampled",
    "greedy_search",
    "length_penalty",
    "sample",
    "score",
    "search_tree",
    "stream",
]
