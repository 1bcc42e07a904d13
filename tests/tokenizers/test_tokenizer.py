"""What holds for every tokenizer."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import tokenizers
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers import SentencePieceTokenizer, WordPieceTokenizer

ODD_TEXTS = [
    "",
    "  \t ",
    "😀 👩‍👩‍👧 🇩🇪",
    "Привет, 世界! مرحبا",
    "<s> </s> <pad> [PAD] [END]",
    "a" * 3000,
    "nul \x00 line\nfeed \u2028 separator",
]


def strings(texts):
    return [text.decode("utf-8") for text in texts.numpy()]


def test_text_comes_back(any_tokenizer, sentences):
    assert strings(any_tokenizer.decode(any_tokenizer.encode(sentences))) == sentences


def test_sentences_are_split_into_known_pieces(any_tokenizer, sentences):
    ids = any_tokenizer.encode(sentences)
    assert ids.dtype == tf.int32
    assert ids.flat_values.numpy().min() > END_ID
    assert ids.flat_values.numpy().max() < any_tokenizer.vocab_size
    assert len(set(ids.flat_values.numpy())) > 60


def test_pieces_name_the_ids(any_tokenizer):
    pieces = any_tokenizer.pieces
    assert len(pieces) == len(set(pieces)) == any_tokenizer.vocab_size
    text = "".join(any_tokenizer.to_pieces(any_tokenizer.encode(["A dog runs."]).numpy()[0]))
    assert text.replace("##", "").replace("▁", "") == "Adogruns."
    assert any_tokenizer.to_pieces(np.array([4, 2])) == [pieces[4], pieces[2]]


def test_surfaces_make_up_the_text(any_tokenizer):
    texts = ["A dog runs", "Der Hund spielt gerade", ""]
    assert any_tokenizer.surfaces[:4] == [b""] * 4
    assert len(any_tokenizer.surfaces) == any_tokenizer.vocab_size
    for row, text in zip(any_tokenizer.encode(texts).to_list(), texts, strict=True):
        written = b"".join(any_tokenizer.surfaces[i] for i in row)
        assert written == (f" {text}".encode() if text else b"")


def test_special_ids_never_come_from_text(any_tokenizer):
    ids = any_tokenizer.encode(ODD_TEXTS).flat_values.numpy()
    assert not set(ids) & {PAD_ID, START_ID, END_ID}


def test_texts_without_letters_have_no_pieces(any_tokenizer):
    assert any_tokenizer.encode(["", "   ", "\n"]).to_list() == [[], [], []]
    assert strings(any_tokenizer.decode([[], []])) == ["", ""]
    assert strings(any_tokenizer.decode([[END_ID, PAD_ID], [PAD_ID, PAD_ID]])) == ["", ""]


def test_texts_of_which_nothing_is_known_are_copied(any_tokenizer):
    texts = ["\u4e16", "\u3000\x85\u4e16 \u4e16\n\u754c\x1c\u00a0", "A \u4e16", "", "\u3000 \t"]
    for encode in (any_tokenizer.encode_truncated, any_tokenizer.encode_padded):
        is_copied, copies = any_tokenizer.copies(texts, encode(texts, 9)[0])
        assert is_copied.numpy().tolist() == [True, True, False, True, True]
        expected = [texts[0], texts[1].strip(), "", ""]
        assert strings(tf.boolean_mask(copies, is_copied)) == expected


def test_a_text_of_invisible_characters_is_blank_even_if_the_tokenizer_knows_them():
    known = tokenizers.SentencePieceTokenizer.train(["a\xadb \u2764\ufe0f c\u200cd"] * 9, 16)
    as_bytes = tokenizers.SentencePieceTokenizer.train(["a b"] * 9, 265, byte_fallback=True)
    texts = ["\xad", " \ufe0f\u200c ", "a\xad", "\u2764\ufe0f"]
    for tokenizer in known, as_bytes:
        assert all(map(len, tokenizer.encode(texts).to_list()))
        is_copied, copies = tokenizer.copies(texts, tokenizer.encode_truncated(texts, 9)[0])
        is_unknown = tokenizer is as_bytes  # as no training has seen its bytes
        assert is_copied.numpy().tolist() == [True, True, False, is_unknown]
        assert strings(copies)[:2] == ["", ""] and (strings(copies)[3] == texts[3]) == is_unknown
    assert [as_bytes.pieces[i] for i in as_bytes.unknown_ids[::256]] == ["<unk>", "<0xFF>"]


def test_odd_texts_and_broken_bytes_are_encoded_and_decoded(any_tokenizer):
    texts = [text.encode() for text in ODD_TEXTS] + [b"A dog \xff\xfe runs. \xc3", b"\x80"]
    decoded = strings(any_tokenizer.decode(any_tokenizer.encode(texts)))
    assert len(decoded) == len(texts)
    assert decoded[-2].startswith("A dog") and "runs." in decoded[-2]


def test_broken_bytes_are_read_as_replacement_characters(any_tokenizer):
    broken = [b"A dog \xff\xfe runs. \xc3", b"\x80", b"\xe4A dog"]
    replaced = [text.decode("utf-8", "replace") for text in broken]
    assert any_tokenizer.encode(broken).to_list() == any_tokenizer.encode(replaced).to_list()


def test_empty_batch(any_tokenizer):
    assert any_tokenizer.encode([]).to_list() == []
    assert strings(any_tokenizer.decode(any_tokenizer.encode([]))) == []
    assert strings(any_tokenizer.decode(tf.zeros([0, 5], tf.int32))) == []
    ids, truncated = any_tokenizer.encode_padded([], max_tokens=7)
    assert ids.shape == (0, 1) and truncated.shape == (0,)


def test_decode_stops_at_the_end_and_drops_specials(any_tokenizer):
    (pieces,) = any_tokenizer.encode(["A dog runs."]).to_list()
    row = [START_ID, *pieces[:2], PAD_ID, *pieces[2:], END_ID, 7, END_ID, 9]
    assert strings(any_tokenizer.decode([row])) == ["A dog runs."]
    assert strings(any_tokenizer.decode(tf.ragged.constant([row, []]))) == ["A dog runs.", ""]
    assert strings(any_tokenizer.decode(np.array([row], "int64"))) == ["A dog runs."]


def test_ids_outside_the_vocabulary_read_as_unknown(any_tokenizer):
    size = any_tokenizer.vocab_size
    strays = tf.constant([[size, -1, 2**31 - 1], [size + 1, -(2**31), 10**6]])
    unknown = strings(any_tokenizer.decode([[UNKNOWN_ID] * 3]))
    assert strings(any_tokenizer.decode(strays)) == unknown * 2
    assert strings(any_tokenizer.decode(tf.constant([[2**40, 2**32 + 5, -1]], tf.int64))) == unknown
    assert strings(any_tokenizer.decode([[size - 1]])) != strings(any_tokenizer.decode([[size]]))


def test_encode_padded_ends_each_row_and_flags_what_it_cuts(any_tokenizer):
    texts = ["The dog sees the cat.", "", "A dog."]
    pieces = any_tokenizer.encode(texts).to_list()
    for most in (len(pieces[0]), len(pieces[0]) - 1, len(pieces[2]), 1):
        ids, truncated = any_tokenizer.encode_padded(texts, most)
        rows = [row[:most] + [END_ID] for row in pieces]
        width = max(map(len, rows))
        assert ids.numpy().tolist() == [row + [PAD_ID] * (width - len(row)) for row in rows]
        assert truncated.numpy().tolist() == [len(row) > most for row in pieces]
        assert ids.dtype == tf.int32


def test_everything_runs_in_a_graph_of_unknown_size(any_tokenizer, sentences):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def round_trip(texts):
        ids, truncated = any_tokenizer.encode_padded(texts, 20)
        return (
            any_tokenizer.decode(ids),
            any_tokenizer.decode(any_tokenizer.encode(texts)),
            truncated,
        )

    for texts in (sentences[:7], ["", "A dog runs."], []):
        cut, whole, truncated = round_trip(tf.constant(texts, tf.string, [len(texts)]))
        assert strings(whole) == texts
        assert all(
            flag or a == b for a, b, flag in zip(strings(cut), texts, truncated, strict=True)
        )


def test_a_text_does_not_depend_on_its_neighbours(any_tokenizer, sentences):
    together = any_tokenizer.encode(sentences).to_list()
    assert together == [any_tokenizer.encode([text]).to_list()[0] for text in sentences]


@pytest.mark.parametrize("texts", ["A dog runs.", [["A dog"], ["runs."]]])
def test_texts_that_are_no_list_are_refused(any_tokenizer, texts):
    with pytest.raises(ValueError, match="Received: shape="):
        any_tokenizer.encode(texts)


def test_saved_and_loaded_is_equal(any_tokenizer, sentences, tmp_path):
    any_tokenizer.save(tmp_path / "run", "source")
    loaded = tokenizers.load(tmp_path / "run", "source")
    assert type(loaded) is type(any_tokenizer)
    assert loaded.pieces == any_tokenizer.pieces
    assert loaded.serialized == any_tokenizer.serialized
    texts = sentences + ODD_TEXTS
    assert loaded.encode(texts).to_list() == any_tokenizer.encode(texts).to_list()
    assert len(list((tmp_path / "run").iterdir())) == 1  # no temporary file is left


def test_an_export_carries_the_tokenizer(any_tokenizer, sentences, tmp_path):
    module = tf.Module()
    module.tokenizer = any_tokenizer.graph
    module.encode = tf.function(
        lambda texts: any_tokenizer.encode_padded(texts, 30)[0],
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    module.decode = tf.function(
        any_tokenizer.decode,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    ids = loaded.encode(tf.constant(sentences[:5]))
    assert (
        ids.numpy().tolist() == any_tokenizer.encode_padded(sentences[:5], 30)[0].numpy().tolist()
    )
    assert strings(loaded.decode(ids)) == sentences[:5]


@pytest.mark.parametrize("texts", [[], ["", "  "]])
@pytest.mark.parametrize("kind", ["SentencePieceTokenizer", "WordPieceTokenizer"])
def test_no_text_to_learn_from(kind, texts):
    with pytest.raises(ValueError, match="no text"):
        getattr(tokenizers, kind).train(texts, 100)


@pytest.mark.parametrize("kind", ["SentencePieceTokenizer", "WordPieceTokenizer"])
def test_a_vocabulary_that_does_not_fit_the_corpus(kind, sentences):
    train = getattr(tokenizers, kind).train
    with pytest.raises(ValueError, match="too large.*at most") as error:
        train(sentences, 50_000)
    assert "vocab_size=50000" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ValueError, match="too small.*at least"):
        train(sentences, 10)


def test_an_id_that_no_piece_has_reads_as_unknown(tokenizer):
    last = tokenizer.vocab_size - 1
    pieces = [tokenizer.pieces[i] for i in (4, last, UNKNOWN_ID, UNKNOWN_ID)]
    assert tokenizer.to_pieces([4, last, last + 1, 10_000]) == pieces


def test_what_can_be_cut_off_is_not_encoded(tokenizer):
    text = "A dog runs. " * 2000 + "世" * 1_000_000  # SentencePiece would take minutes
    ids, truncated = tokenizer.encode_padded([text, "A dog runs."], 20)
    assert ids.shape == (2, 21) and truncated.numpy().tolist() == [True, False]
    np.testing.assert_array_equal(ids[0], [*tokenizer.encode(["A dog runs. " * 9])[0][:20], 3])
    _, truncated = tokenizer.encode_padded([" " * 100_000 + "A"], 5)  # what is behind is not seen
    assert truncated.numpy().tolist() == [True]


# === Files ===


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
