import pytest

from keras_transformer import tokenizers
from keras_transformer.tokenizers import SentencePieceTokenizer, WordPieceTokenizer


def test_the_kind_of_a_users_file_is_told_by_its_name(trained, tmp_path):
    (tmp_path / "spm.model").write_bytes(trained["unigram"].serialized)
    (tmp_path / "vocab.txt").write_bytes(trained["wordpiece"].serialized)
    model = tokenizers.from_file(tmp_path / "spm.model")
    vocabulary = tokenizers.from_file(str(tmp_path / "vocab.txt"))
    assert isinstance(model, SentencePieceTokenizer) and model.pieces == trained["unigram"].pieces
    assert isinstance(vocabulary, WordPieceTokenizer)
    assert vocabulary.pieces == trained["wordpiece"].pieces


@pytest.mark.parametrize("name", ["spm.model", "vocab.txt"])
def test_a_users_file_that_cannot_be_read(name, tmp_path):
    with pytest.raises(ValueError, match=f"{name}: No such file"):
        tokenizers.from_file(tmp_path / name)
    with pytest.raises(ValueError, match="directory"):
        tokenizers.from_file(tmp_path)
    (tmp_path / name).write_bytes(b"something else\n")
    with pytest.raises(ValueError, match=f"{name}: Expected a (SentencePiece|WordPiece)"):
        tokenizers.from_file(tmp_path / name)


def test_load_wants_exactly_one_tokenizer(trained, tmp_path):
    with pytest.raises(ValueError, match="tokenizer.model or tokenizer.vocab.txt.*0 of them"):
        tokenizers.load(tmp_path)
    trained["bpe"].save(tmp_path)
    assert tokenizers.load(tmp_path).pieces == trained["bpe"].pieces
    trained["wordpiece"].save(tmp_path)
    with pytest.raises(ValueError, match="2 of them"):
        tokenizers.load(tmp_path)


def test_saving_again_replaces_the_file(trained, tmp_path):
    trained["bpe"].save(tmp_path)
    trained["unigram"].save(tmp_path)
    assert tokenizers.load(tmp_path).serialized == trained["unigram"].serialized
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.model"]
