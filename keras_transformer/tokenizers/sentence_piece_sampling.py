"""Random segmentation of text by a SentencePiece model, without TensorFlow."""

import numpy as np
import sentencepiece

from keras_transformer.errors import InputError


def sampled_rows(processor, sentences, sampling, seed):
    """Returns a list of int32 arrays; `SentencePieceTokenizer.encode_sampled` has the arguments."""
    start_sampling(sampling, seed)
    rows = processor.encode(
        sentences, enable_sampling=True, alpha=sampling, nbest_size=-1, num_threads=1
    )
    return [np.array(row, "int32") for row in rows]


def start_sampling(sampling, seed):
    """Checks the strength of subword sampling, and seeds the library's random numbers."""
    if not 0 < sampling <= 1:
        raise InputError(f"Expected sampling above 0 and at most 1. Received: sampling={sampling}")
    sentencepiece.set_random_generator_seed(seed)
