"""A GPT as a SavedModel: from a prompt to a text."""

import os

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import DecodingConfig
from keras_transformer.export import export_text_generator, generation, verification
from keras_transformer.export.verification import ExportError
from keras_transformer.models import Gpt
from keras_transformer.serving.loaded_model import LoadedModel
from keras_transformer.translation.loading import load

PROMPTS = [
    "A dog",
    "",
    "The woman in the green coat is",
    " \t",
    "Where is the bus?",
    "A",
    "A dog and a cat",
]
SIZES = dict(num_layers=1, d_model=16, num_heads=2)
DECODING = DecodingConfig(beam_size=1, max_length=7, max_source_length=6)


@pytest.fixture(scope="module")
def gpt(tokenizer, randomize):
    model = Gpt(tokenizer.vocab_size, **SIZES, max_length=10)
    model.build()
    randomize(model, seed=16)
    return model


@pytest.fixture(scope="module")
def path(gpt, tokenizer, tmp_path_factory, forking):
    with forking(verification):
        return export_text_generator(gpt, tokenizer, tmp_path_factory.mktemp("gpt"), DECODING)


@pytest.fixture(scope="module")
def served(path):
    """The signature as the embedded server calls it."""
    model = LoadedModel(path)
    signature = model.signatures["serving_default"]

    def generate(prompts):
        return signature({"text": np.array([prompt.encode() for prompt in prompts], object)})

    generate.signature = signature
    yield generate
    model.close()


def test_it_continues_prompts_as_the_model_does(served, gpt, tokenizer):
    found = served(PROMPTS)
    ids = [row[:6] for row in tokenizer.encode(PROMPTS).numpy()]
    continued = [i for i, row in enumerate(ids) if len(row)]
    texts = gpt.generate([ids[i] for i in continued], max_new_tokens=7)
    expected = [""] * len(PROMPTS)
    for i, text in zip(continued, texts, strict=True):
        expected[i] = tokenizer.decode(text[None])[0].numpy().decode()
    assert [text.decode() for text in found["text"]] == expected
    ends = {i: 3 in text for i, text in zip(continued, texts, strict=True)}
    is_cut = [len(row) > 6 for row in tokenizer.encode(PROMPTS).numpy()]
    assert len(set(expected)) == 6
    assert {(is_cut[i], ends[i]) for i in ends} >= {(True, True), (True, False), (False, False)}
    for i, truncated in enumerate(found["truncated"]):
        assert truncated == (i in ends and (is_cut[i] or not ends[i]))
    assert found["score"][1] == found["score"][3] == 0
    assert all(found["score"][continued] < 0)


def test_an_answer_does_not_depend_on_its_neighbours(served):
    together = served(PROMPTS)
    for i, prompt in enumerate(PROMPTS):
        alone = served([prompt])
        assert alone["text"][0] == together["text"][i]
        np.testing.assert_allclose(alone["score"][0], together["score"][i], atol=1e-5)
    assert len(served([])["text"]) == 0
    assert served.signature.is_batchable  # so a server may put requests into one batch


def test_a_version_is_whole_and_is_no_translator(path):
    assert os.listdir(path.parent) == ["1"]
    assert {"SHA256SUMS", "assets.extra", "saved_model.pb"} <= set(os.listdir(path))
    with pytest.raises(ValueError, match="Expected an export of a translator"):
        load(path.parent)


@pytest.mark.parametrize("name, change", [("score", 0.01), ("text", b" x"), ("score", np.nan)])
def test_another_answer_is_found(served, monkeypatch, name, change):
    """With the answers of the server in the place of those of the fresh process."""
    monkeypatch.setattr(
        verification,
        "_run_in_fresh_process",
        lambda _, batches: [served([text.decode() for text in batch]) for batch in batches],
    )
    rows = np.array([b"A dog"] * 6, object)

    def right(texts):
        return {key: tf.constant(x) for key, x in served(["A dog"] * len(texts)).items()}

    assert verification.verify_function("a path", right, rows) == (12, 0)

    def other(texts):
        answer = right(texts)
        return {**answer, name: answer[name] + change}

    with pytest.raises(ExportError, match="as the model does here.*Received: 12 of 12"):
        verification.verify_function("a path", other, rows)


def test_what_does_not_fit_is_refused(gpt, tokenizer, tmp_path, monkeypatch):
    for bad in (gpt, None), ("gpt", tokenizer):
        with pytest.raises(ValueError, match="Expected a Gpt and a tokenizer of this package"):
            export_text_generator(*bad, tmp_path)
    size = tokenizer.vocab_size
    for model in (
        Gpt(size - 1, **SIZES),
        Gpt(size, **SIZES, pad_id=-1),
        Gpt(size, **SIZES, end_id=7),
    ):
        with pytest.raises(ValueError, match="Expected a model with the tokenizer's ids"):
            export_text_generator(model, tokenizer, tmp_path)
    (tmp_path / "1").mkdir()
    with pytest.raises(ValueError, match="Received: version=1"):
        export_text_generator(gpt, tokenizer, tmp_path, version=1)

    def fail(*_):
        raise ExportError("not the same")

    monkeypatch.setattr(generation, "verify_function", fail)
    with pytest.raises(ExportError, match="not the same"):
        export_text_generator(gpt, tokenizer, tmp_path, DECODING)
    assert os.listdir(tmp_path) == ["1"] and os.listdir(tmp_path / "1") == []
