import pickle
import unicodedata

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
    ids = bert.encode(["the cats sat", "café"]).to_list()
    assert bert.to_pieces(ids[0]) == ["the", "cat", "##s", "s", "##at"]
    assert bert.to_pieces(ids[1]) == ["caf", "##é"]


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


RANGES = (0, 0x3400), (0xA000, 0xAC00), (0xF900, 0x10000), (0x1D100, 0x1D800), (0x1F300, 0x1F700)


@pytest.mark.parametrize("around", [("", ""), ("ab", "cd")], ids=["alone", "within a word"])
@pytest.mark.parametrize("tokenizer_class", [WordPieceTokenizer, UncasedWordPieceTokenizer])
@pytest.mark.parametrize("ranges", [RANGES, pytest.param([(0, 0x110000)], marks=pytest.mark.slow)])
def test_ids_are_those_of_the_library_for_every_character(tokenizer_class, around, ranges):
    """But for characters that are newer than the tables of Unicode in one of the libraries."""
    library = pytest.importorskip("tokenizers", reason="needs the extra convert")
    letters = [chr(code) for start, end in ranges for code in range(start, end)]
    letters = [letter for letter in letters if not 0xD800 <= ord(letter) <= 0xDFFF]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ab", "abcd", "cd", "##cd", "##d"]
    pieces += [p for letter in letters[::3] if letter.strip() for p in (letter, f"##{letter}")]
    pieces = list(dict.fromkeys(pieces))
    model = library.models.WordPiece(
        {piece: i for i, piece in enumerate(pieces)},
        unk_token="[UNK]",
        max_input_chars_per_word=100,
    )
    theirs = library.Tokenizer(model)
    is_uncased = tokenizer_class is UncasedWordPieceTokenizer
    theirs.normalizer = library.normalizers.BertNormalizer(lowercase=is_uncased)
    theirs.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    texts = [letter.join(around) for letter in letters]
    expected = [encoding.ids for encoding in theirs.encode_batch(texts, add_special_tokens=False)]
    found = tokenizer_class("\n".join(pieces).encode()).encode(texts).to_list()
    other = [
        letter for letter, *ids in zip(letters, found, expected, strict=True) if ids[0] != ids[1]
    ]
    old = {letter for letter in other if unicodedata.ucd_3_2_0.category(letter) != "Cn"}
    assert old <= set("\u166d\u1734\u1885\u1886")  # which have another category since then
    assert len(other) < 700


def test_a_word_of_which_a_part_is_unknown_and_a_long_one_are_unknown(bert):
    texts = ["cat😀 cats", "s" * 100, "s" * 101, "é" * 101 + " s"]
    pieces = [bert.to_pieces(ids) for ids in bert.encode(texts).to_list()]
    assert pieces == [
        ["[UNK]", "cat", "##s"],
        ["s", *99 * ["##s"]],
        ["[UNK]"],
        ["[UNK]", "s"],
    ]


def test_marks_and_spaces_are_those_of_bert(bert):
    """No-break and other spaces end a word; joiners and soft hyphens are removed."""
    for space in "\u00a0\u202f\u2009\u2003\u3000\u2028\t":
        assert bert.to_pieces(bert.encode([f"the{space}cat"]).to_list()[0]) == ["the", "cat"]
    for nothing in "\u200b\u00ad\ufeff\x00":
        assert bert.to_pieces(bert.encode([f"ca{nothing}ts"]).to_list()[0]) == ["cat", "##s"]


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
