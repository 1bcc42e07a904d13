"""Runs one part of the GPU benchmark in its own process; prints a line of JSON.

`benchmarks/gpu.py` calls it.
"""

import argparse
import json
import pathlib
import tempfile
import time

from decoding_side import LENGTH_PENALTY, ctranslate2, hugging_face, in_batches
from pinned import multi30k
from training_side import SIZES, VOCAB_SIZE, read_batches, torch_transformer

PRODUCT = 8192
PRODUCTS = 50
BATCH_SIZE = 512
"""Sentences that are translated together: a GPU has room for more than the 64 of a CPU."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--preset", choices=SIZES)
    parser.add_argument("--batches", help="arrays that benchmarks/training.py has written")
    parser.add_argument("--run", type=pathlib.Path)
    parser.add_argument("--beam-size", type=int)
    parser.add_argument("--sentences", type=int)
    arguments = parser.parse_args()
    print(json.dumps(PARTS[arguments.part](arguments)))


def product(arguments):
    """The peak that can be reached: large products of matrices in bfloat16."""
    import jax
    import jax.numpy as jnp

    size = PRODUCT if jax.default_backend() == "gpu" else 256  # to try the program on a CPU
    x = jax.random.normal(jax.random.key(1), (size, size), jnp.bfloat16)
    multiply = jax.jit(jnp.matmul)
    multiply(x, x).block_until_ready()
    start = time.perf_counter()
    for _ in range(PRODUCTS):
        result = multiply(x, x)
    result.block_until_ready()
    seconds = (time.perf_counter() - start) / PRODUCTS
    return {"flops_per_second": 2 * size**3 / seconds, "device": str(jax.devices()[0])}


def train_torch(arguments):
    """PyTorch's speed on our batches, and the operations of a target token, in both libraries."""
    batches = read_batches(arguments.batches)
    seconds, losses = torch_transformer(batches, SIZES[arguments.preset], bfloat16=True, threads=16)
    source, target = (sum(int((batch[i] != 0).sum()) for batch in batches) for i in (0, 2))
    return {
        "tokens_per_second": target / seconds,
        "loss": losses[-1],
        "flops_per_token": 6 * weight_products(*SIZES[arguments.preset], source / target),
    }


def weight_products(num_layers, d_model, ff_dim, num_heads, sources_per_target):
    """Returns the products of weights for a target token, with those of its share of the source.

    A training has three times these, each with an addition. Products of queries and keys are left
    out: at 15 tokens a sentence, they are below 2 % of them.
    """
    projections = 4 * d_model**2
    feed_forward = 2 * d_model * ff_dim
    of_source = projections + feed_forward + projections / 2  # of keys and values for the decoder
    of_target = projections + projections / 2 + feed_forward
    stacks = num_layers * (of_target + sources_per_target * of_source)
    return stacks + VOCAB_SIZE * d_model


def translate_ours(arguments):
    from keras_transformer import Translator, load

    run = load(arguments.run, beam_size=arguments.beam_size, length_penalty=LENGTH_PENALTY)
    search = {"decoding": run.decoding, "batch_size": BATCH_SIZE}
    return timed(Translator(run.model, run.tokenizer, **search), arguments)


def peer(search, **options):
    """Returns a part that translates with another library and the weights of the run."""

    def translate(arguments):
        import peer_models

        from keras_transformer import load
        from keras_transformer.export.ctranslate2_model import write_ctranslate2

        run = load(arguments.run)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (model,) = arguments.run.glob("tokenizer/*.model")
            (folder / "tokenizer.model").write_bytes(model.read_bytes())
            if search is hugging_face:
                peer_models.write_hugging_face(run.model, folder / "hugging_face.pt")
            else:
                (folder / "ctranslate2").mkdir()
                write_ctranslate2(run, folder / "ctranslate2")
            translate = search(folder, arguments.beam_size, threads=16, **options)
            return timed(lambda lines: in_batches(translate, lines, BATCH_SIZE), arguments)

    return translate


def timed(translate, arguments):
    """Translates twice: the first time also compiles."""
    from keras_transformer.files.text import iterate_lines

    lines = list(iterate_lines(multi30k() / "train.en.gz"))[: arguments.sentences]
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        translations = translate(lines)
        seconds.append(time.perf_counter() - start)
    return {
        "sentences_per_second": len(lines) / seconds[1],
        "with_compiling": len(lines) / seconds[0],
        "words": sum(len(line.split()) for line in translations) / len(lines),
    }


PARTS = {
    "product": product,
    "torch": train_torch,
    "ours": translate_ours,
    "hugging_face": peer(hugging_face, device="auto"),
    "ctranslate2": peer(ctranslate2, device="auto", compute_type="float16"),
}

if __name__ == "__main__":
    main()
