"""Compares the Vision Transformer with a small CNN and with logistic regression on digits.

    python benchmarks/image_classification.py

trains each on 80 % of the 1,797 images of `sklearn.datasets.load_digits` (8 x 8 pixels) and scores
it on the other 20 %, for several splits. The networks learn from images that are shifted and turned
at random, for the same number of epochs; the regression learns from the images as they are. It
needs `pip install scikit-learn`.
"""

import argparse
import pathlib
import time

import keras
import numpy as np
from pinned import HERE, count, write_results
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from keras_transformer import plots
from keras_transformer.models import VisionTransformer, attention_rollout, class_token_attention

BATCH_SIZE = 64


def vision_transformer():
    return VisionTransformer(
        10, image_size=8, patch_size=2, num_channels=1, num_layers=4, d_model=64, ff_dim=128,
        num_heads=4,
    )  # fmt: skip


def small_cnn():
    return keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.3),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def digits(seed):
    """Returns `(train_images, test_images, train_labels, test_labels)`, images from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    return train_test_split(images, labels, test_size=0.2, stratify=labels, random_state=seed)


def trained(network, images, labels, epochs):
    """Returns the network after training on shifted and turned images."""
    model = keras.Sequential(
        [
            keras.layers.RandomTranslation(1 / 16, 1 / 16, fill_mode="constant"),
            keras.layers.RandomRotation(0.02, fill_mode="constant"),
            network,
        ]
    )
    num_steps = epochs * -(-len(images) // BATCH_SIZE)
    warmup = num_steps // 10
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, num_steps - warmup, warmup_target=0.005, warmup_steps=warmup
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(schedule), loss)
    model.fit(images, labels, batch_size=BATCH_SIZE, epochs=epochs, verbose=0)
    return network


def accuracy(network, images, labels):
    return float(np.mean(network.predict(images, verbose=0).argmax(axis=-1) == labels))


def scores_of_split(seed, epochs):
    """Returns a dict from model to its accuracy and seconds, and the Vision Transformer."""
    train_images, test_images, train_labels, test_labels = digits(seed)
    scores = {}
    for name, make in (("vision transformer", vision_transformer), ("small CNN", small_cnn)):
        keras.utils.set_random_seed(seed)
        start, network = time.perf_counter(), make()
        trained(network, train_images, train_labels, epochs)
        seconds = time.perf_counter() - start
        scores[name] = {
            "accuracy": accuracy(network, test_images, test_labels),
            "seconds": seconds,
            "parameters": network.count_params(),
        }
        if name == "vision transformer":
            vit = network
    start = time.perf_counter()
    regression = LogisticRegression(max_iter=1000).fit(train_images.reshape(-1, 64), train_labels)
    scores["logistic regression"] = {
        "accuracy": float(regression.score(test_images.reshape(-1, 64), test_labels)),
        "seconds": time.perf_counter() - start,
        "parameters": regression.coef_.size + regression.intercept_.size,
    }
    return scores, vit


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=count, default=150)
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    results = {}
    print("| seed | model | parameters | held-out accuracy | seconds |\n|---|---|---|---|---|")
    for seed in arguments.seeds:
        results[seed], vit = scores_of_split(seed, arguments.epochs)
        for name, row in results[seed].items():
            print(
                f"| {seed} | {name} | {row['parameters']:,} | {row['accuracy']:.2%} "
                f"| {row['seconds']:.0f} |",
                flush=True,
            )
    path = arguments.output or HERE / "results" / "image-classification.json"
    write_results(path, {"epochs": arguments.epochs, "results": results})
    _, images, _, _ = digits(arguments.seeds[-1])
    _, weights = vit(images[:6], return_attention_weights=True)
    maps = {
        "last layer": class_token_attention(weights, vit.grid),
        "rollout": attention_rollout(weights, vit.grid),
    }
    plots.image_attention(images[:6], maps, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
