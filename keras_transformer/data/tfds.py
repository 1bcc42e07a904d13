"""Parallel corpora of TensorFlow Datasets (https://www.tensorflow.org/datasets)."""

from keras_transformer.data.parallel import ParallelCorpus
from keras_transformer.errors import InputError


def from_tfds(name):
    """Returns `(train, validation)` of a translation data set, downloaded if necessary.

    Args:
        name: in the notation of TFDS, such as "ted_hrlr_translate/pt_to_en". The source is the
            language that the data set defines as its input.
    Returns:
        Two `ParallelCorpus`; the second is None if there is no "validation" split.
    Raises:
        ValueError: no data set has that name, or it has no text pairs or no "train" split.
    """
    import tensorflow_datasets  # here, because it is slow to import and few need it

    try:
        builder = tensorflow_datasets.builder(name)
    except (tensorflow_datasets.core.DatasetNotFoundError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"Expected a TFDS data set. Received: name={name!r}: {reason}") from None
    keys = builder.info.supervised_keys or ()
    texts = [
        isinstance(builder.info.features[key], tensorflow_datasets.features.Text) for key in keys
    ]
    if texts != [True, True]:
        raise InputError(f"Expected a TFDS data set of text pairs. Received: name={name!r}")
    builder.download_and_prepare()
    train, validation = _read_split(builder, "train"), _read_split(builder, "validation")
    if train is None:
        raise InputError(f"Expected a TFDS data set with a train split. Received: name={name!r}")
    return train, validation


def _read_split(builder, split):
    """Returns the corpus of a split, or None where the data set has no such split."""
    try:
        dataset = builder.as_dataset(split=split, as_supervised=True)
    except ValueError:
        return None
    return ParallelCorpus.from_dataset(dataset)
