"""A model of OPUS-MT, imported, exported in both formats, and served: it answers as `translate`."""

import numpy as np
import pytest
import requests

pytest.importorskip("safetensors", reason="needs the extra convert")
pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

import keras_transformer
from keras_transformer.config import DecodingConfig
from keras_transformer.convert import import_run
from keras_transformer.export import export_ctranslate2, export_hugging_face, export_saved_model
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import MarianTokenizer
from keras_transformer.translation.translator import Translator


@pytest.fixture(scope="module")
def imported(tokenizer, tmp_path_factory):
    """The run of a small random `MarianMTModel`, with greedy search, whose answers differ."""
    pieces = tokenizer.pieces[:4] + [">>deu<<"] + tokenizer.pieces[:10:-1]
    marian = MarianTokenizer.from_parts(pieces, tokenizer.sentence_piece_model)
    model = Transformer(
        len(pieces),
        num_layers=2,
        num_decoder_layers=1,
        d_model=24,
        ff_dim=40,
        num_heads=3,
        activation="silu",
        position_layout="concatenated",
        layer_norm_epsilon=1e-5,
        scale_embeddings=False,
        tie_output=False,  # else the model repeats its input
        output_bias=True,
    )
    model.build()
    rng = np.random.default_rng(2)
    weights = [w if w.ndim == 1 else rng.normal(0, 0.7, w.shape) for w in model.get_weights()]
    model.set_weights(weights)
    decoding = DecodingConfig(beam_size=1, max_length=12, length_normalization="length")
    directory = tmp_path_factory.mktemp("model")
    written = export_hugging_face(Translator(model, marian, decoding=decoding), directory)
    return import_run(written, tmp_path_factory.mktemp("runs") / "imported", lambda line: None)


@pytest.mark.slow
def test_the_server_answers_as_translate_does(imported, start_server, sentence_pairs, tmp_path):
    translator = keras_transformer.load(imported)
    export_saved_model(translator, tmp_path / "served")
    export_ctranslate2(translator, tmp_path / "served")
    texts = [source for source, _ in sentence_pairs]
    texts += [f">>deu<< {text}" for text in texts[:10]] + ["", "Straße 世界 \U0001f44d"]
    expected = translator(texts)
    assert len(set(expected)) > 30
    server = start_server(tmp_path / "served", "--versions", "all")
    for version in (1, 2):
        answer = requests.post(
            f"{server.rest}/versions/{version}:predict", json={"instances": texts}, timeout=60
        )
        found = [row["translation"] for row in answer.json()["predictions"]]
        num_other = sum(ours != theirs for ours, theirs in zip(expected, found, strict=True))
        assert num_other == 0 if version == 1 else num_other <= 2  # near-ties in CTranslate2
    server.process.terminate()
    assert server.exit_code(300) == 143
