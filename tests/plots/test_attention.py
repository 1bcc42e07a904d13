import numpy as np
import pytest

from keras_transformer import plots
from keras_transformer.plots.attention import _columns_of_grid

LAYERS, HEADS = 2, 6


def panels_of(figure):
    """The axes of a figure without its colour bar."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("cross", ["␣Ein", "␣Hund", "</s>"], ["␣A", "␣dog", "␣run", "s", "</s>"]),
        ("decoder", ["␣Ein", "␣Hund", "</s>"], ["<s>", "␣Ein", "␣Hund"]),
        ("encoder", ["␣A", "␣dog", "␣run", "s", "</s>"], ["␣A", "␣dog", "␣run", "s", "</s>"]),
    ],
)
def test_every_head_is_drawn_as_it_is_with_pieces_on_the_axes(attention_map, kind, rows, columns):
    figure = plots.attention_maps(attention_map, layer=0, kind=kind)
    panels = panels_of(figure)
    assert [panel.get_title() for panel in panels] == [f"head {n}" for n in range(1, HEADS + 1)]
    highest = attention_map.weights[kind][0].max()
    for head, panel in enumerate(panels):
        (image,) = panel.images
        np.testing.assert_array_equal(image.get_array(), attention_map.weights[kind][0, head])
        assert image.get_clim() == (0, highest)  # one colour bar must be true of all
    assert tick_labels(panels[0].yaxis) == rows
    assert tick_labels(panels[-1].xaxis) == columns
    assert len(figure.axes) == HEADS + 1


def test_the_last_layer_is_drawn_unless_another_is_named(attention_map):
    (first,) = plots.attention_maps(attention_map).axes[0].images
    np.testing.assert_array_equal(first.get_array(), attention_map.weights["cross"][-1, 0])


@pytest.mark.parametrize("layer", [LAYERS, -LAYERS - 1])
def test_a_layer_that_is_not_there_is_refused(attention_map, layer):
    with pytest.raises(ValueError, match=f"one of the 2 layers. Received: layer={layer}"):
        plots.attention_maps(attention_map, layer=layer)


def test_an_unknown_kind_is_answered_with_the_known_ones(attention_map):
    with pytest.raises(ValueError, match="kind='self'.*encoder, decoder, cross"):
        plots.attention_maps(attention_map, kind="self")


@pytest.mark.parametrize(
    ("num_panels", "panel_aspect", "expected"),
    [(8, 1.0, 4), (4, 1.0, 2), (8, 8.0, 1), (8, 0.1, 8), (1, 3.0, 1), (7, 1.0, 7)],
)
def test_the_grid_fits_the_shape_of_its_panels(num_panels, panel_aspect, expected):
    assert _columns_of_grid(num_panels, panel_aspect) == expected


def test_a_text_that_was_cut_is_warned_of(attention_map):
    with pytest.warns(UserWarning, match="shows the first 5 tokens of the text and 3 of the"):
        plots.attention_maps(attention_map._replace(truncated=True))
