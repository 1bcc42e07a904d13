"""On TFDS's own mock: the data sets' real features, made-up content, nothing downloaded."""

import contextlib
import sys
import types

import pytest
import tensorflow as tf
import tensorflow_datasets

from keras_transformer.data import parallel
from keras_transformer.data.parallel import from_tfds
from keras_transformer.errors import InputError

pytestmark = pytest.mark.usefixtures("network")


@contextlib.contextmanager
def mocked(*splits):
    """Gives each of `splits`, and no other, seven Portuguese-English pairs, one of them blank."""

    def as_dataset(builder, *, split, **kwargs):
        if split not in splits:
            raise ValueError(f"Unknown split {split!r}.")
        examples = {
            language: [f"{split} {i} {language}" for i in range(6)] + [""]
            for language in ("en", "pt")
        }
        return tf.data.Dataset.from_tensor_slices(examples)

    with tensorflow_datasets.testing.mock_data(as_dataset_fn=as_dataset):
        yield


def test_train_and_validation():
    with mocked("train", "validation"):
        train, validation = from_tfds("ted_hrlr_translate/pt_to_en")
    assert train.source == [f"train {i} pt" for i in range(6)]
    assert train.target == [f"train {i} en" for i in range(6)]
    assert train.summary.num_blank == 1
    assert validation.target[5] == "validation 5 en"


def test_a_proxy_that_refuses_is_named_soon(monkeypatch, tmp_path):
    waits = []
    monkeypatch.setattr(
        "urllib3.util.retry.Retry._sleep_backoff",
        lambda retry: waits.append(retry.get_backoff_time()),
    )
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    builder = tensorflow_datasets.builder("ted_hrlr_translate/pt_to_en", data_dir=tmp_path)
    message = "to download x. .*connect to proxy.* Check the proxy in http_proxy and https_proxy. "
    with pytest.raises(ValueError, match=message) as error:
        parallel._download(builder, "x")
    assert "\n" not in str(error.value)
    assert 0 < sum(waits) < 20


def test_without_validation_split():
    with mocked("train"):
        train, validation = from_tfds("ted_hrlr_translate/pt_to_en")
    assert len(train) == 6 and validation is None


def test_without_train_split():
    with mocked("validation"), pytest.raises(ValueError, match="with a train split"):
        from_tfds("ted_hrlr_translate/pt_to_en")


def test_exchanged_languages_are_the_other_direction():
    with mocked("train"):
        train, _ = from_tfds("ted_hrlr_translate/en_to_pt")
        as_defined, _ = from_tfds("ted_hrlr_translate/pt_to_en")
    assert (train.source, train.target) == (as_defined.target, as_defined.source)
    assert train.source[0] == "train 0 en"


def test_the_stock_mock_gives_text_too():
    with tensorflow_datasets.testing.mock_data(num_examples=5):
        train, validation = from_tfds("ted_hrlr_translate/pt_to_en")
    assert len(train) + train.summary.num_blank == 5
    assert all(isinstance(text, str) for text in validation.source)


@pytest.mark.parametrize(
    "name",
    [
        "no_such_set",
        "ted_hrlr_translate/xx_to_en",
        "ted_hrlr_translate/pt_to_en:9.9.9",
        "ted_hrlr_translate/pt_to_en/no_such_argument=1",
        "not a name",
        "mnist",
        "imdb_reviews",
    ],
)
def test_what_is_no_translation_data_set(name):
    with pytest.raises(ValueError, match="Expected a TFDS data set") as error:
        from_tfds(name)
    assert f"name={name!r}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("module", [None, types.ModuleType("tensorflow_datasets")])
def test_a_library_that_cannot_be_imported_is_told_in_one_line(module, monkeypatch):
    """TFDS is missing, or it has no names because its own import has failed."""
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
    with pytest.raises(InputError, match="pip install --upgrade tensorflow-datasets") as error:
        from_tfds("ted_hrlr_translate/pt_to_en")
    assert "\n" not in str(error.value)
