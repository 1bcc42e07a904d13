import pickle

import pytest

from keras_transformer import tokenizers
from keras_transformer.tokenizers import UncasedWordPieceTokenizer, WordPieceTokenizer

PIECES = "the cat s ##at house . , ' - ( ) caf ##é Mat [SEP] [UNK] [CLS] ##s [PAD] 50 %".split()


@pytest.fixture(scope="module")
def bert():
    """A vocabulary in another order than ours, with the names that BERT gives special pieces."""
    return WordPieceTokenizer("\r\n".join(PIECES).encode())


def test_special_pieces_are_moved(bert, trained):
    assert bert.pieces[:4] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    assert sorted(bert.pieces) == sorted(PIECES)
    assert trained["wordpiece"].pieces[:4] == ["[PAD]", "[UNK]", "[START]", "[END]"]


def test_missing_special_pieces_are_added():
    pieces = WordPieceTokenizer(b"a\n[UNK]\nb\n").pieces
    assert pieces == ["[PAD]", "[UNK]", "[START]", "[END]", "a", "b"]


def test_words_are_split_into_the_longest_pieces(bert):
    ids = bert.encode(["the cats sat", "cafe\u0301"]).to_list()
    assert bert.to_pieces(ids[0]) == ["the", "cat", "##s", "s", "##at"]
    assert bert.to_pieces(ids[1]) == ["caf", "##é"]  # composed, then found


def test_case_is_kept(bert):
    assert bert.to_pieces(bert.encode(["Mat mat"]).to_list()[0])[0] == "Mat"
    assert "[UNK]" in bert.to_pieces(bert.encode(["mat"]).to_list()[0])


def test_an_uncased_tokenizer_stays_one(sentences, tmp_path):
    """Trained, saved, loaded by either function, and unpickled."""
    tokenizer = UncasedWordPieceTokenizer.train([*sentences, "한국"], 200)
    assert not any(character.isupper() for piece in tokenizer.pieces[4:] for character in piece)
    tokenizer.save(tmp_path)
    text = "EIN Hund lä\u0075\u0308ft, läuft"
    ids = tokenizer.encode([text]).to_list()
    assert ids == tokenizer.encode(["ein hund lauft, lauft"]).to_list() and 1 not in ids[0]
    assert 1 not in tokenizer.encode(["한국"]).to_list()[0]
    for copy in (
        tokenizers.load(tmp_path),
        tokenizers.from_file(tmp_path / "tokenizer.uncased.vocab.txt"),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert type(copy) is UncasedWordPieceTokenizer and copy.encode([text]).to_list() == ids


def test_an_unknown_character_does_not_hide_its_word(bert):
    assert bert.to_pieces(bert.encode(["cat😀"]).to_list()[0])[0] == "cat"


def test_spaces_go_back_by_rule(bert):
    texts = ["the cat, the house.", "the cat's house", "the cat-house (50%)."]
    assert [text.decode() for text in bert.decode(bert.encode(texts)).numpy()] == texts
    assert bert.decode(bert.encode(["the cat ."])).numpy()[0] == b"the cat."


@pytest.mark.parametrize("vocab_size", [113, 331])
def test_the_vocabulary_has_about_the_size_asked_for(sentences, vocab_size):
    tokenizer = WordPieceTokenizer.train(sentences, vocab_size)
    assert 0.95 * vocab_size <= tokenizer.vocab_size <= vocab_size
    assert 1 not in tokenizer.encode(sentences).flat_values.numpy()  # every word can be spelt


def test_sampling_is_refused(bert):
    with pytest.raises(ValueError, match="Received: sampling=0.1"):
        bert.encode_sampled(["the cat"], 0.1, seed=1)


@pytest.mark.parametrize("content", [b"", b"a\nb\n", b"[UNK]\n\xff\xfe\n"])
def test_bytes_that_are_no_vocabulary(content):
    with pytest.raises(ValueError, match="Expected a WordPiece vocabulary"):
        WordPieceTokenizer(content)


def test_a_text_that_begins_inside_a_word_shows_no_mark():
    tokenizer = WordPieceTokenizer(b"[UNK]\n##s\ncat")
    ids = [[tokenizer.pieces.index(piece) for piece in ("##s", "cat", "##s")]]
    assert tokenizer.decode(ids).numpy().tolist() == [b"s cats"]
