"""The small models and the batch that the models' tests share."""

import concurrent.futures

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import Transformer

# no two sizes equal
SIZES = dict(num_layers=1, num_decoder_layers=2, d_model=12, ff_dim=17, num_heads=3, dropout=0.1)
VOCAB_SIZE, TARGET_VOCAB_SIZE = 23, 19

VARIANTS = {
    "post-norm": dict(),
    "pre-norm": dict(normalize_first=True),
    "separate embeddings": dict(share_embeddings=False),
    "all at once": dict(
        target_vocab_size=TARGET_VOCAB_SIZE,
        normalize_first=True,
        positions="learned",
        max_length=13,
        tie_output=False,
        activation="gelu",
    ),
    "as in Marian": dict(
        position_layout="concatenated",
        position_base=9000.0,
        scale_embeddings=False,
        output_bias=True,
        layer_norm_epsilon=0.01,
        activation="gelu_sigmoid",
    ),
}

ATTENTION_VARIANTS = {
    "rotary positions": dict(positions="rotary"),
    "ALiBi": dict(positions="alibi", attention={"name": "local", "window": 2}),
    "local attention": dict(attention={"name": "local", "window": 2}),
    "linear attention": dict(attention="linear", cross_attention="linear"),
    "performer": dict(
        attention={"name": "performer", "num_features": 5},
        cross_attention={"name": "performer", "num_features": 7},
    ),
    "ssru": dict(decoder_attention="ssru", normalize_first=True),
}


for name, arguments in (VARIANTS | ATTENTION_VARIANTS).items():
    if name not in ("post-norm", "all at once"):  # elsewhere, the second block is as the first
        arguments["num_decoder_layers"] = 1


def randomized(model, seed=7, scale=0.3):
    """Returns the built model, with every weight random: no bias 0, no scale 1."""
    if not model.built:
        model.build()
    rng = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        centre = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(centre + rng.normal(scale=scale, size=weight.shape))
    return model


def logits_of(model, inputs, **options):
    return ops.convert_to_numpy(ops.cast(model(inputs, **options), "float32"))


@pytest.fixture(scope="session")
def variants():
    """The constructor arguments of all small models, by name."""
    every = {**VARIANTS, **ATTENTION_VARIANTS}
    return {name: {**SIZES, **arguments} for name, arguments in every.items()}


@pytest.fixture(
    params=["post-norm", "all at once", "as in Marian", "rotary positions", "ALiBi"]
    + ["local attention", "linear attention", "performer", "ssru"]
)
def variant(request, variants):
    """The constructor arguments of one model after the other.

    Block and strided attention differ from local attention in their masks alone, which
    `tests/layers/attention` compares with loops, steps included.
    """
    return variants[request.param]


@pytest.fixture(params=["all at once", "ALiBi", "performer"])
def graph_variant(request, variants):
    """The same of those whose graphs differ in more than their attention, which is compiled alone
    in `tests/layers/attention`, and of one with random features.
    """
    return variants[request.param]


@pytest.fixture(params=VARIANTS)
def dense_variant(request, variants):
    """The same of those with dense attention and positions of their own."""
    return variants[request.param]


@pytest.fixture(scope="session")
def make_model():
    """Makes a small model with random weights."""

    def make(seed=7, **arguments):
        return randomized(Transformer(VOCAB_SIZE, **{**SIZES, **arguments}), seed, scale=0.2)

    return make


@pytest.fixture(scope="session")
def shared_model(make_model):
    """Returns the same model for the same arguments, to tests that do not change it."""
    models = {}

    def shared(**arguments):
        key = repr(sorted({**SIZES, **arguments}.items()))
        if key not in models:
            models[key] = make_model(**arguments)
        return models[key]

    return shared


@pytest.fixture(scope="session")
def without_values():
    """Calls a function in which models are built, and makes no values for their weights.

    In a thread of its own, because Keras notes for each thread which values it still has to make.
    """

    def call(function, *arguments, **options):
        def without_values():
            with keras.StatelessScope(initialize_variables=False):
                return function(*arguments, **options)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(without_values).result()

    return call


@pytest.fixture
def batch():
    """Two sentences: sources of 7 and 4 pieces with the end, targets of 5 and 3 with the start."""
    rng = np.random.default_rng(3)
    source_ids = rng.integers(4, VOCAB_SIZE, size=(2, 7)).astype("int32")
    target_ids = rng.integers(4, TARGET_VOCAB_SIZE, size=(2, 5)).astype("int32")
    source_ids[0, 6] = source_ids[1, 3] = 3
    source_ids[1, 4:] = 0
    target_ids[:, 0] = 2
    target_ids[1, 3:] = 0
    return {"source_ids": source_ids, "target_ids": target_ids}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(11)
