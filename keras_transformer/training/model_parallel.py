"""Model parallelism: each device holds a part of the large weights and computes with it.

Source: Shoeybi et al., 2019, section 3, https://arxiv.org/abs/1909.08053. Letters: D d_model, H
heads, K width of a head, F ff_dim, V vocabulary.
"""

import keras

COLUMNS, ROWS = (None, "model"), ("model", None)
LAYOUTS = {
    ".*attention/(query|key|value)/kernel": COLUMNS,  # (D, H K): each device has some heads
    ".*attention/(query|key|value)/bias": ("model",),
    ".*attention/output/kernel": ROWS,  # (H K, D): the devices' results are summed
    ".*feed_forward/inner/kernel": COLUMNS,  # (D, F)
    ".*feed_forward/inner/bias": ("model",),
    ".*feed_forward/outer/kernel": ROWS,  # (F, D)
    ".*embedding/embeddings": ROWS,  # (V, D), often the output layer too
    ".*output_layer/kernel": COLUMNS,  # (D, V)
}
"""The axis of a weight that is divided, by a regular expression of its path."""


def layout_map(mesh: keras.distribution.DeviceMesh) -> keras.distribution.LayoutMap:
    """Returns the layouts of this package's Transformers, for `keras.distribution.ModelParallel`.

    Attention and feed-forward layers are divided by columns and then by rows, so that each needs
    one sum over the devices; tables of embeddings are divided by tokens.

    Args:
        mesh: has an axis "model".

    Example:
    >>> mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
    >>> layout_map(mesh)["transformer/encoder/block_0/feed_forward/outer/kernel"].axes
    ('model', None)
    """
    layouts = keras.distribution.LayoutMap(mesh)
    for path, axes in LAYOUTS.items():
        layouts[path] = axes
    return layouts


def model_parallel() -> keras.distribution.ModelParallel:
    """Returns a `keras.distribution.Distribution` that divides a model over all devices."""
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((1, len(devices)), ("batch", "model"), devices)
    return EvenModelParallel(layout_map=layout_map(mesh), batch_dim_name="batch")


class EvenModelParallel(keras.distribution.ModelParallel):
    """Leaves weights whole that the devices cannot divide evenly, such as an odd vocabulary."""

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        sizes = dict(zip(self.device_mesh.axis_names, self.device_mesh.shape, strict=True))
        axes = zip(variable.shape, layout.axes, strict=True)
        if all(axis is None or size % sizes[axis] == 0 for size, axis in axes):
            return layout
        return keras.distribution.TensorLayout([None] * len(variable.shape), self.device_mesh)
