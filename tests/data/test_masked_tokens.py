"""Masked tokens and sentence pairs: what is chosen, what is shown, and how often."""

import numpy as np
import pytest

from keras_transformer.data import MaskedTokenBatches, mask_id, mask_tokens
from keras_transformer.data.masked_tokens import _spans

VOCAB_SIZE, MASK = 50, 49


@pytest.fixture
def masked():
    """Many rows of 43 tokens and padding, and what `mask_tokens` makes of them."""
    rng = np.random.default_rng(1)
    ids = rng.integers(4, 49, size=(500, 43)).astype("int32")
    ids[:, 0], ids[:, 20], ids[:, 7] = 2, 3, 1
    ids[:250, 31:] = 0
    return ids, *mask_tokens(ids, VOCAB_SIZE, MASK, rng)


def test_a_share_of_each_row_is_chosen_without_repetition(masked):
    ids, _, positions, labels = masked
    assert positions.shape == labels.shape == (500, 6)  # 0.15 * 43
    assert (labels != 0).sum(axis=1).tolist() == [4] * 250 + [6] * 250  # 0.15 * 28 and * 40
    for row, places, found in zip(ids, positions, labels, strict=True):
        places, found = places[found != 0], found[found != 0]
        assert len(set(places)) == len(places)
        assert row[places].tolist() == found.tolist()
    counts = np.bincount(positions[labels != 0], minlength=43)
    assert counts[[0, 20, 7]].tolist() == [0, 0, 0]  # special tokens
    assert counts[[1, 19, 30]].min() > 40  # any place may be chosen


def test_the_chosen_are_masked_replaced_or_kept(masked):
    ids, masked_ids, positions, labels = masked
    chosen = np.zeros(ids.shape, bool)
    rows, _ = np.nonzero(labels)
    chosen[rows, positions[labels != 0]] = True
    np.testing.assert_array_equal(masked_ids[~chosen], ids[~chosen])
    shown, there = masked_ids[chosen], ids[chosen]
    assert len(shown) == 2500
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.03)
    assert np.mean(shown == there) == pytest.approx(0.1, abs=0.03)
    random = shown[(shown != MASK) & (shown != there)]
    assert set(random) == set(range(4, 49))


def test_random_tokens_leave_out_a_mask_token_within_the_vocabulary():
    ids = np.full((400, 20), 5)
    masked_ids, *_ = mask_tokens(ids, 12, 8, np.random.default_rng(1), rate=1.0)
    assert set(masked_ids[masked_ids != 8]) == {4, 5, 6, 7, 9, 10, 11}


@pytest.mark.parametrize("mask_id", [1, 12])
def test_a_mask_token_beside_the_tokens_of_text_leaves_all_of_them(mask_id):
    ids = np.full((400, 20), 5)
    masked_ids, *_ = mask_tokens(ids, 12, mask_id, np.random.default_rng(1), rate=1.0)
    assert set(masked_ids[masked_ids != mask_id]) == set(range(4, 12))


def test_short_rows():
    """At least one token of a row is chosen, if there is one to choose."""
    ids = np.array([[2, 9, 3, 0], [2, 3, 0, 0], [0, 0, 0, 0], [2, MASK, 1, 3]])
    _, positions, labels = mask_tokens(ids, VOCAB_SIZE, MASK, np.random.default_rng(1))
    assert positions.tolist() == [[1], [0], [0], [0]]
    assert labels.tolist() == [[9], [0], [0], [0]]


@pytest.fixture(scope="module")
def documents(sentence_pairs):
    """Two documents, one for each language."""
    return [list(sentences) for sentences in zip(*sentence_pairs, strict=True)]


def test_the_mask_token(tokenizer):
    assert mask_id(tokenizer) == tokenizer.vocab_size

    class WithMask:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]

    assert mask_id(WithMask) == 4


def original(batch):
    """Returns the ids of a batch before they were masked."""
    inputs, labels, _ = batch
    labels = labels["masked_tokens"] if isinstance(labels, dict) else labels
    ids = inputs["ids"].copy()
    rows, _ = np.nonzero(labels)
    ids[rows, inputs["masked_positions"][labels != 0]] = labels[labels != 0]
    return ids


