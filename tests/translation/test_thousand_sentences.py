"""The 1,000 sentences of Multi30k's test text: what stands beside a sentence changes nothing."""

import os
import pathlib

import numpy as np
import pytest

import keras_transformer
from keras_transformer import backend, export
from keras_transformer.config import Config
from keras_transformer.export import int8_products
from keras_transformer.files.text import iterate_lines
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.training import train

NEAR_TIE = 2e-4  # nats; rounding, which depends on the size of a batch, may swap what is closer
MAX_NEAR_TIES = 3  # of 1,000
SETTINGS = [
    "model.num_layers=2", "model.d_model=64", "model.ff_dim=128", "tokenizer.vocab_size=4000",
    "training.batch_tokens=2048", "training.max_steps=400", "training.checkpoint_every=400",
    "training.warmup_steps=200", "training.patience=0",
]  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("KERAS_TRANSFORMER_DATA" not in os.environ, reason="needs Multi30k"),
]


@pytest.fixture(scope="module")
def folder():
    return pathlib.Path(os.environ["KERAS_TRANSFORMER_DATA"]) / "multi30k"


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """A run that has learned little, but says different things of different sentences."""
    names = {"train": "train", "valid": "val"}
    data = [
        f"data.{split}=[{{source: {folder / name}.en.gz, target: {folder / name}.de.gz}}]"
        for split, name in names.items()
    ]
    path = tmp_path_factory.mktemp("thousand") / "run"
    train(Config.from_preset("tiny").override([*data, *SETTINGS]), path, write=lambda line: None)
    return path


@pytest.fixture(scope="module")
def sentences(folder):
    return list(iterate_lines(folder / "test_2016_flickr.en.gz"))


def best_of(translator, texts):
    return [best for (best,) in translator.translate(texts)]


def assert_same(found, expected, near_tie=NEAR_TIE):
    assert len(found) == len(expected) == 1000
    differ = [pair for pair in zip(found, expected, strict=True) if pair[0].text != pair[1].text]
    assert len(differ) <= MAX_NEAR_TIES, differ
    for one, other in differ:
        assert abs(one.score - other.score) < near_tie, (one, other)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_neighbours_batches_and_threads_change_no_translation(
    run, sentences, beam_size, monkeypatch
):
    translator = keras_transformer.load(run, beam_size=beam_size)
    alone = [best_of(translator, [sentence])[0] for sentence in sentences]
    assert len({best.text for best in alone}) > 300
    backwards = sentences[::-1]
    for num_threads, batch_size in ((1, 64), (2, 64), (3, 7)):
        monkeypatch.setattr(backend, "num_search_threads", lambda count=num_threads: count)
        monkeypatch.setattr(translator._batch_search, "batch_size", batch_size)
        assert_same(best_of(translator, sentences), alone)
        assert_same(best_of(translator, backwards)[::-1], alone)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_export_translates_as_the_run_does(run, sentences, beam_size, tmp_path):
    translator = keras_transformer.load(run, beam_size=beam_size)
    path = export.export_saved_model(translator, tmp_path / "export")
    assert_same(best_of(keras_transformer.load(path), sentences), best_of(translator, sentences))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_neighbours_change_no_translation_in_int8(run, sentences, beam_size, tmp_path, monkeypatch):
    """All products are in int8. An input that is rounded to another number may change scores."""
    monkeypatch.setattr(int8_products, "MIN_ENTRIES", 1)
    translator = keras_transformer.load(run, beam_size=beam_size)
    served = keras_transformer.load(
        export.export_saved_model(translator, tmp_path / "export", weights="int8")
    )
    alone = [best_of(served, [sentence])[0] for sentence in sentences]
    assert alone != best_of(translator, sentences)
    for texts, order in ((sentences, 1), (sentences[::-1], -1)):
        batches = [best_of(served, texts[i : i + 64]) for i in range(0, len(texts), 64)]
        assert_same([best for batch in batches for best in batch][::order], alone, np.inf)


def test_greedy_search_is_the_most_probable_next_token_of_the_whole_model(run, sentences):
    """As a loop without a cache, a batch or any other code of the search finds it."""
    translator = keras_transformer.load(run, beam_size=1)
    model, tokenizer = translator.model, translator.tokenizer
    whole = [
        (sentence, best.text)
        for sentence, best in zip(sentences[:25], best_of(translator, sentences[:25]), strict=True)
        if not best.truncated
    ]
    assert len(whole) > 15
    for sentence, translation in whole:
        source = [*tokenizer.encode([sentence]).to_list()[0], END_ID]
        target = [START_ID]
        while target[-1] != END_ID and len(target) <= translator.decoding.max_length:
            ids = {"source_ids": np.array([source]), "target_ids": np.array([target])}
            logits = np.array(model(ids))[0, -1]
            logits[:END_ID] = -np.inf  # no padding, unknown or start token
            target.append(int(np.argmax(logits)))
        assert target[-1] == END_ID
        ids = np.array([target[1:-1]], "int32")
        assert tokenizer.decode(ids).numpy()[0].decode() == translation
