"""Trains the captioner on generated pictures, and scores captions of pairs never seen together.

    python benchmarks/image_captions.py

trains `ImageCaptioner` on 20,000 pictures of `quickstart.pictures`: with features from convolutions
and a Transformer decoder, with the same features and the recurrent decoder of "Show, attend and
tell", and with patches. It counts exact captions of 500 held-out pictures, by greedy search and
with a beam of 4, and draws the attention over the first held-out pictures, word by word.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
from keras import ops
from pinned import HERE, count, positive, write_results

from keras_transformer import backend, plots
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.layers import RnnDecoder, TokenEmbedding
from keras_transformer.models import ImageCaptioner
from keras_transformer.quickstart.pictures import (
    WORDS,
    caption_examples,
    caption_words,
    picture_corpus,
)
from keras_transformer.training import TokenAccuracy, TokenCrossEntropy

BATCH_SIZE = 64
WIDTH = 128
MODELS = {
    "convolutional": lambda: dict(features="convolutional", num_convolutions=2),
    "convolutional-rnn": lambda: dict(
        features="convolutional",
        num_convolutions=2,
        decoder=RnnDecoder(TokenEmbedding(len(WORDS), WIDTH)),
    ),
    "patches": lambda: dict(features="patches", patch_size=4),
}


def trained(name, pictures, epochs, learning_rate, seed):
    keras.utils.set_random_seed(seed)
    model = ImageCaptioner(len(WORDS), d_model=WIDTH, **MODELS[name]())
    inputs, labels, weights = caption_examples(pictures.train, BATCH_SIZE)
    num_steps = epochs * -(-len(labels) // BATCH_SIZE)
    warmup = num_steps // 10
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, num_steps - warmup, warmup_target=learning_rate, warmup_steps=warmup
    )
    adam = keras.optimizers.Adam(schedule)
    model.compile(adam, TokenCrossEntropy(), metrics=[TokenAccuracy()])
    model.fit(
        inputs,
        labels,
        sample_weight=weights,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        validation_data=caption_examples(pictures.valid, BATCH_SIZE),
        verbose=2,
    )
    return model


def captions_of(model, images, beam_size):
    """Returns the captions, as lists of words, and their ids `(B, T)`."""
    config = DecodingConfig(beam_size=beam_size, max_length=12)
    search = backend.compile_function(lambda x: decode(model, x, config).ids[:, 0], model.weights)
    parts = np.array_split(images, -(-len(images) // 100))
    found = [ops.convert_to_numpy(search(ops.convert_to_tensor(part))) for part in parts]
    length = max(part.shape[1] for part in found)
    ids = np.concatenate([np.pad(x, ((0, 0), (0, length - x.shape[1]))) for x in found])
    return [caption_words(row) for row in ids], ids


def exact(captions, references):
    """Returns the share of captions that equal their references word for word."""
    return float(np.mean([" ".join(c) == r for c, r in zip(captions, references, strict=True)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--pictures", type=count, default=20_000)
    parser.add_argument("--epochs", type=count, default=20)
    parser.add_argument("--learning-rate", type=positive, default=0.003, help="the highest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    pictures = picture_corpus(arguments.pictures, 500, arguments.seed)
    path = arguments.output or HERE / "results" / "image-captions.json"
    results = {}
    for name in arguments.models:
        start = time.perf_counter()
        model = trained(name, pictures, arguments.epochs, arguments.learning_rate, arguments.seed)
        minutes = (time.perf_counter() - start) / 60
        row = {"parameters": model.count_params(), "minutes": minutes}
        for split, held_out in (("valid", pictures.valid), ("test", pictures.test)):
            for beam_size in (1, 4):
                captions, ids = captions_of(model, held_out.images, beam_size)
                row[f"{split}, beam {beam_size}"] = exact(captions, held_out.captions)
        results[name] = row
        print(name, row, flush=True)
        images = held_out.images[:3]
        maps = model.attention_maps(images, ids[:3])
        for number, (image, words) in enumerate(zip(images, captions, strict=False)):
            picture = path.with_name(f"{path.stem}-{name}-{number + 1}.png")
            plots.caption_attention(image, words, maps[number][: len(words)], picture)
    settings = {n: v for n, v in vars(arguments).items() if n not in ("models", "output")}
    write_results(path, {**settings, "results": results})


if __name__ == "__main__":
    main()
