"""What an export says of itself: in a place that TensorFlow Serving leaves alone."""

import json
import pathlib

from keras_transformer.checksums import check_checksums

SETTINGS = "assets.extra/keras_transformer.json"


def check_export(path):
    """Raises `ValueError` where a file of a SavedModel is missing or is not what was written.

    Exports of earlier versions of this package have no checksums, nor have other SavedModels.
    """
    try:
        settings = json.loads(pathlib.Path(path, SETTINGS).read_text())
        is_required = settings.get("checksums", False)
    except (OSError, ValueError, AttributeError):
        is_required = False
    check_checksums(path, is_required=is_required)
