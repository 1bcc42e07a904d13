"""Small recurrent translators learn to reverse, and search shows it on rows they have not seen."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import RnnSeq2Seq
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.training.losses import TokenCrossEntropy

VOCAB_SIZE, MAX_LENGTH, BATCH_SIZE, NUM_STEPS = 10, 3, 32, 80


def padded(rows):
    return np.array([[*row] + [0] * (MAX_LENGTH + 1 - len(row)) for row in rows], "int32")


def draw(rng, number):
    lengths = rng.integers(1, MAX_LENGTH + 1, size=number)
    return [tuple(map(int, rng.integers(4, VOCAB_SIZE, size=length))) for length in lengths]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(dict(), id="Bahdanau"),
        pytest.param(
            dict(attention="luong", score="multiplicative", cell="lstm"),
            id="Luong",
            marks=pytest.mark.slow,  # test_rnn_seq2seq_torch.py holds its gradients
        ),
    ],
)
def test_reverses_what_it_has_never_seen(arguments):
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    held_out = sorted(set(draw(rng, 60)))
    rows = [row for row in draw(rng, 2 * BATCH_SIZE * NUM_STEPS) if row not in held_out]
    rows = rows[: BATCH_SIZE * NUM_STEPS]
    source_ids = padded([(*row, END_ID) for row in rows])
    target_ids = padded([(START_ID, *row[::-1]) for row in rows])
    labels = padded([(*row[::-1], END_ID) for row in rows])
    weights = (labels != 0) / (4.0 * BATCH_SIZE)
    model = RnnSeq2Seq(VOCAB_SIZE, d_model=24, units=32, dropout=0.0, **arguments)
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=1.0), TokenCrossEntropy())
    model.fit(
        {"source_ids": source_ids, "target_ids": target_ids},
        labels,
        batch_size=BATCH_SIZE,
        sample_weight=weights,
        verbose=0,
    )
    held_out_ids = padded([(*row, END_ID) for row in held_out])
    for beam_size in (1, 3):
        found = decode(model, held_out_ids, DecodingConfig(beam_size=beam_size))
        best = ops.convert_to_numpy(found.ids)[:, 0]
        right = [
            tuple(ids[ids > 0]) == (*row[::-1], END_ID)
            for ids, row in zip(best, held_out, strict=True)
        ]
        assert np.mean(right) >= 0.9
