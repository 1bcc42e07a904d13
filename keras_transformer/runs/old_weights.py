"""Weights of runs that were trained before the encoder and the decoder became layers.

Their `.weights.h5` files name the blocks of the model itself. The numbers are the same.
"""

import contextlib
import pathlib
import tempfile

import h5py

MOVED = {
    "encoder_blocks": "encoder/blocks",
    "decoder_blocks": "decoder/blocks",
    "encoder_norm": "encoder/norm",
    "decoder_norm": "decoder/norm",
    "layers/dense": "layers/dense",
}
"""Groups of an old file, and where a new one has them."""

OF_TWO = {"token_embedding": "embedding", "learned_positions": "position_layer"}
"""Layers that source and target may have each: the second, if any, is numbered 1."""


@contextlib.contextmanager
def in_todays_layout(path):
    """Yields the path of a weights file, or of a temporary copy of it in today's layout."""
    with h5py.File(path) as old:
        if "encoder_blocks" not in old:
            yield path
            return
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory, "model.weights.h5")
            with h5py.File(copy, "w") as new:
                for source, target in _moves(old).items():
                    old.copy(source, new, target)
            yield copy


def _moves(old):
    moves = {source: target for source, target in MOVED.items() if source in old}
    for name, attribute in OF_TWO.items():
        source, target = f"layers/{name}", f"layers/{name}_1"
        if target in old:
            moves |= {source: f"encoder/{attribute}", target: f"decoder/{attribute}"}
        elif source in old:
            moves[source] = f"decoder/{attribute}"  # which Keras reads first of a shared layer
    return moves
