"""BERT on WikiText-2: masked accuracy, what positions add, and what fine-tuning gains.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/masked_language_model.py --minutes 30

Trains on `wikitext2.test`, in lower case, and holds out `wikitext2.valid` (the training file of
WikiText-2 is larger and not part of DATA/text). It measures on the held-out text:

- masked accuracy of a `Bert` trained for `--minutes`, against always answering the most frequent
  token, and against the same model without positions trained for as many steps;
- truecasing, a task whose labels come with the text: which words of a lower-case text have a
  capital first letter? Words that begin a sentence do not count. A `BertTokenClassifier` learns it
  from the first paragraphs of `wikitext2.valid` and is tested on its last 200: from the trained
  `Bert`, and from a new one, with several seeds. The 50 paragraphs before the tested ones decide
  when a training stops.
"""

import argparse
import json
import pathlib
import time

import keras
import numpy as np
from pinned import HERE, count, positive, text_file, write_results

from keras_transformer import Bert
from keras_transformer.data import MaskedTokenBatches
from keras_transformer.files.text import iterate_lines
from keras_transformer.models import BertPretraining, BertTokenClassifier
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training import InverseSquareRoot, TokenAccuracy, TokenCrossEntropy

LENGTH, BATCH_SIZE, VOCAB_SIZE = 64, 64, 5000
SIZES = dict(num_layers=4, d_model=192, ff_dim=768, num_heads=6, dropout=0.1, max_length=LENGTH)
PEAK_LEARNING_RATE, WARMUP_STEPS = 0.001, 500
SENTENCE_ENDS = (".", "!", "?")
FINE_TUNING_RATE, NUM_TEST, NUM_VALID = 0.0003, 200, 50


def read_paragraphs(split):
    """Returns the words of each paragraph, without headings and `<unk>`, which hides a word."""
    lines = iterate_lines(text_file(f"wikitext2.{split}.txt.gz"))
    lines = [[word for word in line.split() if word != "<unk>"] for line in lines]
    return [words for words in lines if words and words[0] != "="]


def sentences_of(paragraphs):
    """Returns all sentences in lower case, divided after each full stop."""
    return [
        sentence
        for words in paragraphs
        for sentence in " ".join(words).lower().replace(" . ", " .\n").split("\n")
    ]


class StopAfter(keras.callbacks.Callback):
    """Ends training after so many minutes."""

    def __init__(self, minutes):
        super().__init__()
        self.minutes = minutes

    def on_train_begin(self, logs=None):
        self.start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() - self.start > 60 * self.minutes:
            self.model.stop_training = True


def pretrain(batches, held_out, positions, seed, epochs, minutes=float("inf")):
    """Returns the `Bert`, the number of epochs and the held-out results."""
    keras.utils.set_random_seed(seed)
    bert = Bert(batches.vocab_size, positions=positions, pooler=False, **SIZES)
    model = BertPretraining(bert)
    schedule = InverseSquareRoot(PEAK_LEARNING_RATE, WARMUP_STEPS)
    adam = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0)
    model.compile(adam, TokenCrossEntropy(0.0), metrics=[TokenAccuracy()])
    history = model.fit(
        batches.dataset(),
        steps_per_epoch=len(batches),
        epochs=epochs,
        callbacks=[StopAfter(minutes)],
        verbose=2,
    )
    results = model.evaluate(held_out.dataset(repeat=False), return_dict=True, verbose=0)
    return bert, len(history.epoch), results


def most_frequent_accuracy(batches, held_out):
    """Returns the masked accuracy of the token that is most frequent in the training text."""

    def labels_of(each):
        return np.concatenate([labels[labels != 0] for _, labels, _ in each.arrays(repeat=False)])

    return float(np.mean(labels_of(held_out) == np.bincount(labels_of(batches)).argmax()))


