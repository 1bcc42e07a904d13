"""Adam against a loop from the paper, and against Keras's own on whole models."""

import keras
import numpy as np
import pytest

from keras_transformer.models import Transformer
from keras_transformer.training import Adam, NoamSchedule, TokenCrossEntropy


def adam_loop(weight, gradients, rate, beta_1, beta_2, epsilon):
    """Algorithm 1 of Kingma and Ba, 2015, in the order of computation of their section 2."""
    weight = weight.astype("float64")
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for t, gradient in enumerate(gradients, 1):
        first = beta_1 * first + (1 - beta_1) * gradient
        second = beta_2 * second + (1 - beta_2) * gradient**2
        rate_t = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        weight = weight - rate_t * first / (np.sqrt(second) + epsilon)
    return weight, first, second


@pytest.mark.parametrize("settings", [{}, {"beta_1": 0.5, "beta_2": 0.98, "epsilon": 1e-3}])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_it_is_the_algorithm_of_the_paper(shape, settings):
    rng = np.random.default_rng(1)
    start, *gradients = rng.normal(size=(7, *shape)).astype("float32")
    variable = keras.Variable(start)
    adam = Adam(0.1, **settings)
    adam.build([variable])
    for gradient in gradients:
        adam.apply([keras.ops.convert_to_tensor(gradient)])
    betas = settings.get("beta_1", 0.9), settings.get("beta_2", 0.999)
    expected = adam_loop(start, gradients, 0.1, *betas, settings.get("epsilon", 1e-7))
    for found, array in zip((variable, *adam.variables[2:4]), expected, strict=True):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"amsgrad": True},
        {"weight_decay": 0.1},
        {"global_clipnorm": 0.1},
        {"use_ema": True, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 2},
        {"dtype": "mixed_float16"},
        {"share": False},  # the gradient of the source's table has some rows alone
    ],
    ids=str,
)
def test_it_trains_as_keras_does(settings):
    settings = dict(settings)
    dtype, share = settings.pop("dtype", "float32"), settings.pop("share", True)
    rng = np.random.default_rng(2)
    ids = rng.integers(4, 20, (4, 6)).astype("int32")
    weights = []
    # a larger epsilon than usual: the keys' biases have no gradient but what rounding leaves
    for adam_class in (keras.optimizers.Adam, Adam):
        keras.utils.set_random_seed(3)
        model = Transformer(
            20,
            num_layers=1,
            d_model=8,
            ff_dim=12,
            num_heads=2,
            dropout=0.0,
            dtype=dtype,
            share_embeddings=share,
        )
        model.compile(adam_class(0.01, epsilon=1e-3, **settings), TokenCrossEntropy(0.1))
        batch = {"source_ids": ids, "target_ids": ids}
        model.fit(batch, ids, epochs=5, verbose=0)
        weights.append(np.concatenate([np.ravel(weight) for weight in model.get_weights()]))
    np.testing.assert_allclose(*weights, atol=1e-5 if dtype == "float32" else 3e-4)


def test_it_is_saved_with_a_model(tmp_path):
    adam = Adam(NoamSchedule(8, 10), beta_2=0.98, epsilon=1e-9)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model.compile(adam, "mse")
    model.fit(np.ones([4, 3]), np.zeros([4, 2]), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is Adam
    assert loaded.optimizer.get_config() == adam.get_config()
    for variable, expected in zip(loaded.optimizer.variables, adam.variables, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (variable, expected)))
