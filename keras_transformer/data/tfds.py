"""Parallel corpora of TensorFlow Datasets (https://www.tensorflow.org/datasets)."""

import contextlib
import re

from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.errors import InputError


def from_tfds(name):
    """Returns `(train, validation)` of a translation data set, downloaded if necessary.

    Args:
        name: in the notation of TFDS, such as "ted_hrlr_translate/pt_to_en". The source is the
            language that the data set defines as its input. A name with swapped languages, such as
            "wmt14_translate/en-de", means the data set in the other direction.
    Returns:
        Two `ParallelCorpus`; the second is None if there is no "validation" split.
    Raises:
        ValueError: no data set has that name, it has no text pairs or no "train" split, or TFDS
            cannot be imported.
    """
    tensorflow_datasets = _imported()
    builder, is_exchanged = _builder(tensorflow_datasets, name)
    keys = builder.info.supervised_keys or ()
    texts = [
        isinstance(builder.info.features[key], tensorflow_datasets.features.Text) for key in keys
    ]
    if texts != [True, True]:
        raise InputError(f"Expected a TFDS data set of text pairs. Received: name={name!r}")
    builder.download_and_prepare()
    train, validation = (
        _read_split(builder, split, is_exchanged) for split in ("train", "validation")
    )
    if train is None:
        raise InputError(f"Expected a TFDS data set with a train split. Received: name={name!r}")
    return train, validation


def _imported():
    """Returns the module of TFDS, which is slow to import, and which few need.

    If its own import fails, TFDS logs why and has no names, as with a protobuf that is too old.
    """
    try:
        import tensorflow_datasets

        tensorflow_datasets.builder  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"Expected TensorFlow Datasets that can be imported. Received: {error}. Install what "
            "fits together: pip install --upgrade tensorflow-datasets tensorflow-metadata "
            '"protobuf>=6.32".'
        ) from None
    return tensorflow_datasets


def _builder(tensorflow_datasets, name):
    """Returns `(builder, is_exchanged)`: the TFDS builder, and whether languages are swapped."""
    not_found = (
        tensorflow_datasets.core.DatasetNotFoundError,
        ValueError,
        AssertionError,  # no such version
        TypeError,  # no such argument
    )
    try:
        return tensorflow_datasets.builder(name), False
    except not_found as error:
        reason = " ".join(str(error).split())[:300]
    with contextlib.suppress(*not_found):
        exchanged = re.sub(r"/([a-z]+)(-|_to_)([a-z]+)", r"/\3\2\1", name)
        return tensorflow_datasets.builder(exchanged), True
    raise InputError(
        f"Expected a TFDS data set. Received: name={name!r}: {reason} "
        "https://www.tensorflow.org/datasets/catalog/overview lists the names."
    )


def _read_split(builder, split, is_exchanged):
    """Returns the corpus of a split, or None if the data set has no such split."""
    try:
        dataset = builder.as_dataset(split=split, as_supervised=True)
    except ValueError:
        return None
    if is_exchanged:
        dataset = dataset.map(lambda source, target: (target, source))
    return ParallelCorpus.from_dataset(dataset)
