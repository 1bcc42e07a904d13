"""Pictures for papers and notebooks.

Each function returns the matplotlib `Figure`, which a notebook shows after `%matplotlib inline`.
It writes the picture to `path` where one is given: PNG, PDF or SVG by its suffix, and whole or not
at all. `attention_view` returns a page of HTML instead.
"""

from keras_transformer.plots.attention import alignment, attention_from, attention_maps
from keras_transformer.plots.beam import beam_tree
from keras_transformer.plots.curves import (
    bleu_by_length,
    learning_curves,
    learning_rates,
    position_encoding,
)
from keras_transformer.plots.figures import check_format
from keras_transformer.plots.images import caption_attention, image_attention
from keras_transformer.plots.view import AttentionView, attention_view

__all__ = [
    "AttentionView",
    "alignment",
    "attention_from",
    "attention_maps",
    "attention_view",
    "beam_tree",
    "bleu_by_length",
    "caption_attention",
    "check_format",
    "image_attention",
    "learning_curves",
    "learning_rates",
    "position_encoding",
]
