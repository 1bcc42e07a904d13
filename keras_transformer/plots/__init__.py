"""Pictures for papers and notebooks.

Each function returns the matplotlib `Figure`, which a notebook shows by itself, and writes it to
`path` where one is given: PNG, PDF or SVG by its suffix, and whole or not at all.
"""

from keras_transformer.plots.attention import attention_maps
from keras_transformer.plots.curves import learning_curves
from keras_transformer.plots.drawing import check_format
from keras_transformer.plots.images import caption_attention, image_attention
from keras_transformer.plots.positions import position_encoding

__all__ = [
    "attention_maps",
    "caption_attention",
    "check_format",
    "image_attention",
    "learning_curves",
    "position_encoding",
]
