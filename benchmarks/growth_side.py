"""Measures one point of the growth benchmark in its own process; prints a line of JSON."""

import argparse
import json
import time

from pinned import peak_megabytes

VOCAB_SIZE = 10_000
MINIMUM_SECONDS = 1.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    keras.utils.set_random_seed(1)
    step = JOBS[arguments.job](arguments.batch, arguments.length)
    step()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < MINIMUM_SECONDS:
        step()
        count += 1
    seconds = (time.perf_counter() - start) / count
    print(json.dumps({"seconds": seconds, "megabytes": peak_megabytes()}))


def training(batch, length):
    """Returns a function that takes one step of `fit`."""
    import keras
    import numpy as np

    from keras_transformer import Transformer
    from keras_transformer.training import TokenCrossEntropy

    model = Transformer.from_preset("tiny", VOCAB_SIZE)
    model.compile(keras.optimizers.Adam(), TokenCrossEntropy(0.1))
    ids = source(batch, length)
    weights = np.full(ids.shape, 1 / ids.size, "float32")
    return lambda: model.train_on_batch(
        {"source_ids": ids, "target_ids": ids}, ids, sample_weight=weights
    )


def decoding(batch, length):
    """Returns a function for a greedy search of as many tokens as the source has."""
    import numpy as np

    from keras_transformer import Transformer, backend
    from keras_transformer.config import DecodingConfig
    from keras_transformer.decoding import decode
    from keras_transformer.special_ids import END_ID

    model = Transformer.from_preset("tiny", VOCAB_SIZE, tie_output=False)
    model.build()
    kernel = model.output_layer.get_weights()[0]
    kernel[:, END_ID] = 0.0  # so that no random hidden state makes the end token most probable
    model.output_layer.set_weights([kernel])
    config = DecodingConfig(beam_size=1, max_length=length)
    search = backend.compile_function(lambda ids: decode(model, ids, config).ids)
    ids = source(batch, length)

    def step():
        found = np.asarray(search(ids))
        assert found.shape == (batch, 1, length) and np.all(found > END_ID)

    return step


def source(batch, length):
    import numpy as np

    return np.random.default_rng(1).integers(4, VOCAB_SIZE, (batch, length)).astype("int32")


JOBS = {"training": training, "decoding": decoding}

if __name__ == "__main__":
    main()
