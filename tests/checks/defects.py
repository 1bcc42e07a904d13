"""Models with one defect each, as users make them, and the check that finds it."""

import keras
import numpy as np
from keras import ops

from keras_transformer import layers as ours
from keras_transformer.checks import Subject
from keras_transformer.models import Bert, Gpt, RnnSeq2Seq, Transformer

V, D = 40, 16
L = keras.layers
DEFECTS = {}
"""From the name of a check to functions that make a `Subject` it must fail for."""


def found_by(name):
    def register(function):
        DEFECTS[function.__name__] = name, function
        return function

    return register


def language_model(mix, mask_zero=False, **subject):
    """A stock Keras model: an embedding, `mix` of its output, a dense layer."""
    ids = keras.Input((None,), dtype="int32")
    x = L.Embedding(V, D, mask_zero=mask_zero)(ids)
    return Subject(keras.Model(ids, L.Dense(V)(mix(x))), **subject)


def causal_attention(x, **options):
    return x + L.MultiHeadAttention(2, D // 2)(x, x, use_causal_mask=True, **options)


def recurrent(x):
    return L.GRU(D, return_sequences=True)(x)


def translator(source_mix=None, cross=None, length=None):
    """A stock Keras model of two inputs: recurrent, with attention."""
    names = "source", "target"
    source, target = (keras.Input((length,), dtype="int32", name=name) for name in names)
    read = L.Bidirectional(L.GRU(D // 2, return_sequences=True))(
        L.Embedding(V, D, mask_zero=True)(source)
    )
    if source_mix is not None:
        read = source_mix(read)
    x = recurrent(L.Embedding(V, D, mask_zero=True)(target))
    x = x + (L.MultiHeadAttention(2, D // 2)(x, read) if cross is None else cross(x, read))
    return Subject(keras.Model([source, target], L.Dense(V)(x)))


# === What a position sees ===


class MaskOneOff(keras.layers.Layer):
    """Attention whose mask lets each position see the next one."""

    def build(self, shape):
        self.attend = L.MultiHeadAttention(2, D // 2)
        self.attend.build(shape, shape)

    def call(self, x):
        places = ops.arange(ops.shape(x)[1])
        return x + self.attend(x, x, attention_mask=(places[None] <= places[:, None] + 1)[None])


@found_by("causality")
def a_mask_that_is_one_off():
    return language_model(MaskOneOff())


@found_by("causality")
def no_causal_mask():
    return language_model(lambda x: x + L.MultiHeadAttention(2, D // 2)(x, x))


@found_by("causality")
def a_recurrent_layer_that_reads_both_ways():
    return language_model(L.Bidirectional(L.GRU(D // 2, return_sequences=True)))


@found_by("causality")
def a_convolution_around_each_position():
    return language_model(lambda x: recurrent(L.Conv1D(D, 3, padding="same")(x)))


class OverTime(keras.layers.Layer):
    """Takes the mean of the wrong axis."""

    def call(self, x):
        return x - ops.mean(x, axis=1, keepdims=True)


@found_by("causality")
def a_normalization_over_time():
    return language_model(lambda x: OverTime()(recurrent(x)))


class TinyLeak(keras.layers.Layer):
    """Adds a millionth of the mean of all positions."""

    def call(self, x):
        return x + 1e-6 * ops.mean(x, axis=1, keepdims=True)


@found_by("causality by gradients")
def a_leak_too_small_to_see_in_logits():
    return language_model(lambda x: recurrent(TinyLeak()(x)))


# === Batches and padding ===


class OverTheBatch(keras.layers.Layer):
    """Normalizes by the mean of the batch, also when it predicts."""

    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


@found_by("neighbours")
def statistics_of_the_batch():
    return language_model(lambda x: OverTheBatch()(recurrent(x)))


class DropsMask(keras.layers.Layer):
    """A layer of a user, which does not hand Keras's mask on."""

    def call(self, x):
        return x * 2.0

    def compute_mask(self, inputs, previous_mask=None):
        return None


@found_by("padding")
def an_implicit_mask_that_dies():
    return translator(source_mix=DropsMask())


@found_by("padding")
def a_mean_with_padding():
    return translator(cross=lambda x, read: ops.mean(read, axis=1, keepdims=True))


@found_by("padding")
def padding_that_is_read_in_sources_of_one_length():
    source, target = (keras.Input((6,), dtype="int32", name=n) for n in ("encoder", "decoder"))
    read = L.Dense(D)(L.Embedding(V, D)(source))
    x = recurrent(L.Embedding(V, D, mask_zero=True)(target))
    x = x + L.MultiHeadAttention(2, D // 2)(x, read)
    return Subject(keras.Model([source, target], L.Dense(V)(x)))


# === What changes nothing ===


@found_by("source")
def a_source_that_is_not_read():
    return translator(cross=lambda x, read: L.Dense(D)(x) + 0.0 * ops.mean(read))


@found_by("order")
def attention_without_positions():
    return language_model(causal_attention)


class UnusedBranch(keras.layers.Layer):
    """A gate whose parameter only reaches the output times zero."""

    def build(self, shape):
        self.gate = self.add_weight(name="gate", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x + 0.0 * self.gate


@found_by("gradients reach all weights")
def a_weight_that_is_not_used():
    return language_model(lambda x: UnusedBranch()(recurrent(x)))


# === What changes by itself ===


class AlwaysNoise(keras.layers.Layer):
    """Dropout that does not look at `training`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x):
        return keras.random.dropout(x, 0.3, seed=self.seed)


@found_by("same twice")
def dropout_while_predicting():
    return language_model(lambda x: AlwaysNoise()(recurrent(x)))


# === Numbers ===


@found_by("finite weights")
def a_weight_that_is_not_a_number():
    subject = language_model(recurrent)
    weight = subject.model.weights[-1]
    weight.assign(np.full(weight.shape, np.nan))
    return subject


@found_by("activations")
def dead_units():
    def mix(x):
        x = recurrent(x)
        dead = L.Dense(D, activation="relu", bias_initializer=keras.initializers.Constant(-1e3))
        return x + dead(x)

    return language_model(mix)


@found_by("attention")
def scores_that_are_not_scaled():
    def mix(x):
        attend = L.MultiHeadAttention(2, D // 2, kernel_initializer="random_normal")
        y = attend(recurrent(x), x * 1e12, use_causal_mask=True)
        return recurrent(x) + y

    return language_model(mix)


class LargeNumbers(keras.layers.Layer):
    """A mask with a number that float16 does not have."""

    def call(self, x):
        return x + 1e9 - ops.cast(1e9, x.dtype)


@found_by("mixed precision")
def numbers_that_half_precision_lacks():
    return language_model(lambda x: LargeNumbers()(recurrent(x)))


# === Steps ===


class ForgetsTheOffset(Gpt):
    """Decodes each token as if it were the first."""

    def start_decoding(self, *arguments, **options):
        start = super().start_decoding(*arguments, **options)
        return start._replace(step_fn=lambda ids, step, state: start.step_fn(ids, 0 * step, state))


@found_by("steps")
def positions_that_ignore_the_offset():
    return Subject(ForgetsTheOffset(V, d_model=D, num_heads=2, ff_dim=D, num_layers=1))


class LikeKerasHub(keras.Model):
    """Generates as the tasks of KerasHub do: a sampler calls `next` with the cache."""

    def __init__(self, gpt):
        super().__init__()
        self.gpt = gpt

    def call(self, ids):
        return self.gpt(ids)

    def generate_step(self, ids):
        start = self.gpt.start_decoding(ids[:, :1], ids.shape[1])

        def next(prompt, cache, index):
            logits, cache = start.step_fn(prompt[:, index - 1 : index], index - 1, cache)
            return logits[:, 0], None, cache

        return self.sampler(next=next, prompt=ids, cache=start.state, index=1)


@found_by("steps")
def positions_that_ignore_the_offset_in_a_cache_of_keras_hub():
    gpt = ForgetsTheOffset(V, d_model=D, num_heads=2, ff_dim=D, num_layers=1)
    return Subject(LikeKerasHub(gpt))


# === Saving ===


class LosesAnArgument(keras.layers.Layer):
    """`get_config` leaves out `factor`."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor


@found_by("save and load")
def a_config_that_loses_an_argument():
    keras.saving.register_keras_serializable("defects")(LosesAnArgument)
    subject = language_model(lambda x: LosesAnArgument(3.0)(recurrent(x)))
    subject.modules.append("tests.checks.defects")
    return subject


# === Batches of a training ===


def batch(shift=1, end=3, padding=3, weights=None):
    """Ids and labels of four rows of different lengths, the rest padding."""
    rng, rows = np.random.default_rng(0), []
    for length in (3, 5, 6, 7):
        row = rng.integers(4, V, length).tolist() + [end]
        rows.append(row + [0] * (8 - length + padding - 2))
    labels = np.array(rows, "int32")
    ids = np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=2) if shift else labels
    return ids, labels, (labels != 0).astype("float32") if weights is None else weights


@found_by("labels are the next tokens")
def labels_that_are_not_shifted():
    return language_model(recurrent, batch=batch(shift=0))


@found_by("end token")
def an_end_token_that_is_padding():
    return language_model(recurrent, batch=batch(end=0))


@found_by("loss on padding")
def padding_with_a_weight():
    return language_model(recurrent, batch=batch(weights=np.ones((4, 9), "float32")))


@found_by("loss on padding")
def a_loss_that_counts_padding():
    subject = language_model(recurrent, batch=batch()[:2])
    subject.model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return subject


# === Text ===


class Words:
    """A tokenizer of whole words; `spaces` False: it forgets what stood between them."""

    unknown_ids = (1,)

    def __init__(self, words, spaces=True):
        self.words, self.between = ["<pad>", "<unk>", "<s>", "</s>", *words], " " * spaces

    def encode(self, texts):
        known = self.words
        return [[known.index(w) if w in known else 1 for w in text.split()] for text in texts]

    def decode(self, rows):
        return [self.between.join(self.words[i] for i in row) for row in rows]


TEXT = (("a dog runs", "a cat sleeps"), ("ein Hund rennt", "eine Katze schläft"))


def subject_of_text(**options):
    words = [word for side in TEXT for text in side for word in text.split()]
    return language_model(recurrent, **{"tokenizers": [Words(words)], "texts": TEXT, **options})


@found_by("tokenizer round trip")
def a_tokenizer_that_drops_spaces():
    return subject_of_text(tokenizers=[Words(" ".join(sum(TEXT, ())).split(), spaces=False)])


@found_by("unknown tokens")
def a_tokenizer_of_another_text():
    return subject_of_text(tokenizers=[Words(["a", "dog", "runs"])])


@found_by("lengths")
def texts_that_are_cut():
    return subject_of_text(max_length=3)


@found_by("validation is not in the training text")
def validation_text_that_was_trained_on():
    return subject_of_text(train_texts=TEXT)


def right_models():
    """Models of the package and of stock Keras that have no defect, by name."""
    small = dict(d_model=D, num_heads=2, ff_dim=D, num_layers=1)

    def transformer(**options):
        return lambda: Subject(Transformer(V, **{**small, **options}))

    def convolution(x, **options):
        return L.Conv1D(D, 3, padding="causal", activation="gelu", **options)(x)

    def wavenet(x):
        """Two gated, dilated convolutions with residuals (van den Oord et al., 2016)."""
        for dilation in (1, 2):
            gate = L.Conv1D(D, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")
            filtered = L.Conv1D(D, 2, padding="causal", dilation_rate=dilation, activation="tanh")
            x = x + L.Dense(D)(filtered(x) * gate(x))
        return x

    def decoder(x):
        """A Transformer of Keras's own layers, with positions of ours."""
        x = ours.SinusoidalPositions()(x)
        x = L.LayerNormalization()(causal_attention(x))
        return L.LayerNormalization()(x + L.Dense(D)(L.Dense(2 * D, activation="gelu")(x)))

    def grouped(x):
        x = ours.SinusoidalPositions()(x)
        return x + L.GroupQueryAttention(D // 4, 4, 2)(x, x, use_causal_mask=True)

    def stacked(x):
        return L.RNN([L.LSTMCell(D), L.GRUCell(D)], return_sequences=True)(x)

    def recurrent_seq2seq():
        """The state of an encoder starts a decoder (Sutskever et al., 2014)."""
        source, target = (
            keras.Input((None,), dtype="int32", name=n) for n in ("encoder", "decoder")
        )
        _, *state = L.LSTM(D, return_state=True)(L.Embedding(V, D, mask_zero=True)(source))
        x = L.Embedding(V, D, mask_zero=True)(target)
        x = L.LSTM(D, return_sequences=True)(x, initial_state=state)
        return Subject(keras.Model([source, target], L.Dense(V)(x)))

    return {
        "transformer": transformer(),
        "pre-norm, tied, learned": transformer(normalize_first=True, positions="learned"),
        "rotary": transformer(positions="rotary"),
        "ALiBi": transformer(positions="alibi"),
        "local attention": transformer(attention={"name": "local", "window": 3}),
        "block attention": transformer(attention={"name": "block", "block_size": 3}),
        "strided attention": transformer(attention={"name": "strided", "stride": 3}),
        "linear attention": transformer(attention="linear", cross_attention="linear"),
        "performer": transformer(attention="performer", cross_attention="performer"),
        "ssru": transformer(decoder_attention="ssru"),
        "two decoder layers, untied": transformer(num_decoder_layers=2, tie_output=False),
        "swish": transformer(activation="swish", output_bias=True, share_embeddings=False),
        "rnn with attention": lambda: Subject(RnnSeq2Seq(V, d_model=D, units=D)),
        "gpt": lambda: Subject(Gpt(V, **small)),
        "bert": lambda: Subject(Bert(V, **small), is_causal=False),
        "like KerasHub": lambda: Subject(LikeKerasHub(Gpt(V, **small))),
        "gru": lambda: language_model(recurrent, mask_zero=True, batch=batch()),
        "lstm": lambda: language_model(L.LSTM(D, return_sequences=True)),
        "cells": lambda: language_model(stacked),
        "convolution": lambda: language_model(convolution),
        "grouped convolution": lambda: language_model(lambda x: convolution(x, groups=2)),
        "wavenet": lambda: language_model(wavenet),
        "decoder": lambda: language_model(decoder),
        "grouped queries": lambda: language_model(grouped),
        "gru and attention": lambda: language_model(lambda x: causal_attention(recurrent(x))),
        "batch normalization": lambda: language_model(
            lambda x: L.BatchNormalization()(recurrent(x))
        ),
        "two inputs": translator,
        "one length": lambda: translator(length=6),
        "recurrent seq2seq": recurrent_seq2seq,
        "additive attention": lambda: translator(
            cross=lambda x, read: L.AdditiveAttention()([x, read])
        ),
        "our layers": lambda: language_model(
            lambda x: ours.DecoderBlock(2, D, has_cross_attention=False)(
                ours.SinusoidalPositions()(x)
            )
        ),
        "text": lambda: subject_of_text(max_length=50),
    }
