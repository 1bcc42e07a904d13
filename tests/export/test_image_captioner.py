"""An image captioner as a SavedModel: from images to captions."""

import numpy as np
import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode
from keras_transformer.export import export_image_captioner
from keras_transformer.export.exportable import in_float32
from keras_transformer.layers import RnnDecoder, TokenEmbedding
from keras_transformer.models import ImageCaptioner
from keras_transformer.serving.loaded_model import LoadedModel

WORDS = ["", "?", "", "", *"abcdefghijkl"]
DECODING = DecodingConfig(beam_size=2, max_length=5)


@pytest.fixture(scope="module")
def captioner(randomize):
    sizes = dict(num_layers=1, num_decoder_layers=1, d_model=16, ff_dim=12, num_heads=2)
    model = ImageCaptioner(len(WORDS), (8, 12), num_channels=1, **sizes)
    model.build()
    randomize(model, seed=4)
    return model


@pytest.fixture(scope="module")
def served(captioner, tmp_path_factory, unverified):
    """The signature as the embedded server calls it."""
    directory = tmp_path_factory.mktemp("captioner")
    with unverified():
        path = export_image_captioner(captioner, directory, WORDS, DECODING)
    model = LoadedModel(path)
    yield model.signatures["serving_default"]
    model.close()


def test_it_describes_images_as_the_model_does(served, captioner):
    images = np.random.default_rng(2).normal(0, 3, (7, 8, 12, 1)).astype("float32")
    found = served({"images": images})
    ids, scores, _, finished = (x[:, 0].numpy() for x in decode(captioner, images, DECODING))
    assert (found["ids"] == ids).all() and len(np.unique(ids, axis=0)) > 2 and finished.any()
    np.testing.assert_allclose(found["score"], scores, atol=1e-5)
    assert (found["truncated"] == ~finished).all()
    captions = [" ".join(WORDS[i] for i in row if i > 3) for row in found["ids"]]
    assert [caption.decode() for caption in found["caption"]] == captions
    alone = served({"images": images[:1]})
    assert (alone["ids"][0] == found["ids"][0]).all()
    assert len(served({"images": images[:0]})["caption"]) == 0
    assert served.is_batchable


def test_what_does_not_fit_is_refused(captioner, tmp_path):
    with pytest.raises(ValueError, match="Expected an ImageCaptioner"):
        export_image_captioner("captioner", tmp_path)
    with pytest.raises(ValueError, match="a word for each of the model's ids, 16"):
        export_image_captioner(captioner, tmp_path, WORDS[:-1])
    for words in ("a" * len(WORDS), list(range(len(WORDS))), DECODING):
        with pytest.raises(ValueError, match="Expected a list of words, or None. Received: words="):
            export_image_captioner(captioner, tmp_path, words)
    with pytest.raises(ValueError, match="Expected a DecodingConfig .* Received: decoding={}"):
        export_image_captioner(captioner, tmp_path, WORDS, decoding={})
    for version in (1.5, True, "3", 0):
        with pytest.raises(ValueError, match=f"version must be .* Received: version={version!r}"):
            export_image_captioner(captioner, tmp_path, WORDS, version=version)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_decoder_of_its_own_computes_in_float32_too(dtype, randomize):
    embedding = TokenEmbedding(len(WORDS), 8, dtype="mixed_bfloat16")
    decoder = RnnDecoder(embedding, units=8, dtype="mixed_bfloat16")
    model = ImageCaptioner(
        len(WORDS), (8, 12), num_layers=1, d_model=16, ff_dim=12, num_heads=2, decoder=decoder,
        dtype=dtype,
    )  # fmt: skip
    model.build()
    full = in_float32(model)
    for layer in (full, full.decoder, full.decoder.embedding):
        assert layer.compute_dtype == "float32"
    for weight, expected in zip(full.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
    assert in_float32(full) is full
