import numpy as np
import pytest

from keras_transformer import plots


def brightness(panel):
    """The mean of each quarter of the image that a panel shows."""
    (image,) = panel.images
    pixels = np.asarray(image.get_array()).mean(axis=-1)
    return pixels.reshape(2, pixels.shape[0] // 2, 2, pixels.shape[1] // 2).mean(axis=(1, 3))


@pytest.mark.parametrize("num_channels", [1, 3])
def test_images_are_bright_where_attention_is(tmp_path, num_channels):
    images = np.ones((2, 8, 4, num_channels), "uint8")
    images[:, 0, 0] = 0
    maps = np.array([[[0.1, 0.6], [0.2, 0.1]], [[0.0, 0.0], [0.0, 1.0]]])
    path = tmp_path / "images.png"
    figure = plots.image_attention(images, {"last": maps, "rollout": maps[::-1]}, path)
    panels = np.reshape(figure.axes, (2, 3))
    assert [panel.get_title() for panel in panels[0]] == ["image", "last", "rollout"]
    for row, first, second in zip(panels, maps, maps[::-1], strict=True):
        assert brightness(row[0])[0, 1] == brightness(row[0])[1, 1] == 1.0
        for panel, drawn in ((row[1], first), (row[2], second)):
            found, light = brightness(panel), drawn / drawn.max()
            for cell in ((0, 1), (1, 0), (1, 1)):  # the corner has a dark pixel
                assert found[cell] == pytest.approx(0.15 + 0.85 * light[cell], abs=1e-5)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_caption_is_drawn_word_by_word(tmp_path):
    words = ["a", "dog", "on", "a", "$mat$", "sleeps", "</s>"]
    maps = np.random.default_rng(1).uniform(size=(7, 2, 2))
    path = tmp_path / "caption.png"
    image = np.ones((4, 4, 3))
    image[1, 1] = 0
    figure = plots.caption_attention(image, words, maps, path)
    assert [panel.get_title() for panel in figure.axes[:8]] == ["", *words]
    for panel, drawn in zip(figure.axes[1:8], maps, strict=True):
        (shown,) = panel.images
        light = np.asarray(shown.get_array())[::2, ::2, 0]
        np.testing.assert_allclose(light, 0.15 + 0.85 * drawn / drawn.max(), rtol=1e-5)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "maps",
    [
        {},
        np.ones((2, 2, 2)),
        {"last": np.ones((3, 2, 2))},
        {"last": np.ones((2, 4))},
        {"last": np.ones((2, 0, 2))},
    ],
)
def test_other_maps_than_images_are_refused(maps):
    with pytest.raises(ValueError, match="Expected (maps of 2 images|a dict from titles to maps)"):
        plots.image_attention(np.ones((2, 4, 4, 1)), maps)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 2), (0, 4, 3), (1, 4, 4, 3)])
def test_other_images_are_not_drawn(shape):
    with pytest.raises(ValueError, match="one channel or three. Received images of the shape"):
        plots.caption_attention(np.ones(shape), ["a"], np.ones((1, 2, 2)))
    with pytest.raises(ValueError, match="one channel or three. Received images of the shape"):
        plots.image_attention(np.ones((1, *shape)), {"last": np.ones((1, 2, 2))})


def test_other_maps_than_words_are_refused():
    with pytest.raises(ValueError, match=r"maps of 1 words.*maps.shape=\(2, 4, 4\)"):
        plots.caption_attention(np.ones((4, 4, 1)), ["a"], np.ones((2, 4, 4)))
    with pytest.raises(ValueError, match="maps of 1 words"):
        plots.caption_attention(np.ones((4, 4, 1)), ["a"], np.ones((1, 0, 0)))
    with pytest.raises(ValueError, match="a list of words. Received: words='dog'"):
        plots.caption_attention(np.ones((4, 4, 1)), "dog", np.ones((3, 4, 4)))


def test_an_image_of_one_colour_keeps_it():
    for value in (1.0, 0.25):
        figure = plots.caption_attention(np.full((4, 4, 1), value), ["a"], np.ones((1, 2, 2)))
        (shown,) = figure.axes[0].images
        np.testing.assert_allclose(shown.get_array(), value)
