import os
import pickle
import re
import runpy
import sys
import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers import SentencePieceTokenizer, sentence_piece_model
from keras_transformer.tokenizers.sentence_piece_model import parsed
from tests.tokenizers.conftest import foreign_model

LAYOUTS = {
    "SentencePiece's own": {"model_type": "bpe"},  # unknown 0, start 1, end 2, no padding
    "T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "end in front, other names": {
        "pad_id": 3,
        "eos_id": 0,
        "bos_id": 1,
        "unk_id": 2,
        "eos_piece": "[STOP]",
        "unk_piece": "[?]",
    },
    "bytes and symbols": {
        "model_type": "bpe",
        "vocab_size": 400,
        "byte_fallback": True,
        "user_defined_symbols": "<de>,<en>",
        "control_symbols": "[MASK]",
    },
}


def test_special_pieces_have_their_places(sentence_piece):
    names = {PAD_ID: "<pad>", UNKNOWN_ID: "<unk>", START_ID: "<s>", END_ID: "</s>"}
    assert {place: sentence_piece.pieces[place] for place in names} == names


def test_the_vocabulary_has_the_size_asked_for(trained):
    assert trained["bpe"].vocab_size == 150
    assert trained["unigram"].vocab_size == 130


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_training_twice_gives_the_same_bytes(sentences, model_type):
    first, second = (SentencePieceTokenizer.train(sentences, 90, model_type) for _ in range(2))
    assert first.serialized == second.serialized


def test_unknown_model_type(sentences):
    with pytest.raises(ValueError, match="Received: model_type='words'"):
        SentencePieceTokenizer.train(sentences, 90, "words")


def test_text_comes_back_up_to_normalization(sentence_piece):
    text = "  Ｔｈｅ   cat ﬁnds\u00a0a\u3000child " + unicodedata.normalize("NFD", "für") + "\t"
    decoded = sentence_piece.decode(sentence_piece.encode([text])).numpy()[0].decode()
    assert decoded == "The cat finds a child für"
    assert decoded == " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_foreign_model_splits_as_it_did(sentences, layout):
    model = foreign_model(sentences, **LAYOUTS[layout])
    original = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours = SentencePieceTokenizer(model)
    texts = [*sentences, "<de> Ein 😀 Hund <s> [MASK] </s>", "  Ｆull width  ", ""]
    for text in texts:
        (ids,) = ours.encode([text]).to_list()
        expected = original.encode(text)
        assert [ours.pieces[i] for i in ids] == [original.id_to_piece(i) for i in expected]
        assert ours.decode([ids]).numpy()[0].decode() == original.decode(expected)
    assert set(ours.pieces) >= {original.id_to_piece(i) for i in range(len(original))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_foreign_model_gets_our_special_ids(sentences, layout):
    ours = SentencePieceTokenizer(foreign_model(sentences, **LAYOUTS[layout]))
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours.serialized)
    places = processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()
    assert places == (PAD_ID, UNKNOWN_ID, START_ID, END_ID)
    assert len(ours.pieces) == len(set(ours.pieces)) == ours.vocab_size


def test_single_byte_pieces_decode_to_valid_text(sentences):
    ours = SentencePieceTokenizer(foreign_model(sentences, **LAYOUTS["bytes and symbols"]))
    stray_byte = ours.pieces.index("<0xFF>")
    assert ours.decode([[stray_byte]]).numpy()[0].decode() == "\ufffd"


@pytest.mark.parametrize("content", [b"", b"no model\n" * 20, b"\n\x07\n\x05<unk>"])
def test_bytes_that_are_no_model(content):
    with pytest.raises(ValueError, match="Expected a SentencePiece model"):
        SentencePieceTokenizer(content)


def test_long_lines_are_learned_from_too(sentences):
    paragraph = " ".join(sentences * 40) + " Ω"
    assert len(paragraph.encode()) > 5000
    tokenizer = SentencePieceTokenizer.train([*sentences, paragraph], 150)
    (row,) = tokenizer.encode(["Ω"]).to_list()
    assert UNKNOWN_ID not in row