def tokens_of(rows):
    return sorted(int(token) for row in rows for token in row if token > 3)


def test_an_epoch_has_the_whole_text_once(documents, tokenizer):
    batches = MaskedTokenBatches(documents, tokenizer, max_length=24, batch_size=5)
    epoch = list(batches.arrays(repeat=False))
    assert len(epoch) == len(batches) == -(-batches.num_rows // 5)
    rows = np.concatenate([original(batch) for batch in epoch])
    expected = [ids for document in documents for ids in tokenizer.encode(document).to_list()]
    assert tokens_of(rows) == tokens_of(expected)
    for row in rows:
        (length,) = np.nonzero(row == 3)[0] + 1  # one separator, the last token
        assert row[0] == 2 and not row[length:].any() and (row[:length] != 0).all()
    for inputs, labels, weights in epoch:
        assert inputs.keys() == {"ids", "masked_positions"}
        assert weights.sum() == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_array_equal(weights > 0, labels != 0)
    assert batches.vocab_size == tokenizer.vocab_size + 1
    assert {batches.mask_id} < set(np.concatenate([x["ids"].ravel() for x, *_ in epoch]))


def same(batch, other):
    return all(np.array_equal(batch[0][name], other[0][name]) for name in batch[0])


def test_epochs_differ_and_can_be_repeated(documents, tokenizer):
    arguments = dict(max_length=24, batch_size=100)
    batches = MaskedTokenBatches(documents, tokenizer, **arguments)
    stream = batches.arrays()
    first, second = next(stream), next(stream)
    assert not same(first, second)
    assert tokens_of(original(first)) == tokens_of(original(second))
    assert same(next(batches.arrays(epoch=1)), second)
    assert same(next(MaskedTokenBatches(documents, tokenizer, **arguments).arrays()), first)
    assert not same(
        next(MaskedTokenBatches(documents, tokenizer, **arguments, seed=2).arrays()), first
    )
    validation = MaskedTokenBatches(documents, tokenizer, **arguments, shuffle=False).arrays()
    assert same(next(validation), next(validation))


class Numbers:
    """A tokenizer of texts such as "17 18 19"."""

    pieces = range(300)
    vocab_size = 300

    def encode_on_host(self, texts):
        return [list(map(int, text.split())) for text in texts]


def test_half_of_the_pairs_are_true():
    """Three documents count from 10, from 110 and from 210, in sentences of two or three."""
    documents = [
        [" ".join(str(number + i) for i in range(2 + number % 2)) for number in range(n, n + 80, 3)]
        for n in (10, 110, 210)
    ]
    batches = MaskedTokenBatches(
        documents, Numbers(), max_length=17, batch_size=7, next_sentence=True
    )
    labels = []
    for number in range(20):
        for batch in batches.arrays(repeat=False, epoch=number):
            inputs, answers, weights = batch
            assert len(weights["next_sentence"]) == len(answers["next_sentence"])
            for each in weights.values():
                assert each.sum() == pytest.approx(1.0, abs=1e-5)
            labels += answers["next_sentence"].tolist()
            for row, segments, is_random in zip(
                original(batch), inputs["segment_ids"], answers["next_sentence"], strict=True
            ):
                middle, last = np.nonzero(row == 3)[0]
                assert segments.tolist() == [int(middle < i <= last) for i in range(len(segments))]
                first, second = row[1:middle], row[middle + 1 : last]
                assert 4 <= len(first) <= 7 and 4 <= len(second) <= 7
                follows = 0 < second[0] - first[-1] <= 2
                same_document = first[0] // 100 == second[0] // 100
                assert (follows, same_document) == (not is_random, not is_random)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.07)


def test_spans():
    sentences = [np.array(each, "int32") for each in ([1, 2], [3], [4, 5, 6], [7] * 9, [], [8])]
    assert [span.tolist() for span in _spans(sentences, 4)] == [
        [1, 2, 3],
        [4, 5, 6],
        [7] * 4,
        [7] * 4,
        [7, 8],
    ]
    assert _spans([], 4) == [] == _spans([np.zeros(0)], 4)


