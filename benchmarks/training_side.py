"""Runs the training benchmark for one library in its own process; prints a line of JSON.

Every library trains the same encoder-decoder (pre-norm, sinusoidal positions, one embedding table
tied to the output layer) with the same loss (label smoothing 0.1, mean over target tokens without
padding), Adam and dropout, on batches from a file. The first epoch builds what each shape needs,
and the second is timed. `benchmarks/training.py` calls it.

Shapes: B batch, S source length, T target length.
"""

import argparse
import json
import math
import time

from pinned import peak_megabytes

LABEL_SMOOTHING = 0.1
LEARNING_RATE = 1e-3
DROPOUT = 0.3
SIZES = {  # layers per stack, d_model, ff_dim, heads
    "tiny": (4, 128, 256, 4),
    "base": (6, 512, 2048, 8),
    "big": (6, 1024, 4096, 16),
}
VOCAB_SIZE = 10_000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--batches", required=True)
    parser.add_argument("--preset", choices=SIZES, required=True)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument(
        "--model", type=json.loads, default={}, help="more model arguments, for keras_transformer"
    )
    arguments = parser.parse_args()
    batches = read_batches(arguments.batches)
    seconds, losses = SIDES[arguments.side](
        batches,
        SIZES[arguments.preset],
        arguments.bfloat16,
        arguments.threads,
        **arguments.model,
    )
    tokens = sum(int((labels != 0).sum()) for _, _, labels in batches)
    speed = tokens / seconds
    print(json.dumps({"tokens_a_second": speed, "losses": losses, "megabytes": peak_megabytes()}))


