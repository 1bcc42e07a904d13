"""Trains the model of Keras's translation tutorial on Tatoeba, and scores it beside a run of ours.

    KERAS_TRANSFORMER_DATA=DATA python benchmarks/tutorial_model.py TUTORIAL --cpu-minutes 15 \
        --run RUN

The model, its text and its training are those of "English-to-Spanish translation with a
sequence-to-sequence Transformer" (keras.io, https://keras.io/examples/nlp/), written anew: text in
lower case without punctuation, 15,000 words a language, at most 20 words a sentence, one encoder
and one decoder block of width 256 with 8 heads of 256 and feed-forward layers of 2,048, learned
positions, dropout of 0.5 before the output, RMSprop with its defaults, and batches of 64 pairs. The
loss leaves out the padding, and attention the padding of the source. French punctuation (`«`, `’`)
and no-break spaces go as well, which Spanish does not have.

The directory TUTORIAL keeps the model every 250 steps: started again, the program goes on, until
the processor has worked for `--cpu-minutes` in all. Then it translates each English sentence of the
test text once, with greedy search as in the tutorial, and scores the translations with all French
sentences that the test text has for it. The tutorial's model writes neither upper case nor
punctuation, so RUN, a run of this package, is scored twice: without both, and as it writes.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import re
import string
import sys
import time

import keras
import numpy as np
from keras import layers, ops
from pinned import machine, positive

import keras_transformer
from keras_transformer.translation.evaluation import bleu, chrf

VOCABULARY, LENGTH, WIDTH, FF_WIDTH, HEADS = 15_000, 20, 256, 2048, 8
BATCH, SAVE_EVERY = 64, 250  # pairs; steps
PADDING, UNKNOWN, START, END = range(4)
SPECIAL = ("", "[UNK]", "[start]", "[end]")
PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}«»‘’…–\u200b]")


def plain(text):
    """Returns a text as the tutorial's model reads and writes it."""
    return " ".join(PUNCTUATION.sub("", text.lower()).split())


def read_pairs(name):
    data = os.environ.get("KERAS_TRANSFORMER_DATA", "")
    path = pathlib.Path(data, "tatoeba", f"{name}.en-fr.tsv.gz")
    if not path.exists():
        sys.exit(f"Expected tatoeba/{path.name} in KERAS_TRANSFORMER_DATA. Received: {data!r}.")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in lines]


def test_text():
    """Returns the English sentences, each once, and their references, where some are None."""
    translations = collections.defaultdict(list)
    for source, target in read_pairs("test"):
        translations[source].append(target)
    most = max(map(len, translations.values()))
    padded = (targets + [None] * (most - len(targets)) for targets in translations.values())
    return list(translations), [list(stream) for stream in zip(*padded, strict=True)]


class Words:
    """The most frequent words of one language, and their ids."""

    def __init__(self, sentences):
        counts = collections.Counter(word for text in sentences for word in plain(text).split())
        frequent = [word for word, _ in counts.most_common(VOCABULARY - len(SPECIAL))]
        self.words = [*SPECIAL, *frequent]
        self._ids = {word: i for i, word in enumerate(self.words)}

    def ids(self, sentences, length, begins=False):
        """Returns int32 `(B, length)`; with `begins`, between the ids of the start and the end."""
        rows = np.zeros((len(sentences), length), "int32")
        for row, text in zip(rows, sentences, strict=True):
            ids = [self._ids.get(word, UNKNOWN) for word in plain(text).split()]
            ids = [START, *ids, END] if begins else ids
            row[: len(ids[:length])] = ids[:length]
        return rows


def tutorial_model():
    """Returns the compiled model from two `(B, 20)` of ids to `(B, 20, 15000)` probabilities."""
    source = keras.Input((LENGTH,), dtype="int32")
    target = keras.Input((LENGTH,), dtype="int32")
    is_word = ops.expand_dims(ops.not_equal(source, PADDING), 1)  # (B, 1, S)

    encoded = embedded(source)
    context = attention()(encoded, encoded, attention_mask=is_word)
    encoded = feed_forward(layers.LayerNormalization()(encoded + context))

    decoded = embedded(target)
    context = attention()(decoded, decoded, use_causal_mask=True)
    decoded = layers.LayerNormalization()(decoded + context)
    context = attention()(decoded, encoded, attention_mask=is_word)
    decoded = feed_forward(layers.LayerNormalization()(decoded + context))

    words = layers.Dense(VOCABULARY, activation="softmax")(layers.Dropout(0.5)(decoded))
    model = keras.Model([source, target], words)
    model.compile("rmsprop", keras.losses.SparseCategoricalCrossentropy(ignore_class=PADDING))
    return model