def test_one_document_gives_random_sentences_of_its_own(documents, tokenizer):
    batches = MaskedTokenBatches(documents[:1], tokenizer, max_length=40, next_sentence=True)
    rng = np.random.default_rng(1)
    drawn = {batches._other_row(2, rng) for _ in range(200)}
    assert drawn == set(range(batches.num_rows)) - {2}


@pytest.mark.parametrize("next_sentence", [False, True])
def test_as_a_dataset(next_sentence, documents, tokenizer):
    batches = MaskedTokenBatches(documents, tokenizer, 40, 4, next_sentence)
    dataset = batches.dataset(repeat=False, epoch=3)
    assert int(dataset.cardinality()) == len(batches)
    for found, expected in zip(dataset, batches.arrays(False, 3), strict=True):
        for x, y in zip(_leaves(found), _leaves(expected), strict=True):
            np.testing.assert_array_equal(x, y)


def _leaves(batch):
    for part in batch:
        yield from (part[name] for name in sorted(part)) if isinstance(part, dict) else [part]


@pytest.mark.filterwarnings("error:Gradients do not exist")
@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_model_fits_on_them(next_sentence, documents, tokenizer):
    import keras

    from keras_transformer.models import Bert, BertPretraining
    from keras_transformer.training import TokenAccuracy, TokenCrossEntropy

    keras.utils.set_random_seed(1)
    batches = MaskedTokenBatches(documents, tokenizer, 40, 16, next_sentence)
    bert = Bert(batches.vocab_size, 1, 16, 32, 2, max_length=40, pooler=next_sentence)
    model = BertPretraining(bert, next_sentence)
    metrics = [TokenAccuracy()]
    if next_sentence:
        metrics = {"masked_tokens": metrics, "next_sentence": ["accuracy"]}
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, TokenCrossEntropy(0.0), metrics=metrics, run_eagerly=True)
    options = dict(steps_per_epoch=len(batches), epochs=2, verbose=0)
    history = model.fit(batches.dataset(), **options).history
    assert history["loss"][0] == pytest.approx(5.0 + 0.7 * next_sentence, abs=1.0)  # log(151)
    assert history["loss"][1] < history["loss"][0]


def test_bad_input(documents, tokenizer):
    for arguments in (dict(max_length=2), dict(max_length=4, next_sentence=True), dict(rate=0.0)):
        with pytest.raises(ValueError, match="Expected a max_length for .* Received: max_length="):
            MaskedTokenBatches(documents, tokenizer, **arguments)
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        MaskedTokenBatches(documents, tokenizer, batch_size=0)
    for nothing in ([], [[]], [[""], [" "]]):
        with pytest.raises(ValueError, match="at least 1 rows of text"):
            MaskedTokenBatches(nothing, tokenizer)
    for text in ("A dog runs.", documents[0]):  # a text, and the sentences of one document
        with pytest.raises(ValueError, match=r"Received: documents\[0\]='A"):
            MaskedTokenBatches(text, tokenizer)
    for seed in (-1, None, 0.5):
        with pytest.raises(ValueError, match=f"Received: seed={seed}"):
            MaskedTokenBatches(documents, tokenizer, seed=seed)


@pytest.mark.parametrize(
    "changed", [{"ids": [5, 6]}, {"rate": 0.0}, {"rate": 2.0}, {"vocab_size": 4}, {"vocab_size": 5}]
)
def test_what_cannot_be_masked_is_refused(changed):
    arguments = {"ids": [[2, 5, 6, 3]], "vocab_size": 9, "mask_id": 4, "rng": 1, **changed}
    with pytest.raises(ValueError, match=r"Expected ids \(B, T\), a rate .* Received: ids.shape="):
        mask_tokens(**arguments)


def test_documents_may_be_generators(documents, tokenizer):
    plain = MaskedTokenBatches(documents, tokenizer, max_length=24)
    lazy = MaskedTokenBatches((iter(each) for each in documents), tokenizer, max_length=24)
    assert same(next(plain.arrays()), next(lazy.arrays()))
    with pytest.raises(ValueError, match="at least 2 rows .* 2 documents with 0"):
        MaskedTokenBatches([["A dog."], ["A cat."]], tokenizer, next_sentence=True)
