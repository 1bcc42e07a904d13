"""The same tests run on every kind of tokenizer."""

import io

import pytest
import sentencepiece

from keras_transformer.tokenizers import SentencePieceTokenizer, WordPieceTokenizer


def foreign_model(sentences, **options):
    """Returns the bytes of a SentencePiece model whose special tokens are not as in ours."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 130, **options},
    )
    return model.getvalue()


@pytest.fixture(scope="session")
def sentences(sentence_pairs):
    return [text for pair in sentence_pairs for text in pair]


@pytest.fixture(scope="session")
def trained(sentences):
    """One tokenizer of each kind, by its kind."""
    return {
        "bpe": SentencePieceTokenizer.train(sentences, 150, "bpe"),
        "unigram": SentencePieceTokenizer.train(sentences, 130, "unigram"),
        "wordpiece": WordPieceTokenizer.train(sentences, 200),
    }


@pytest.fixture(params=["bpe", "unigram", "wordpiece"])
def any_tokenizer(request, trained):
    return trained[request.param]


@pytest.fixture(params=["bpe", "unigram"])
def sentence_piece(request, trained):
    return trained[request.param]