def read_batches(path):
    """Returns `(source_ids, target_ids, labels)` of each batch, `(B, S)`, `(B, T)`, `(B, T)`."""
    import numpy as np

    with np.load(path) as arrays:
        return [
            tuple(arrays[f"{name}/{i}"] for name in ("source_ids", "target_ids", "labels"))
            for i in range(len(arrays) // 3)
        ]


def matrix_product(batches, sizes, bfloat16, threads):
    """A large matrix product for each batch, no model. Its "tokens" only serve to compare cores."""
    start_keras(bfloat16, threads)
    import tensorflow as tf

    x = tf.random.normal([2048, 2048], dtype=tf.bfloat16 if bfloat16 else tf.float32)
    product = tf.function(tf.matmul)
    product(x, x)
    start = time.perf_counter()
    for _ in batches:
        product(x, x)
    return time.perf_counter() - start, []


# === Keras: ours and KerasHub's layers, by `model.fit` ===


def start_keras(bfloat16, threads):
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    keras.utils.set_random_seed(1)
    if bfloat16:
        keras.config.set_dtype_policy("mixed_bfloat16")


def examples_of(batches):
    """Yields `(inputs, labels, weights)` for a mean loss over tokens."""
    import numpy as np

    for source_ids, target_ids, labels in batches:
        weights = (labels != 0) / np.float32((labels != 0).sum())
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        yield inputs, labels, weights.astype("float32")


def dataset_of(batches):
    """Returns these examples as a `tf.data.Dataset`."""
    import tensorflow as tf

    ids = tf.TensorSpec([None, None], tf.int32)
    signature = {"source_ids": ids, "target_ids": ids}, ids, tf.TensorSpec([None, None])
    return tf.data.Dataset.from_generator(lambda: examples_of(batches), output_signature=signature)


def fit(model, loss, batches):
    """Returns the seconds of the second epoch, and the loss of each of its steps."""
    import keras

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.losses, self.before = [], 0.0

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                self.start = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            self.end = time.perf_counter()
            rows = len(batches[batch][0])  # Keras weights the running mean by the rows of a batch
            total = logs["loss"] * sum(len(source) for source, *_ in batches[: batch + 1])
            self.losses.append(float(total - self.before) / rows)
            self.before = total

    model.compile(keras.optimizers.Adam(LEARNING_RATE, beta_2=0.98, epsilon=1e-9), loss)
    clock = Clock()
    model.fit(
        dataset_of(batches).repeat(2).prefetch(2),
        steps_per_epoch=len(batches),
        epochs=2,
        callbacks=[clock],
        verbose=0,
        shuffle=False,
    )
    return clock.end - clock.start, clock.losses


def ours(batches, sizes, bfloat16, threads, **model_arguments):
    start_keras(bfloat16, threads)
    from keras_transformer import Transformer
    from keras_transformer.training import TokenCrossEntropy

    model = our_model(Transformer, sizes, **model_arguments)
    return fit(model, TokenCrossEntropy(LABEL_SMOOTHING), batches)


def our_model(model_class, sizes, **model_arguments):
    num_layers, d_model, ff_dim, num_heads = sizes
    return model_class(
        VOCAB_SIZE,
        num_layers=num_layers,
        d_model=d_model,
        ff_dim=ff_dim,
        num_heads=num_heads,
        dropout=DROPOUT,
        normalize_first=True,
        **model_arguments,
    )


def keras_hub(batches, sizes, bfloat16, threads):
    start_keras(bfloat16, threads)
    import keras
    from keras import ops
    from keras_hub import layers

    num_layers, d_model, ff_dim, num_heads = sizes
    embedding = layers.ReversibleEmbedding(
        VOCAB_SIZE,
        d_model,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=d_model**-0.5),
    )

    def embedded(ids):
        x = embedding(ids) * math.sqrt(d_model)
        return keras.layers.Dropout(DROPOUT)(x + layers.SinePositionEncoding()(x))

    block = dict(dropout=DROPOUT, normalize_first=True)
    source_ids = keras.Input([None], dtype="int32", name="source_ids")
    target_ids = keras.Input([None], dtype="int32", name="target_ids")
    source_mask = ops.not_equal(source_ids, 0)
    x = embedded(source_ids)
    for _ in range(num_layers):
        x = layers.TransformerEncoder(ff_dim, num_heads, **block)(x, padding_mask=source_mask)
    encoder_output = keras.layers.LayerNormalization()(x)
    x = embedded(target_ids)
    for _ in range(num_layers):
        x = layers.TransformerDecoder(ff_dim, num_heads, **block)(
            x, encoder_output, encoder_padding_mask=source_mask
        )
    logits = embedding(keras.layers.LayerNormalization()(x), reverse=True)
    model = keras.Model({"source_ids": source_ids, "target_ids": target_ids}, logits)

    def loss(labels, logits):  # label smoothing over ids, without one-hot labels of V numbers
        logits = ops.cast(logits, "float32")
        cross_entropy = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        uniform = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        return (1 - LABEL_SMOOTHING) * cross_entropy + LABEL_SMOOTHING * uniform

    class Smoothed(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return loss(ops.cast(y_true, "int32"), y_pred)

    return fit(model, Smoothed(reduction="sum"), batches)


# === PyTorch: nn.Transformer and Hugging Face's Marian ===


def train_torch(model, forward, batches, bfloat16, threads):
    """Trains a PyTorch model like `fit`, in the loop of the PyTorch tutorials.

    On a GPU, the model is compiled, and the host reads the losses when all steps have been sent.
    """
    import torch

    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        forward = torch.compile(model.to(device))
    optimizer = torch.optim.Adam(
        model.parameters(), LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    loss_fn = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=LABEL_SMOOTHING)
    model.train()

    def epoch():
        losses = []
        for arrays in batches:
            source_ids, target_ids, labels = (
                torch.from_numpy(array).to(device, torch.int64) for array in arrays
            )
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
                logits = forward(source_ids, target_ids)
                loss = loss_fn(logits.flatten(0, 1), labels.flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [loss.item() for loss in losses]

    epoch()
    start = time.perf_counter()
    losses = epoch()
    return time.perf_counter() - start, losses


def torch_transformer(batches, sizes, bfloat16, threads):
    import torch

    torch.manual_seed(1)
    num_layers, d_model, ff_dim, num_heads = sizes
    longest = max(max(source.shape[1], labels.shape[1]) for source, _, labels in batches)
    positions = torch.arange(longest)[:, None]
    angles = positions / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCAB_SIZE, d_model)
            torch.nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
            self.register_buffer("table", table)
            self.dropout = torch.nn.Dropout(DROPOUT)
            self.transformer = torch.nn.Transformer(
                d_model,
                num_heads,
                num_layers,
                num_layers,
                ff_dim,
                DROPOUT,
                batch_first=True,
                norm_first=True,
            )

        def embedded(self, ids):
            x = self.embedding(ids) * math.sqrt(d_model)
            return self.dropout(x + self.table[: ids.shape[1]])

        def forward(self, source_ids, target_ids):
            length = target_ids.shape[1]
            future = torch.ones(length, length, dtype=torch.bool, device=target_ids.device).triu(1)
            hidden = self.transformer(
                self.embedded(source_ids),
                self.embedded(target_ids),
                tgt_mask=future,
                src_key_padding_mask=source_ids == 0,
                memory_key_padding_mask=source_ids == 0,
                tgt_is_causal=True,
            )
            return hidden @ self.embedding.weight.T

    model = Model()
    return train_torch(model, model, batches, bfloat16, threads)


def marian(batches, sizes, bfloat16, threads):
    import torch
    import transformers

    torch.manual_seed(1)
    num_layers, d_model, ff_dim, num_heads = sizes
    config = transformers.MarianConfig(
        vocab_size=VOCAB_SIZE,
        decoder_vocab_size=VOCAB_SIZE,
        d_model=d_model,
        encoder_layers=num_layers,
        decoder_layers=num_layers,
        encoder_ffn_dim=ff_dim,
        decoder_ffn_dim=ff_dim,
        encoder_attention_heads=num_heads,
        decoder_attention_heads=num_heads,
        dropout=DROPOUT,
        activation_function="relu",
        scale_embedding=True,
        init_std=d_model**-0.5,
        pad_token_id=0,
        eos_token_id=3,
        bos_token_id=2,
        decoder_start_token_id=2,
    )
    model = transformers.MarianMTModel(config)

    def forward(source_ids, target_ids):
        return model(
            input_ids=source_ids, attention_mask=source_ids != 0, decoder_input_ids=target_ids
        ).logits

    return train_torch(model, forward, batches, bfloat16, threads)


SIDES = {
    "keras_transformer": ours,
    "KerasHub": keras_hub,
    "PyTorch": torch_transformer,
    "Marian": marian,
    "matrix product": matrix_product,
}

if __name__ == "__main__":
    main()
