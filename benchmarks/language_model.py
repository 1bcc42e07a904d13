"""Trains a small GPT on real text for some minutes; prints its loss on text it does not learn from.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/language_model.py characters --minutes 30
    KERAS_TRANSFORMER_DATA=DATA python benchmarks/language_model.py words --minutes 30

`characters`: Tiny Shakespeare (DATA/text/tiny_shakespeare.txt.gz), the first nine tenths for
training, the rest for validation, in nats a character. `words`: trains on the test text of
WikiText-2 (its training text is not there) and validates on its validation text, in perplexity a
word: the exponential of all nats divided by the number of words and line ends, whatever the model's
tokens are.

The result is that of the best of all validations, one after every 500 steps, as in nanoGPT. Each
token of the validation text is predicted once, in two ways: in windows that lie end to end,
where the first tokens of a window have little before them, and in windows that overlap by half.
"""

import argparse
import math
import pathlib
import time

import keras
import numpy as np
from pinned import HERE, count, positive, text_file, write_results

from keras_transformer.data import TextWindows
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.files.text import iterate_lines
from keras_transformer.models import Gpt
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training import Perplexity, TokenCrossEntropy

WARMUP_STEPS = 100
SIZES = {
    "characters": dict(num_layers=4, d_model=192, num_heads=4, dropout=0.1, positions="rotary"),
    "words": dict(num_layers=3, d_model=192, num_heads=4, dropout=0.3, positions="rotary"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", choices=SIZES)
    parser.add_argument("--minutes", type=positive, default=30)
    parser.add_argument("--length", type=count, default=256, help="tokens in a window")
    parser.add_argument("--batch-size", type=count, default=16, help="windows in a batch")
    parser.add_argument("--learning-rate", type=positive, default=0.01, help="the highest")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dtype", default="float32", help="or mixed_bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], help="such as num_layers=6 dropout=0.2")
    parser.add_argument("--vocab-size", type=count, default=4000, help="of words")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(arguments.seed)

    read = {"characters": shakespeare, "words": wikitext}[arguments.data]
    train_ids, valid_ids, num_units, vocab_size, end_id, decode = read(arguments.vocab_size)
    sizes = {**SIZES[arguments.data], **dict(map(setting, arguments.set))}
    model = Gpt(
        vocab_size, max_length=arguments.length, end_id=end_id, dtype=arguments.dtype, **sizes
    )
    # Adam for the embedding, gains and biases, Muon for the matrices: 0.04 to 0.06 nats less than
    # AdamW for all after 2.5 minutes with characters
    muon = keras.optimizers.Muon(
        0.0,
        weight_decay=arguments.weight_decay,
        adam_beta_2=0.99,
        adam_weight_decay=0.0,
        adam_lr_ratio=0.5,
        global_clipnorm=1.0,
    )
    model.compile(muon, TokenCrossEntropy(0.0), metrics=[Perplexity()])
    train = TextWindows(train_ids, arguments.length, arguments.batch_size, seed=arguments.seed)
    valid = TextWindows(valid_ids, arguments.length, 32, shuffle=False)
    path = pathlib.Path("runs", f"language-model-{arguments.data}.keras")
    path.parent.mkdir(exist_ok=True)
    clock = Clock(arguments.minutes, arguments.learning_rate)
    best = keras.callbacks.ModelCheckpoint(path, "val_perplexity", save_best_only=True, mode="min")
    history = model.fit(
        train.dataset(),
        validation_data=valid.dataset(repeat=False),
        steps_per_epoch=min(len(train), 500),
        epochs=10_000,
        callbacks=[clock, best],
        verbose=2,
    ).history

    model = keras.models.load_model(path)
    overlapping = TextWindows(
        valid_ids, arguments.length, 32, shuffle=False, stride=arguments.length // 2
    )
    losses = [
        math.log(model.evaluate(each.dataset(repeat=False), verbose=0)[1])  # of the perplexity
        for each in (valid, overlapping)
    ]
    per_unit = [loss * (len(valid_ids) - 1) / num_units for loss in losses]
    print(f"{model.count_params():,} parameters, {clock.step:,} steps", end=", ")
    print(f"{clock.step * arguments.batch_size * arguments.length / len(train_ids):.1f} epochs")
    for windows, loss in zip(("end to end", "overlapping"), per_unit, strict=True):
        print(f"windows {windows}: {loss:.4f} nats a unit, perplexity {math.exp(loss):.2f}")
    for temperature in (0.5, 0.8):
        (ids,) = model.generate([valid_ids[:1]], 400, temperature=temperature, seed=arguments.seed)
        print(f"\ntemperature {temperature}\n{decode(ids)}")
    write_results(
        arguments.output or HERE / "results" / f"language-model-{arguments.data}.json",
        {
            "arguments": {n: v for n, v in vars(arguments).items() if n != "output"},
            "sizes": sizes,
            "parameters": model.count_params(),
            "steps": clock.step,
            "nats_end_to_end": per_unit[0],
            "nats_overlapping": per_unit[1],
            "validation_perplexity_a_token": history["val_perplexity"],
        },
    )


class Clock(keras.callbacks.Callback):
    """Lowers the learning rate along a cosine with the time that has passed, and stops at its end.

    So a run uses its minutes whole, whatever the machine does.
    """

    def __init__(self, minutes, learning_rate):
        super().__init__()
        self.seconds = 60 * minutes
        self.learning_rate = learning_rate
        self.step = 0

    def on_train_begin(self, logs=None):
        self.start = time.monotonic()

    def on_train_batch_begin(self, batch, logs=None):
        share = min((time.monotonic() - self.start) / self.seconds, 1.0)
        rate = self.learning_rate * (1 + math.cos(math.pi * share)) / 2
        self.model.optimizer.learning_rate.assign(rate * min(1, (self.step + 1) / WARMUP_STEPS))
        self.model.stop_training = share == 1.0
        self.step += 1

    def on_epoch_end(self, epoch, logs=None):
        minutes = (time.monotonic() - self.start) / 60
        print(f"step {self.step:,}  {minutes:.1f} min", flush=True)


def shakespeare(vocab_size):
    """Returns ids for training and validation, the number of units in the latter, and so on."""
    text = "\n".join(iterate_lines(text_file("tiny_shakespeare.txt.gz")))
    characters = sorted(set(text))
    ids = np.array([4 + characters.index(character) for character in text])
    split = len(ids) * 9 // 10

    def decode(ids):
        return "".join(characters[i - 4] for i in ids)

    return ids[:split], ids[split:], len(ids) - split - 1, 4 + len(characters), None, decode


def wikitext(vocab_size):
    """Returns the same; a line ends with the end token, so that no output goes beyond its line."""
    train, valid = (
        list(iterate_lines(text_file(f"wikitext2.{name}.txt.gz"))) for name in ("test", "valid")
    )
    tokenizer = SentencePieceTokenizer.train(train, vocab_size)
    train_ids, valid_ids = (RaggedIds.encode(tokenizer, lines).ids for lines in (train, valid))
    num_unknown = int((valid_ids == 1).sum())
    print(f"{num_unknown} of {len(valid_ids):,} validation tokens are unknown")
    num_words = sum(len(line.split()) + 1 for line in valid)

    def decode(ids):
        return tokenizer.decode([ids]).numpy()[0].decode()

    return train_ids, valid_ids, num_words, tokenizer.vocab_size, 3, decode


def setting(text):
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            pass
    return name, value


if __name__ == "__main__":
    main()
