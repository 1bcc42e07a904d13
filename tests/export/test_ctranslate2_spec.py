"""A model in CTranslate2 computes what it computes here, in every form that CTranslate2 knows."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

from keras_transformer.config import DecodingConfig
from keras_transformer.export.ctranslate2_model import (
    check_model,
    search_settings,
    write_ctranslate2,
)
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.tokenizers import MarianTokenizer, WordPieceTokenizer
from keras_transformer.translation.ctranslate2_search import CTranslate2Search
from keras_transformer.translation.translator import Translator

DECODING = DecodingConfig(beam_size=1, max_length=8, max_source_length=25)
SIZES = dict(num_layers=2, num_decoder_layers=1, d_model=24, ff_dim=40, num_heads=3)


@pytest.fixture(scope="module")
def marian_tokenizer(tokenizer):
    """A tokenizer with ids of its own, one of them for a tag."""
    pieces = tokenizer.pieces[:4] + [">>deu<<"] + tokenizer.pieces[:50:-1]
    return MarianTokenizer.from_parts(pieces, tokenizer.sentence_piece_model)


@pytest.mark.parametrize(
    "arguments",
    [
        dict(share_embeddings=False, activation="gelu", min_length=5, no_repeat_ngram=1),
        dict(normalize_first=True, positions="rotary", tie_output=False, activation="silu"),
        dict(separate=True, positions="learned", max_length=40, activation="gelu_tanh"),
        dict(
            marian=True,
            position_layout="concatenated",
            scale_embeddings=False,
            output_bias=True,
            layer_norm_epsilon=1e-3,
        ),
        pytest.param(dict(normalize_first=True, activation="sigmoid"), marks=pytest.mark.slow),
        pytest.param(dict(positions="rotary", attention={"name": "dense"}), marks=pytest.mark.slow),
        pytest.param(dict(separate=True, tie_output=False), marks=pytest.mark.slow),
        pytest.param(
            dict(normalize_first=True, positions="learned", max_length=28, activation="tanh"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_translations_and_scores_are_the_translators(
    arguments, tokenizer, other_tokenizer, marian_tokenizer, texts, tmp_path, randomize, eagerly
):
    arguments, decoding, texts = dict(arguments), DECODING, [*texts[:31], texts[-1]]
    target_tokenizer = other_tokenizer if arguments.pop("separate", False) else None
    if arguments.pop("marian", False):
        tokenizer, texts = marian_tokenizer, [">>deu<<" + text for text in texts[:15]] + texts[15:]
        decoding = dataclasses.replace(DECODING, length_normalization="length")
    for name in set(arguments) & {"min_length", "no_repeat_ngram"}:
        decoding = dataclasses.replace(decoding, **{name: arguments.pop(name)})
    sizes = [tokenizer.vocab_size]
    if target_tokenizer is not None:
        sizes.append(target_tokenizer.vocab_size)
    model = Transformer(*sizes, **SIZES, **arguments)
    model.build()
    randomize(model, seed=2)
    if model.output_biases is not None:
        model.output_biases.assign(np.linspace(-1, 1, model.output_vocab_size))
    translator = Translator(model, tokenizer, target_tokenizer, decoding)
    check_model(translator)
    write_ctranslate2(translator, tmp_path)
    settings = {"decoding": dataclasses.asdict(decoding), **search_settings(translator)}
    search = CTranslate2Search(tmp_path, settings)
    expected = [best for (best,) in translator.translate(texts)]
    received = [best for (best,) in search.translate(texts)]
    assert len({best.text for best in expected}) > 15
    same = [(e.text, e.truncated) == (r[0], r[2]) for e, r in zip(expected, received, strict=True)]
    assert sum(same) >= 0.95 * len(texts)  # rounding may change a token of two that are as probable
    targets = [best.text for best in expected]
    scores = search.score(texts, targets)
    np.testing.assert_allclose(scores, translator.score(texts, targets), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "arguments, received",
    [
        (dict(attention="local"), "attention='local'"),
        (dict(cross_attention="linear"), "cross_attention='linear'"),
        (dict(decoder_attention="ssru"), "decoder_attention='ssru'"),
        (dict(positions="alibi"), "positions='alibi'"),
        (dict(activation="elu"), "activation='elu'"),
        (dict(source_vocab_size=151), "151 source embeddings for 150 tokens"),
    ],
    ids=str,
)
def test_what_ctranslate2_does_not_know_is_refused_by_name(arguments, received, tokenizer):
    sizes = {"source_vocab_size": tokenizer.vocab_size, **SIZES, **arguments}
    translator = Translator(Transformer(**sizes), tokenizer, decoding=DECODING)
    with pytest.raises(ValueError, match="as CTranslate2 has. Received: ") as error:
        check_model(translator)
    assert received in str(error.value)


def test_other_models_and_tokenizers_are_refused(tokenizer):
    model = RnnSeq2Seq(tokenizer.vocab_size, d_model=8)
    with pytest.raises(ValueError, match="Received: the model RnnSeq2Seq"):
        check_model(Translator(model, tokenizer))
    penalty = dataclasses.replace(DECODING, repetition_penalty=1.2)
    model = Transformer(tokenizer.vocab_size, **SIZES)
    with pytest.raises(ValueError, match="Received: repetition_penalty=1.2"):
        check_model(Translator(model, tokenizer, decoding=penalty))
    added = MarianTokenizer.from_parts(
        tokenizer.pieces, tokenizer.serialized, {tokenizer.pieces[5]: False}
    )
    with pytest.raises(ValueError, match="without added tokens, as .* Received: added_tokens="):
        check_model(Translator(model, added, decoding=DECODING))
    word_piece = WordPieceTokenizer(b"[UNK]\na\nb\n")
    model = Transformer(word_piece.vocab_size, **SIZES)
    with pytest.raises(ValueError, match="the source tokenizer WordPieceTokenizer"):
        check_model(Translator(model, word_piece))
