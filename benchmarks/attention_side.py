"""Measures one point of the attention benchmark in its own process; prints a line of JSON."""

import argparse
import json
import time

from pinned import peak_megabytes

HEAD_DIM = 64
SIZE = 128  # of a window, a block, a stride
MINIMUM_SECONDS = 0.5
KINDS = {
    "dense": "dense",
    "local, window 128": {"name": "local", "window": SIZE},
    "block of 128": {"name": "block", "block_size": SIZE},
    "strided by 128": {"name": "strided", "stride": SIZE},
    "linear": "linear",
    "Performer, 256 features": {"name": "performer", "num_features": 256, "seed": 1},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    from keras_transformer.layers.attention.from_config import attention_from_config

    layer = attention_from_config(KINDS[arguments.kind])
    shape = (1, arguments.length, 1, HEAD_DIM)
    layer.build(shape, shape, shape)
    x = [tf.random.stateless_normal(shape, [1, i]) for i in range(3)]

    @tf.function(jit_compile=False)
    def forward(*x):
        return layer(*x, causal=True)

    @tf.function(jit_compile=False)
    def backward(*x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.square(layer(*x, causal=True)))
        return tape.gradient(total, x)

    result = {"idle_megabytes": peak_megabytes()}
    for name, function in (("forward", forward), ("backward", backward)):
        result[name] = {"seconds": seconds(lambda f=function: f(*x)), "megabytes": peak_megabytes()}
    print(json.dumps(result))


def seconds(function):
    function()
    count, start = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start < MINIMUM_SECONDS:
        function()
        count += 1
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