def casing_examples(paragraphs, tokenizer):
    """Returns ids, labels and weights `(N, T)`: is the word of this first piece capitalized?"""
    ids, labels, weights = (
        np.zeros((len(paragraphs), LENGTH), t) for t in ("int32", "int32", "f4")
    )
    vocabulary = sorted({word.lower() for words in paragraphs for word in words})
    pieces = dict(zip(vocabulary, tokenizer.encode(vocabulary).to_list(), strict=True))
    for row, words in enumerate(paragraphs):
        place = 1
        ids[row, 0] = START_ID
        for i, word in enumerate(words):
            of_word = pieces[word.lower()]
            if place + len(of_word) >= LENGTH:
                break
            ids[row, place : place + len(of_word)] = of_word
            labels[row, place] = word[0].isupper()
            begins_sentence = i == 0 or words[i - 1] in SENTENCE_ENDS
            weights[row, place] = word[0].isalpha() and not begins_sentence
            place += len(of_word)
        ids[row, place] = END_ID
    return ids, labels, weights


def f1(model, examples):
    """Returns the F1 score of the capitalized words."""
    ids, labels, weights = examples
    found = (model.predict({"ids": ids}, verbose=0).argmax(axis=-1) == 1) & (weights > 0)
    there = (labels == 1) & (weights > 0)
    return float(2 * np.sum(found & there) / max(found.sum() + there.sum(), 1))


def fine_tuned_f1(bert, train, valid, test, seed):
    """Returns the F1 score on the test examples of a classifier trained on the others."""
    keras.utils.set_random_seed(seed)
    model = BertTokenClassifier(bert, num_classes=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(FINE_TUNING_RATE), loss)
    model.fit(
        {"ids": train[0]},
        train[1],
        sample_weight=train[2],
        batch_size=16,
        epochs=60,
        validation_data=({"ids": valid[0]}, *valid[1:]),
        callbacks=[keras.callbacks.EarlyStopping(patience=5, restore_best_weights=True)],
        verbose=0,
    )
    return f1(model, test)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=positive, default=30)
    parser.add_argument("--epochs", type=count, default=1000, help="at most so many")
    parser.add_argument("--seed", type=int, default=1, help="of the pre-training")
    parser.add_argument("--task-seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--output", type=pathlib.Path, help="where to write the JSON")
    arguments = parser.parse_args()

    texts = {split: read_paragraphs(split) for split in ("test", "valid")}
    sentences = {split: sentences_of(paragraphs) for split, paragraphs in texts.items()}
    tokenizer = SentencePieceTokenizer.train(sentences["test"], vocab_size=VOCAB_SIZE)
    batches = MaskedTokenBatches([sentences["test"]], tokenizer, LENGTH, BATCH_SIZE)
    held_out = MaskedTokenBatches(
        [sentences["valid"]], tokenizer, LENGTH, BATCH_SIZE, shuffle=False
    )
    bert, epochs, with_positions = pretrain(
        batches, held_out, "learned", arguments.seed, arguments.epochs, arguments.minutes
    )
    _, _, without = pretrain(batches, held_out, None, arguments.seed, epochs)
    results = {
        "arguments": {n: v for n, v in vars(arguments).items() if n != "output"},
        "sizes": SIZES,
        "parameters": bert.count_params(),
        "steps": epochs * len(batches),
        "most_frequent_token": most_frequent_accuracy(batches, held_out),
        "with_positions": with_positions,
        "without_positions": without,
        "truecasing_f1": {},
    }
    print(json.dumps(results, indent=2), flush=True)

    examples = casing_examples([words for words in texts["valid"] if len(words) > 20], tokenizer)
    test = [each[-NUM_TEST:] for each in examples]
    valid = [each[-NUM_TEST - NUM_VALID : -NUM_TEST] for each in examples]
    trained = bert.get_weights()
    for number in (50, 200, 800):
        train = [each[:number] for each in examples]
        scores = {"pretrained": [], "from_nothing": []}
        for seed in arguments.task_seeds:
            bert.set_weights(trained)
            scores["pretrained"].append(fine_tuned_f1(bert, train, valid, test, seed))
            keras.utils.set_random_seed(seed)
            new = Bert(batches.vocab_size, pooler=False, **SIZES)
            scores["from_nothing"].append(fine_tuned_f1(new, train, valid, test, seed))
        results["truecasing_f1"][number] = scores
        print(number, scores, flush=True)
    path = arguments.output or HERE / "results" / "masked-language-model.json"
    write_results(path, results)


if __name__ == "__main__":
    main()
