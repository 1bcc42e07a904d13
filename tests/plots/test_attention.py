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


def test_the_title_names_kind_and_layer(attention_map):
    figure = plots.attention_maps(attention_map, layer=-2, kind="decoder")
    assert figure.get_suptitle() == "decoder self-attention, layer 1 of 2"


def test_of_many_tokens_every_panel_has_its_own_labels(attention_map):
    def panels_with_labels(num_tokens):
        long = attention_map._replace(
            source_pieces=["a"] * num_tokens,
            weights={"encoder": np.full((1, 4, num_tokens, num_tokens), 1 / num_tokens)},
        )
        panels = panels_of(plots.attention_maps(long, kind="encoder"))
        return [panel.yaxis.get_tick_params()["labelleft"] for panel in panels]

    assert panels_with_labels(30) == [True, True, True, True]
    assert panels_with_labels(5) == [True, False, True, False]


def test_an_alignment_is_the_mean_of_the_heads(attention_map, tmp_path):
    figure = plots.alignment(attention_map, tmp_path / "alignment.svg", layer=0)
    (panel,) = panels_of(figure)
    weights = attention_map.weights["cross"][0]
    np.testing.assert_allclose(panel.images[0].get_array(), weights.mean(axis=0))
    assert tick_labels(panel.yaxis) == ["␣Ein", "␣Hund", "</s>"]
    assert tick_labels(panel.xaxis) == ["␣A", "␣dog", "␣run", "s", "</s>"]
    title = "alignment: cross-attention, layer 1 of 2, mean of 6 heads"
    assert figure.get_suptitle() == title
    assert (tmp_path / "alignment.svg").read_text().count("␣Hund") > 0


def test_an_alignment_is_that_of_a_head(attention_map):
    figure = plots.alignment(attention_map, layer=1, head=3)
    (panel,) = panels_of(figure)
    np.testing.assert_allclose(panel.images[0].get_array(), attention_map.weights["cross"][1][3])
    assert figure.get_suptitle() == "alignment: cross-attention, layer 2 of 2, head 4"
    for head in (-1, 6):
        with pytest.raises(ValueError, match=f"from 0 to 5. Received: head={head}"):
            plots.alignment(attention_map, head=head)


def test_an_alignment_needs_cross_attention(attention_map):
    encoder_only = attention_map._replace(weights={"encoder": attention_map.weights["encoder"]})
    with pytest.raises(ValueError, match="kind='cross'. Choose one of: encoder;"):
        plots.alignment(encoder_only)


@pytest.mark.parametrize("token", [2, -3, "run", "▁run"])
def test_what_a_token_attends_to_is_a_row_for_each_head_of_each_layer(attention_map, token):
    figure = plots.attention_from(attention_map, token)
    (panel,) = panels_of(figure)
    drawn = panel.images[0].get_array()
    for layer in range(LAYERS):
        for head in range(HEADS):
            expected = attention_map.weights["encoder"][layer, head, 2]
            np.testing.assert_array_equal(drawn[layer * HEADS + head], expected)
    rows = tick_labels(panel.yaxis)
    assert rows[:2] == ["layer 1  head 1", "head 2"] and rows[HEADS] == "layer 2  head 1"
    assert [list(line.get_ydata()) for line in panel.lines] == [[HEADS - 0.5] * 2]
    assert tick_labels(panel.xaxis) == ["␣A", "␣dog", "␣run", "s", "</s>"]
    assert figure.get_suptitle() == 'what "␣run" attends to: encoder self-attention'


def test_what_a_predicted_token_attends_to(attention_map):
    figure = plots.attention_from(attention_map, "Hund", kind="cross")
    drawn = panels_of(figure)[0].images[0].get_array()
    np.testing.assert_array_equal(drawn[0], attention_map.weights["cross"][0, 0, 1])


@pytest.mark.parametrize("token", ["cat", "", 5, -6])
def test_a_token_that_is_not_there_is_answered_with_those_that_are(attention_map, token):
    with pytest.raises(ValueError, match=f"tokens ␣A ␣dog ␣run s </s>,.*token={token!r}"):
        plots.attention_from(attention_map, token)


def test_a_token_that_is_there_twice_wants_its_index(attention_map):
    twice = attention_map._replace(source_pieces=["▁a", "▁dog", "▁a", "s", "</s>"])
    with pytest.raises(ValueError, match="token='a', which has the indices 0, 2"):
        plots.attention_from(twice, "a")


def test_weights_that_are_not_finite_are_not_drawn(attention_map):
    attention_map.weights["cross"][0, 0, 0, 0] = np.nan
    for draw in (plots.attention_maps, plots.alignment, plots.attention_view):
        with pytest.raises(ValueError, match="Received: NaN or infinity in the weights of 'cross'"):
            draw(attention_map)
