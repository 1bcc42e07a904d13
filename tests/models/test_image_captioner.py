"""The captioner: attention to the image, decoding, saving, decoders of one's own, learning."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import beam_search, decode, decode_sampled
from keras_transformer.layers import Decoder, RnnDecoder, TokenEmbedding
from keras_transformer.models import ImageCaptioner
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.training.losses import TokenCrossEntropy
from tests.models.conftest import randomized

VOCAB_SIZE = 13
# no two sizes equal
SIZES = dict(image_size=(4, 6), patch_size=2, num_channels=3, num_layers=1, num_decoder_layers=2,
             d_model=10, ff_dim=17, num_heads=5, dropout=0.1)  # fmt: skip


def own_decoder():
    """With other blocks, positions and attention than the model would choose itself."""
    embedding = TokenEmbedding(VOCAB_SIZE, 10, name="words")
    return Decoder(embedding, 1, 5, 7, positions="rotary", attention={"name": "local", "window": 2})


def recurrent_decoder():
    """That of "Show, attend and tell"; no width equals that of the features."""
    return RnnDecoder(TokenEmbedding(VOCAB_SIZE, 8, name="words"), num_layers=2, units=7)


VARIANTS = {
    "patches": dict,
    "own decoder": lambda: dict(decoder=own_decoder()),
    "show, attend and tell": lambda: dict(
        features="convolutional", num_convolutions=1, decoder=recurrent_decoder()
    ),
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]()


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    """No test changes it."""
    return make(**VARIANTS[request.param]())


def make(seed=7, **arguments):
    return randomized(ImageCaptioner(VOCAB_SIZE, **{**SIZES, **arguments}), seed)


def random_images(number=2):
    return np.random.default_rng(3).normal(size=(number, 4, 6, 3)).astype("float32")


def batch():
    """Two images, and captions of 5 and 3 tokens with the start."""
    ids = np.array([[2, 5, 9, 4, 7], [2, 11, 6, 0, 0]], "int32")
    return {"images": random_images(), "target_ids": ids}


def numbers(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def test_a_word_sees_the_image_and_the_words_before_it(model):
    given = batch()
    before = numbers(model(given))
    assert before.shape == (2, 5, VOCAB_SIZE)
    later = {**given, "target_ids": given["target_ids"].copy()}
    later["target_ids"][:, 3:] = 8
    after = numbers(model(later))
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-5)
    assert np.abs(after[:, 3:] - before[:, 3:]).max() > 0.1
    pixels = np.eye(24, dtype="float32").reshape(24, 4, 6, 1)  # one for each other image
    images = given["images"][:1] + 5.0 * pixels
    ids = np.repeat(given["target_ids"][:1], 24, axis=0)
    change = np.abs(numbers(model({"images": images, "target_ids": ids})) - before[:1])
    assert np.all(change.max(axis=-1) > 1e-5)


def test_an_image_does_not_see_its_neighbours(model):
    given = batch()
    together = numbers(model(given))
    for i in range(2):
        alone = numbers(model({name: values[i : i + 1] for name, values in given.items()}))
        np.testing.assert_allclose(alone[0], together[i], atol=1e-5)


def test_weights_of_every_layer(model):
    given = batch()
    logits, weights = model(given, return_attention_weights=True)
    np.testing.assert_allclose(numbers(logits), numbers(model(given)), atol=1e-5)
    shapes = {kind: [tuple(x.shape) for x in layers] for kind, layers in weights.items()}
    if isinstance(model.decoder, RnnDecoder):
        assert shapes == {"cross": [(2, 1, 5, 6)]}
    elif model.has_own_decoder:
        assert shapes == {
            "encoder": [(2, 5, 6, 6)],
            "decoder": [(2, 5, 5, 5)],
            "cross": [(2, 5, 5, 6)],
        }
    else:
        assert shapes == {
            "encoder": [(2, 5, 6, 6)],
            "decoder": [(2, 5, 5, 5)] * 2,
            "cross": [(2, 5, 5, 6)] * 2,
        }


def test_steps_equal_the_whole_pass(model):
    given = batch()
    expected = numbers(model({**given, "images": np.repeat(given["images"][:1], 2, axis=0)}))
    step_fn, state, prompts, limits, _ = model.start_decoding(given["images"][:1], 5, 2)
    assert numbers(prompts).tolist() == [[START_ID]] and numbers(limits).tolist() == [5]
    for position in range(5):
        tokens = ops.convert_to_tensor(given["target_ids"][None, :, position])
        logits, state = step_fn(tokens, ops.convert_to_tensor(position, "int32"), state)
        np.testing.assert_allclose(numbers(logits)[0], expected[:, position], atol=1e-5)


def test_searches(model):
    """Greedy search finds what a whole pass finds most probable; a beam sees no neighbours."""
    images = random_images()
    greedy = decode(model, images, DecodingConfig(beam_size=1, max_length=4))
    found = numbers(greedy.ids)[:, 0].astype("int32")
    target_ids = np.concatenate([np.full((2, 1), START_ID), found[:, :-1]], axis=1)
    logits = numbers(model({"images": images, "target_ids": target_ids}))
    logits[..., :END_ID] = -np.inf  # never chosen
    for row, best in zip(found, logits.argmax(axis=-1), strict=True):
        length = np.count_nonzero(row)
        assert row[:length].tolist() == best[:length].tolist()
    one = beam_search(*model.start_decoding(images, 4), 1)
    np.testing.assert_array_equal(numbers(one.ids), numbers(greedy.ids))
    config = DecodingConfig(beam_size=2, max_length=4)
    together, alone = (numbers(decode(model, some, config).ids) for some in (images, images[1:]))
    assert together[1, 0].tolist() == alone[0, 0].tolist()
    sampled = decode_sampled(model, images, DecodingConfig(max_length=4), seed=3)
    assert numbers(sampled.ids).shape == (2, 1, 4)


def test_attention_maps_are_those_of_the_words(model):
    images = random_images()
    ids = np.array([[5, 9, 4, 3], [11, 3, 0, 0]], "int32")
    maps = model.attention_maps(images, ids)
    assert maps.shape == (2, 4, 2, 3) and model.grid == (2, 3)
    np.testing.assert_allclose(maps.sum(axis=(2, 3)), 1.0, rtol=1e-5)
    inputs = {"images": images, "target_ids": np.array([[2, 5, 9, 4], [2, 11, 0, 0]])}
    _, weights = model(inputs, return_attention_weights=True)
    expected = numbers(weights["cross"][-1]).mean(axis=1).reshape(2, 4, 2, 3)
    np.testing.assert_allclose(maps, expected, atol=1e-6)


def test_a_decoder_without_weights_has_no_attention_maps():
    embedding = TokenEmbedding(VOCAB_SIZE, 10)
    model = make(decoder=Decoder(embedding, 1, 5, 7, cross_attention="linear"))
    _, weights = model(batch(), return_attention_weights=True)
    assert weights.keys() == {"encoder", "decoder"}
    with pytest.raises(ValueError, match="Expected a decoder with attention weights"):
        model.attention_maps(random_images(), np.array([[3], [3]]))


def test_no_image_or_no_word(model):
    for num_images, length in ((0, 5), (2, 0)):
        ids = np.full((num_images, length), START_ID, "int32")
        logits = model({"images": random_images(num_images), "target_ids": ids})
        assert tuple(logits.shape) == (num_images, length, VOCAB_SIZE)
    for beam_size in (1, 3):
        config = DecodingConfig(beam_size=beam_size, max_length=4)
        assert decode(model, random_images(0), config).ids.shape[0] == 0


@pytest.mark.parametrize("name", ["patches", "show, attend and tell"])  # with both decoders
def test_saved_and_loaded_within_a_functional_model_of_images_of_any_size(name, tmp_path):
    """In mixed precision; test_new_process.py has models in float32."""
    dtype, variant = "mixed_bfloat16", VARIANTS[name]()
    if "decoder" in variant:
        decoder = variant["decoder"]
        variant["decoder"] = type(decoder).from_config({**decoder.get_config(), "dtype": dtype})
    captioner = make(**variant, num_decoder_layers=1, dtype=dtype)
    given = {"images": keras.Input((None, None, 3), name="images"),
             "target_ids": keras.Input((None,), dtype="int32", name="target_ids")}  # fmt: skip
    model = keras.Model(given, captioner(given))
    np.testing.assert_array_equal(numbers(model(batch())), numbers(captioner(batch())))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numbers(loaded(batch())), numbers(model(batch())))
    copy = next(layer for layer in loaded.layers if isinstance(layer, ImageCaptioner))
    assert len(copy.weights) == len(captioner.weights)
    assert copy.dtype_policy.name == captioner.dtype_policy.name == dtype
    if "decoder" not in variant:  # its config also has the shapes that it was built with
        assert copy.get_config() == captioner.get_config()


def test_a_step_moves_all_weights(variant, run_eagerly):
    model, given = make(**variant), batch()
    labels = np.array([[5, 9, 4, 7, 3], [11, 6, 3, 0, 0]])
    model.compile(keras.optimizers.SGD(0.5), TokenCrossEntropy(), run_eagerly=run_eagerly)
    before = model.get_weights()
    model.train_on_batch(given, labels, sample_weight=(labels != 0) / 8.0)
    for weight, old in zip(model.weights, before, strict=True):
        moved = np.abs(ops.convert_to_numpy(weight) - old).max() > 1e-7
        # softmax takes no notice of what all keys of a query have in common
        assert moved or "key/bias" in weight.path, weight.path


def test_a_step_of_a_decoder_in_another_precision_than_the_model(run_eagerly):
    """The output layer computes in the precision of the model, whatever its decoder returns."""
    labels = np.array([[5, 9, 4, 7, 3], [11, 6, 3, 0, 0]])
    losses = []
    for dtype in ("mixed_float16", "float32"):
        model = make(decoder=own_decoder(), dtype=dtype)
        model.compile(keras.optimizers.SGD(0.5), TokenCrossEntropy(), run_eagerly=run_eagerly)
        given = batch(), labels, (labels != 0) / 8.0
        losses.append(model.test_on_batch(*given))
        assert np.isfinite(model.train_on_batch(*given))
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.slow  # that a word sees every pixel, and every weight learns, is tested above
def test_it_learns_to_say_where_a_spot_is():
    """ "up" or "down", then "left" or "right": all that the picture tells, and the end."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    places = rng.integers(2, size=(400, 2))
    images = rng.normal(scale=0.1, size=(400, 8, 8, 1)).astype("float32")
    for image, (row, column) in zip(images, places, strict=True):
        top, left = 4 * row + rng.integers(3), 4 * column + rng.integers(3)
        image[top : top + 2, left : left + 2] += 2.0
    labels = np.concatenate([places + [4, 6], np.full((400, 1), END_ID)], axis=1)
    target_ids = np.concatenate([np.full((400, 1), START_ID), labels[:, :-1]], axis=1)
    model = ImageCaptioner(8, image_size=8, patch_size=4, num_channels=1, num_layers=1,
                           num_decoder_layers=1, d_model=16, ff_dim=32, num_heads=2,
                           dropout=0.0)  # fmt: skip
    model.compile(keras.optimizers.Adam(0.02), TokenCrossEntropy(0.0))
    model.fit(
        {"images": images[:320], "target_ids": target_ids[:320]},
        labels[:320],
        sample_weight=np.full((320, 3), 1 / 96, "float32"),
        batch_size=32,
        epochs=6,
        verbose=0,
    )
    found = numbers(decode(model, images[320:], DecodingConfig(beam_size=1, max_length=4)).ids)
    assert np.mean(np.all(found[:, 0, :3] == labels[320:], axis=1)) >= 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(num_heads=3), "divisible by num_heads. Received: d_model=10, num_heads=3"),
        (dict(patch_size=4), "must divide .* patch_size=4, height=4, width=6"),
        (dict(features="cnn"), "convolutional.*Received: features='cnn'"),
        (dict(features="convolutional", num_convolutions=0), "Received: .*num_convolutions=0"),
        (dict(features="convolutional", num_convolutions=9), "most 3 conv.*num_convolutions=9"),
        (dict(num_decoder_layers=0), "num_layers must be a whole number"),
        (dict(num_heads=None), "num_heads must be a whole number"),
        (dict(dropout=None), "Received: dropout=None"),
        (dict(decoder="rnn"), "decoder='rnn', without embedding, start_decoding"),
        (dict(decoder=keras.layers.Dense(3)), "Expected a decoder such as layers.Decoder"),
        (dict(decoder=RnnDecoder(TokenEmbedding(7, 8))), "embedding.vocab_size=7"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageCaptioner(VOCAB_SIZE, **{**SIZES, **arguments})


def test_inputs_that_do_not_fit_are_refused():
    model, given = make(), batch()
    for inputs, message in (
        ({"target_ids": given["target_ids"]}, r"Expected .*images.* Received: \['target_ids'\]"),
        ({**given, "target_ids": None}, r"Received: \['images'\]"),
        (given["target_ids"], 'Expected inputs {"images".* Received: '),
        ({**given, "images": random_images(3)}, r"same batch size .*Received: .*\(3, 4, 6, 3\)"),
        ({**given, "images": np.zeros((2, 4, 6, 1), "float32")}, r"\(B, height, width, 3\)"),
        ({**given, "images": np.zeros((2, 6, 4, 3), "float32")}, "4 pixels high and 6 wide"),
    ):
        with pytest.raises(ValueError, match=message):
            model(inputs)
    with pytest.raises(ValueError, match=r"ids.shape=\(5,\). One caption is ids\[None\]"):
        model.attention_maps(random_images(1), given["target_ids"][0])