def drawn(tokenizer, *arguments):
    return list(tokenizer.encode_sampled(*arguments))


def test_sampled_segmentations(sentence_piece, sentences):
    plain = sentence_piece.encode(sentences).to_list()
    first, second = (drawn(sentence_piece, sentences, 0.3, seed) for seed in (1, 2))
    assert first != second and first != plain
    for rows in (first, second):
        decoded = sentence_piece.decode([row + [END_ID] * (200 - len(row)) for row in rows])
        assert [text.decode() for text in decoded.numpy()] == sentences


def test_a_draw_depends_on_seed_and_place_alone(sentence_piece, sentences):
    """Not on the other sentences, what was drawn before, or the thread."""
    whole = drawn(sentence_piece, sentences, 0.3, 1)
    others = ["a cat"] * (len(sentences) - 1)
    another = SentencePieceTokenizer(sentence_piece.serialized)
    assert drawn(another, [*others, sentences[-1]], 0.3, 1)[-1] == whole[-1]
    with ThreadPoolExecutor() as pool:
        assert pool.submit(drawn, another, sentences, 0.3, 1).result() == whole


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_segmentation_that_is_most_probable_is_that_of_the_library(sentences, layout):
    ours = SentencePieceTokenizer(foreign_model(sentences, **LAYOUTS[layout]))
    texts = [*sentences, "<de> Ein 😀😀 Hund", "  Ｆull \ud800 width  ", "", "😀 <en><de>x 10€"]
    almost_plain = dict.fromkeys(["SentencePiece's own", "bytes and symbols"], 1e-12)
    if sampling := almost_plain.get(layout):  # BPE
        assert drawn(ours, texts, sampling, 1) == ours.encode(texts).to_list()
    else:
        probable = [
            Counter(map(tuple, drawn(ours, [text] * 60, 1.0, 1))).most_common(1)[0][0]
            for text in ("A dog", "ein 😀😀")
        ]
        assert [*map(list, probable)] == ours.encode(["A dog", "ein 😀😀"]).to_list()


