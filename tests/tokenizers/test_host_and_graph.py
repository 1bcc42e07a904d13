"""The host side of a tokenizer and its operations of TensorFlow give the same ids and texts."""

import copy
import os
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import tokenizers
from keras_transformer.files.text import iterate_lines
from keras_transformer.special_ids import END_ID
from keras_transformer.tokenizers import (
    MarianTokenizer,
    SentencePieceTokenizer,
    UncasedWordPieceTokenizer,
)

NASTY = [
    *("", " ", "\t\n\u3000", "\x00", "a\x00b", "\ufeffA dog", "A\u00adB c\u200cd", "\ue000 a"),
    *("😀 👩‍👩‍👧 🇩🇪 👍🏽", "Ｆｕｌｌ ½ ² ﬁ ㎏", "e\u0301 é Å \u212b", "Σίσυφος ΟΔΟΣ", "İI ıi ẞß"),
    *("世界, 世 界", "한국어 \u1112\u1161\u11ab", "مرحبا می‌خواهم", "กำ น้ำ", "a\u2028b\x85c\x1cd"),
    *(
        "<s> </s> <pad> <unk> [PAD] [UNK] [CLS]",
        ">>de<< A dog",
        " >>de<<",
        ">>fr<< x",
        "a >>de<< b",
    ),
    *("<new>A dog<new><new> x", "▁ ▁▁a▁", "don't (50%) [x] {y} -- ... ?!", "half \ud83d pair"),
    *("a" * 101, "x" * 5000, "世" * 400, "A dog runs. " * 300, "\ufffd", "\U0010fffe \U000e0001"),
]
BROKEN = [b"A dog \xff\xfe runs. \xc3", b"\x80", b"\xe4A dog", b"\xf0\x9f\x98", b"\xed\xa0\x80 a"]


@pytest.fixture(scope="module")
def various(trained):
    """Tokenizers of each class, with what each can have beside its tokens."""
    plain = trained["bpe"]
    pieces = [*plain.pieces, ">>de<<", "<new>", "世"]
    lower = [piece.lower() for piece in trained["wordpiece"].pieces[4:]]
    return {
        **trained,
        "uncased": UncasedWordPieceTokenizer("\n".join(["[UNK]", *lower, "ᄒ"]).encode()),
        "bytes": SentencePieceTokenizer.train(["A dog runs."] * 9, 280, byte_fallback=True),
        "symbols": plain.with_symbols([">>de<<", "<new>"]),
        "marian": MarianTokenizer.from_parts(pieces, plain.serialized),
        "added": MarianTokenizer.from_parts(pieces, plain.serialized, {"<new>": True, "世": False}),
    }


def check(tokenizer, texts):
    """Compares both sides on texts, and on all the limits at which some are cut."""
    rows = tokenizer.encode_on_host(texts)
    assert rows == tokenizer.encode(texts).to_list()
    for most in (1, 5, 40):
        rows, truncated = tokenizer.encode_truncated_on_host(texts, most)
        ids, in_graph = tokenizer.encode_truncated(texts, most)
        assert rows == ids.to_list() and truncated == in_graph.numpy().tolist()
        is_copied, copies = tokenizer.copies(texts, ids)
        assert tokenizer.copies_on_host(texts, rows) == (
            is_copied.numpy().tolist(),
            [copy.decode() for copy in copies.numpy()],
        )
        decoded = [text.decode() for text in tokenizer.decode(ids).numpy()]
        assert tokenizer.decode_on_host(rows) == decoded


KINDS = "bpe", "unigram", "wordpiece", "uncased", "bytes", "symbols", "marian", "added"


@pytest.mark.parametrize("kind", KINDS)
def test_texts_have_the_same_ids(kind, various, sentences):
    check(various[kind], [*NASTY, *sentences[:20], *BROKEN])


@pytest.mark.parametrize("kind", KINDS)
def test_random_texts_have_the_same_ids(kind, various):
    """Mixtures of characters from all of Unicode's first planes and of what is nasty."""
    draw = random.Random(1)
    letters = [
        chr(i) for i in (*range(0x3100), *range(0xFE00, 0x10000)) if not 0xD800 <= i < 0xE000
    ]
    texts = [
        "".join(
            draw.choice((draw.choice(letters), draw.choice("the dog ei "), draw.choice(NASTY)[:9]))
            for _ in range(draw.randrange(30))
        )
        for _ in range(100)
    ]
    check(various[kind], texts)


@pytest.mark.parametrize("kind", KINDS)
def test_any_ids_have_the_same_text(kind, various):
    tokenizer = various[kind]
    ids = np.random.default_rng(1).integers(-2, tokenizer.vocab_size + 2, (300, 12), "int32")
    ids[:, :4] = np.maximum(ids[:, :4], END_ID + 1)
    decoded = [text.decode() for text in tokenizer.decode(ids).numpy()]
    assert tokenizer.decode_on_host(ids) == decoded
    assert tokenizer.decode_on_host(ids.tolist()) == decoded


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "added"])
def test_a_tokenizer_may_be_used_first_while_a_graph_is_traced(kind, various):
    tokenizer = copy.deepcopy(various[kind])
    dataset = tf.data.Dataset.from_tensors(["A dog", ""])
    (rows,) = dataset.map(tokenizer.encode)
    assert rows.to_list() == tokenizer.encode(["A dog", ""]).to_list()


@pytest.mark.parametrize("kind", KINDS)
def test_no_texts_and_wrong_ones(kind, various):
    tokenizer = various[kind]
    assert tokenizer.encode_on_host([]) == tokenizer.decode_on_host([]) == []
    assert tokenizer.encode_truncated_on_host([], 5) == tokenizer.copies_on_host([], []) == ([], [])
    texts = np.array([b"A dog", b"runs"], object)
    assert tokenizer.encode_on_host(texts) == tokenizer.encode(texts).to_list()
    for wrong in ("A dog runs.", [["A dog"], ["runs."]], [None]):
        with pytest.raises(ValueError, match=r"Expected texts of shape \(B,\). Received: "):
            tokenizer.encode_on_host(wrong)


DATA = pathlib.Path(os.environ.get("KERAS_TRANSFORMER_DATA", "missing"))


@pytest.mark.skipif(not DATA.is_dir(), reason="KERAS_TRANSFORMER_DATA has no real text")
@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_real_text_has_the_same_ids(kind):
    paths = [*DATA.glob("multi30k/test_2016_flickr.*"), *DATA.glob("tatoeba/test.*")]
    texts = [line for path in sorted(paths) for line in list(iterate_lines(path))[:300]]
    assert len(texts) > 1000, paths
    if kind == "wordpiece":
        letters = sorted(set("".join(texts)) - set(" \n"))
        pieces = ["[UNK]", *letters[::2], *(f"##{x}" for x in letters), "the", "##ing", "der"]
        tokenizer = tokenizers.WordPieceTokenizer("\n".join(pieces).encode())
    else:
        tokenizer = SentencePieceTokenizer.train(texts[::2], 1500, kind)
    check(tokenizer, texts)