def embedded(ids):
    positions = ops.cumsum(ops.ones_like(ids), axis=1) - 1
    return layers.Embedding(VOCABULARY, WIDTH)(ids) + layers.Embedding(LENGTH, WIDTH)(positions)


def attention():
    return layers.MultiHeadAttention(HEADS, key_dim=WIDTH)


def feed_forward(x):
    hidden = layers.Dense(FF_WIDTH, activation="relu")(x)
    return layers.LayerNormalization()(x + layers.Dense(WIDTH)(hidden))


def trained_model(directory, source_ids, target_ids, cpu_minutes, seed):
    """Trains the model, or goes on training it; returns it, and the steps and minutes so far."""
    keras.utils.set_random_seed(seed)
    state_path, model_path = directory / "state.json", directory / "model.keras"
    state = {"seed": seed, "steps": 0, "cpu_minutes": 0.0}
    if state_path.exists():
        state = json.loads(state_path.read_text())
        model = keras.saving.load_model(model_path)
    else:
        model = tutorial_model()
    before, steps_an_epoch = state["cpu_minutes"], len(source_ids) // BATCH
    losses = []
    while state["cpu_minutes"] < cpu_minutes:
        epoch, step = divmod(state["steps"], steps_an_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(len(source_ids))
        rows = order[step * BATCH : (step + 1) * BATCH]
        inputs = source_ids[rows], target_ids[rows, :-1]
        losses.append(model.train_on_batch(inputs, target_ids[rows, 1:]))
        state["steps"] += 1
        state["cpu_minutes"] = before + time.process_time() / 60
        if state["steps"] % SAVE_EVERY == 0 or state["cpu_minutes"] >= cpu_minutes:
            print(
                f"step {state['steps']:,}, {state['cpu_minutes']:.1f} minutes of the processor, "
                f"loss {losses[-1]:.3f}",
                flush=True,
            )
            directory.mkdir(parents=True, exist_ok=True)
            model.save(model_path)
            state_path.write_text(json.dumps(state))
    return model, state


def translations(model, source_ids, words):
    """Returns the most probable words of each source, one after the other."""
    found = []
    for i in range(0, len(source_ids), 2 * BATCH):
        source = source_ids[i : i + 2 * BATCH]
        target = np.full((len(source), LENGTH + 1), PADDING, "int32")
        target[:, 0] = START
        for position in range(LENGTH):
            probabilities = model.predict_on_batch((source, target[:, :-1]))
            target[:, position + 1] = probabilities[:, position].argmax(-1)
            if (target == END).any(1).all():
                break
        found += [text_of(row[1:], words) for row in target]
    return found


def text_of(ids, words):
    ends = np.flatnonzero(ids == END)
    ids = ids[: ends[0]] if len(ends) else ids
    return " ".join(words.words[i] for i in ids)


def scores(hypotheses, references):
    score = bleu(hypotheses, references, hints=False)
    return {
        "bleu": score.value,
        "chrf": chrf(hypotheses, references).value,
        "signature": score.signature,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path, help="of the tutorial's model")
    parser.add_argument("--cpu-minutes", type=positive, required=True, help="of its training")
    parser.add_argument("--run", type=pathlib.Path, help="run of this package, trained on Tatoeba")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    pairs = read_pairs("train")
    source_words, target_words = (Words([pair[side] for pair in pairs]) for side in (0, 1))
    model, state = trained_model(
        arguments.directory,
        source_words.ids([source for source, _ in pairs], LENGTH),
        target_words.ids([target for _, target in pairs], LENGTH + 1, begins=True),
        arguments.cpu_minutes,
        arguments.seed,
    )
    sources, references = test_text()
    found = translations(model, source_words.ids(sources, LENGTH), target_words)
    (arguments.directory / "translations.fr").write_text("\n".join(found) + "\n", "utf-8")
    plain_references = [[text and plain(text) for text in stream] for stream in references]
    results = {"tutorial, plain": scores(list(map(plain, found)), plain_references)}
    if arguments.run is not None:
        ours = keras_transformer.load(arguments.run)(sources)
        results["ours, plain"] = scores(list(map(plain, ours)), plain_references)
        results["ours, as written"] = scores(ours, references)
    sizes = {"parameters": model.count_params(), "sentences": len(sources)}
    print(json.dumps({**machine(), **state, **sizes, **results}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