def test_bpe_dropout_is_that_of_the_paper(trained):
    """Provilkov et al., 2020, algorithm 1: all that may happen to a word, with its probability."""
    scores = {p.piece: p.score for p in parsed(trained["bpe"].serialized).pieces if p.score < 0}

    def outcomes(pieces, p):
        merges = [
            (-scores[pieces[i] + pieces[i + 1]], i)
            for i in range(len(pieces) - 1)
            if pieces[i] + pieces[i + 1] in scores
        ]
        found = Counter({pieces: p ** len(merges)})
        for num_dropped, (_, i) in enumerate(sorted(merges)):
            merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
            for outcome, probability in outcomes(merged, p).items():
                found[outcome] += p**num_dropped * (1 - p) * probability
        return found

    num_draws = 3000
    for word, p in (("▁children", 0.1), ("▁playing", 0.5)):
        expected = outcomes(tuple(word), p)
        rows = drawn(trained["bpe"], [word[1:]] * num_draws, p, 1)
        counts = Counter(tuple(trained["bpe"].to_pieces(row)) for row in rows)
        assert sum(expected.values()) == pytest.approx(1.0) and len(expected) > 5
        assert counts.keys() <= expected.keys()
        for outcome, probability in expected.items():
            deviation = (num_draws * probability * (1 - probability)) ** 0.5
            assert abs(counts[outcome] - num_draws * probability) <= 4 * deviation + 1


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_unigram_tokens_are_drawn_by_probability(trained, alpha):
    """Kudo, 2018, section 3.3, against all segmentations of a word that the library lists."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained["unigram"].serialized)
    word = "children"
    listed = {tuple(row) for row in processor.nbest_encode(word, nbest_size=500)}
    weights = {row: np.exp(alpha * sum(map(processor.get_score, row))) for row in listed}
    num_draws = 3000
    counts = Counter(map(tuple, drawn(trained["unigram"], [word] * num_draws, alpha, 1)))
    assert len(listed) > 3 and counts.keys() <= listed
    for row, weight in weights.items():
        probability = weight / sum(weights.values())
        deviation = (num_draws * probability * (1 - probability)) ** 0.5
        assert abs(counts[row] - num_draws * probability) <= 4 * deviation + 1


def test_a_model_with_one_segmentation_is_not_sampled(sentences):
    words = SentencePieceTokenizer(foreign_model(sentences, model_type="char", vocab_size=50))
    with pytest.raises(ValueError, match="Received: a SentencePiece model of the type CHAR"):
        words.encode_sampled([], 0.1, 1)


def test_dropping_every_merge_leaves_characters(trained):
    (row,) = drawn(trained["bpe"], ["A dog runs."], 1.0, 1)
    assert trained["bpe"].to_pieces(row) == list("▁A▁dog▁runs.")


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_user_symbols_stay_whole(sentences, model_type):
    tags = [">>de<<", ">>fr<<"]
    tokenizer = SentencePieceTokenizer.train(sentences, 130, model_type, user_symbols=tags)
    assert tokenizer.vocab_size == 130
    texts = [">>de<< A dog runs.", "A dog >>fr<< runs.", ">>fr<<A dog."]
    (ids,) = tokenizer.encode(texts[:1]).to_list()
    plain = tokenizer.encode(["A dog runs."]).to_list()[0]
    assert tokenizer.to_pieces(ids[:2]) == ["▁", ">>de<<"] and ids[2:] == plain
    assert [text.decode() for text in tokenizer.decode(tokenizer.encode(texts)).numpy()] == texts
    sampled = tokenizer.encode_sampled(texts, 0.9, seed=1)  # drops nearly every merge
    for row, tag in zip(sampled, [">>de<<", ">>fr<<", ">>fr<<"], strict=True):
        assert tag in tokenizer.to_pieces(row)
    again = SentencePieceTokenizer(tokenizer.serialized)
    assert again.encode(texts).to_list() == tokenizer.encode(texts).to_list()


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_user_symbols_can_be_added(sentences, model_type):
    plain = SentencePieceTokenizer.train(sentences, 130, model_type)
    tokenizer = plain.with_symbols([">>De<<", ">>f<<"])
    assert tokenizer.pieces == [*plain.pieces, ">>De<<", ">>f<<"]
    assert tokenizer.encode(sentences).to_list() == plain.encode(sentences).to_list()
    (ids,) = tokenizer.encode([f">>De<< {sentences[0]}"]).to_list()
    (expected,) = plain.encode([sentences[0]]).to_list()
    assert ids[-len(expected) - 1 :] == [130, *expected]
    (sampled,) = tokenizer.encode_sampled([">>De<< a"], 0.5, 1)
    assert 130 in sampled
    assert type(tokenizer)(tokenizer.serialized).pieces == tokenizer.pieces
    with pytest.raises(ValueError, match="Expected new symbols .* Received: >>De<<. Choose"):
        tokenizer.with_symbols([">>De<<"])


@pytest.mark.parametrize("symbols", [["a b"], [""], ["<s>"], ["#", "#"], ["▁de"]])
def test_user_symbols_that_are_no_words(sentences, symbols):
    with pytest.raises(ValueError, match=re.escape(f"Received: user_symbols={symbols}. Choose")):
        SentencePieceTokenizer.train(sentences, 130, user_symbols=symbols)


def test_user_symbols_are_a_list(sentences):
    with pytest.raises(ValueError, match="Received: user_symbols='<de>'. Put it in a list."):
        SentencePieceTokenizer.train(sentences, 130, user_symbols="<de>")


@pytest.mark.parametrize("sampling", [0.0, -0.1, 1.5])
def test_sampling_out_of_range(sentence_piece, sampling):
    with pytest.raises(ValueError, match=f"Received: sampling={sampling}"):
        sentence_piece.encode_sampled(["A dog."], sampling, seed=1)


def test_setting_a_seed_leaves_tokenizers_alive(tokenizer):
    import keras
    import tensorflow as tf

    in_graph = tf.function(tokenizer.encode, [tf.TensorSpec([None], tf.string)])
    before = in_graph(["A dog runs."])
    keras.utils.set_random_seed(7)
    for encode in (tokenizer.encode, in_graph):
        assert encode(["A dog runs."]).to_list() == before.to_list()
    assert tokenizer.decode(before).numpy().tolist() == [b"A dog runs."]


def test_a_protobuf_that_is_too_old_is_told_with_the_remedy(monkeypatch):
    monkeypatch.delattr(sentencepiece, "sentencepiece_model_pb2")
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(ImportError, match='pip install "sentencepiece<0.2.3"'):
        runpy.run_path(sentence_piece_model.__file__)


PERSIAN = "می\u200cروم"  # with the zero-width non-joiner that its spelling needs
FORMS = ["10½", "x²", "ＡＢ", "กำ", "A\u0301"]
NORMALIZED = {
    "nmt_nfkc": [PERSIAN, "101⁄2", "x2", "AB", "ก\u0e4d\u0e32", "Á"],
    "nfkc": [PERSIAN, "101⁄2", "x2", "AB", "ก\u0e4d\u0e32", "Á"],
    "nmt_nfkc_cf": [PERSIAN, "101⁄2", "x2", "ab", "ก\u0e4d\u0e32", "á"],
    "nfkc_cf": [PERSIAN, "101⁄2", "x2", "ab", "ก\u0e4d\u0e32", "á"],
    "identity": [PERSIAN, *FORMS],
    "file": [PERSIAN, "10.5", *FORMS[1:]],
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_normalization_is_the_one_that_is_asked_for(name, sentence_pairs, tmp_path):
    rules = name
    if name == "file":
        rules = str(tmp_path / "rules.tsv")
        (tmp_path / "rules.tsv").write_text("BD\t2E 35\t# a half\n")
    texts = [PERSIAN, *FORMS]
    sentences = [*texts, *(source for source, _ in sentence_pairs)]
    tokenizer = SentencePieceTokenizer.train(sentences, 100, normalization=rules)
    for made in (tokenizer, pickle.loads(pickle.dumps(tokenizer))):
        decoded = made.decode(made.encode([f" {text}  {text}" for text in texts]))
        assert [text.decode() for text in decoded.numpy()] == [f"{x} {x}" for x in NORMALIZED[name]]


@pytest.mark.parametrize("normalization", ["nfd", "", "missing.tsv", "pipe"])
def test_a_normalization_that_is_neither_a_name_nor_a_file(normalization, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(ValueError, match=f"Received: normalization='{normalization}'"):
        SentencePieceTokenizer.train(["a b"], 30, normalization=normalization)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_with_byte_fallback_no_character_is_unknown(model_type, sentences):
    """Unseen characters are bytes, also in a segmentation that is drawn, and come back."""
    texts = ["A dog \U0001f600 runs \u4e16\u754c", "\U0001f468\u200d\U0001f469\u200d\U0001f466"]
    tokenizer = SentencePieceTokenizer.train(sentences, 400, model_type, byte_fallback=True)
    rows = tokenizer.encode(texts).to_list()
    drawn = list(tokenizer.encode_sampled(texts, 0.3, 1))
    for ids in (rows, drawn):
        assert UNKNOWN_ID not in {i for row in ids for i in row}
        decoded = tokenizer.decode(tf.ragged.constant(ids)).numpy()
        assert [text.decode() for text in decoded] == texts
        for row, text in zip(ids, texts, strict=True):
            assert b"".join(tokenizer.surfaces[i] for i in row) == f" {text}".encode()
