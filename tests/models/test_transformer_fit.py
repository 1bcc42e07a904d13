"""Training with Keras's own `compile` and `fit`, with its losses and with ours."""

import keras
import numpy as np
import pytest

from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy

LOSSES = {
    "sparse categorical": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "ours": TokenCrossEntropy(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_step_lowers_the_loss(make_model, batch, loss):
    labels = np.roll(batch["target_ids"], -1, axis=1)
    weights = (batch["target_ids"] != 0) / 8.0
    model = make_model(num_decoder_layers=1, normalize_first=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=[TokenAccuracy(), Perplexity()])
    before = model.evaluate(batch, labels, sample_weight=weights, verbose=0, return_dict=True)
    weights_before = model.get_weights()
    history = model.fit(batch, labels, sample_weight=weights, epochs=1, verbose=0).history
    after = model.evaluate(batch, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"] and after["perplexity"] < before["perplexity"]
    assert set(history) == {"loss", "accuracy", "perplexity"}
    for weight, old in zip(model.weights, weights_before, strict=True):
        # the key's bias adds the same to every score of a query: the softmax does not see it
        moved = np.abs(weight.numpy() - old).max() > 1e-7
        assert moved or "key/bias" in weight.path, weight.path


def test_training_from_a_sequence_of_batches_of_other_lengths(make_model, batch):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            longer = {
                name: np.pad(ids, ((0, index), (0, 3 * index))) for name, ids in batch.items()
            }
            labels = np.roll(longer["target_ids"], -1, axis=1)
            return longer, labels, (longer["target_ids"] != 0) / 8.0

    model = make_model(num_decoder_layers=1)
    model.compile("adam", TokenCrossEntropy())
    losses = model.fit(Batches(), epochs=3, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]
    assert model.predict(batch, verbose=0).shape == (2, 5, 23)
