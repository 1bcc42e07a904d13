import itertools
import os
import pathlib
import types

import numpy as np
import pytest

from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.data.parallel import Part
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID
from keras_transformer.tokenizers import SentencePieceTokenizer, WordPieceTokenizer

VARIANTS = {
    "plain": {},
    "static": {"static_shapes": 5},
    "sampled": {"sampling": 0.2},
    "in order": {"shuffle": False},
}


@pytest.fixture(scope="module")
def make(corpus, tokenizer):
    """Batches of at most 150 positions, about 10 an epoch."""

    def make_batches(**options):
        return TranslationBatches(corpus, tokenizer, **{"batch_tokens": 150, **options})

    return make_batches


def as_lists(batches):
    return [
        [np.array(x).tolist() for x in (inputs["source_ids"], inputs["target_ids"], *rest)]
        for inputs, *rest in batches
    ]


def epoch_of(batches, epoch):
    return as_lists(batches.arrays(repeat=False, epoch=epoch))


def texts_of(batches, epoch, tokenizer):
    """The (source, target) pairs of an epoch, decoded, sorted."""
    pairs = []
    for source_ids, _, labels, _ in epoch_of(batches, epoch):
        decoded = [tokenizer.decode(np.array(ids)).numpy() for ids in (source_ids, labels)]
        pairs += [(s.decode(), t.decode()) for s, t in zip(*decoded, strict=True) if s]
    return sorted(pairs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_pair_is_lost_or_doubled(make, tokenizer, sentence_pairs, variant):
    batches = make(**VARIANTS[variant])
    for epoch in (0, 1):
        assert texts_of(batches, epoch, tokenizer) == sorted(sentence_pairs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_elements_are_what_a_model_takes(make, variant):
    batches = make(**VARIANTS[variant])
    for inputs, labels, weights in batches.dataset(repeat=False):
        source_ids, target_ids = inputs["source_ids"].numpy(), inputs["target_ids"].numpy()
        labels, weights = labels.numpy(), weights.numpy()
        assert source_ids.dtype == target_ids.dtype == labels.dtype == np.int32
        assert weights.dtype == np.float32
        assert labels.shape == target_ids.shape == weights.shape
        assert max(source_ids.size, labels.size) <= 150
        for source_row, target_row, label_row in zip(source_ids, target_ids, labels, strict=True):
            source, label = source_row[source_row != PAD_ID], label_row[label_row != PAD_ID]
            if len(label):
                assert source[-1] == label[-1] == END_ID
                assert target_row[: len(label)].tolist() == [START_ID, *label[:-1]]
                assert not target_row[len(label) :].any() and not label_row[len(label) :].any()
            else:
                assert variant == "static" and not source_row.any() and not target_row.any()
        real = labels != PAD_ID
        np.testing.assert_allclose(weights, real / real.sum(), rtol=1e-6)
        assert weights.sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_epoch_is_a_function_of_seed_and_epoch(make, variant):
    options = VARIANTS[variant]
    first, second, other_seed = make(**options), make(**options), make(seed=2, **options)
    assert epoch_of(first, 3) == epoch_of(second, 3) == epoch_of(first, 3)
    same = variant == "in order"
    assert (epoch_of(first, 3) == epoch_of(first, 4)) == same
    assert (epoch_of(first, 3) == epoch_of(other_seed, 3)) == same


def test_sampling_splits_the_text_anew_each_epoch(make):
    batches = make(sampling=0.2)
    pieces = [
        {
            tuple(i for i in row if i != PAD_ID)  # whose number differs with the batch
            for source_ids, *_ in epoch_of(batches, epoch)
            for row in source_ids
        }
        for epoch in (0, 1)
    ]
    assert len(pieces[0] & pieces[1]) < len(pieces[0]) / 2


def test_the_sides_are_sampled_apart(sentence_pairs, tokenizer):
    """Or a word that stands on both sides would always be split alike."""
    corpus = ParallelCorpus.from_pairs([(text, text) for text, _ in sentence_pairs])
    batches = TranslationBatches(corpus, tokenizer, batch_tokens=10**4, sampling=0.3)
    ((sources, _, labels, _),) = epoch_of(batches, 0)
    unpadded = [[[i for i in row if i] for row in rows] for rows in (sources, labels)]
    same = [source == label for source, label in zip(*unpadded, strict=True)]
    assert sum(same) < len(same) / 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_interrupted_stream_goes_on_as_if_it_were_not(make, variant):
    options = VARIANTS[variant]
    whole = as_lists(make(**options).dataset().take(40))
    start = (0, 0)
    for taken, more in itertools.pairwise((0, 1, 9, 33)):
        start = make(**options).position_after(start, more - taken)
        rest = as_lists(make(**options).dataset(epoch=start[0], index=start[1]).take(40 - more))
        assert rest == whole[more:]
    assert start[0] > 1


def test_a_position_at_the_end_of_an_epoch_is_the_start_of_the_next(make):
    batches = make()
    assert batches.position_after((0, 0), len(batches)) == (1, 0)
    assert batches.position_after((0, 2), len(batches) - 3) == (0, len(batches) - 1)
    assert batches.position_after((4, 1), 0) == (4, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_finite_dataset_knows_its_length(make, variant):
    batches = make(**VARIANTS[variant])
    assert int(batches.dataset().cardinality()) == -1  # infinite
    dataset = batches.dataset(repeat=False)
    assert int(dataset.cardinality()) == len(batches) == len(list(dataset))
    rest = batches.dataset(repeat=False, epoch=1, index=3)
    assert int(rest.cardinality()) == len(list(rest)) == len(epoch_of(batches, 1)) - 3
    assert as_lists(rest) == epoch_of(batches, 1)[3:]


def test_static_shapes(make):
    batches = make(static_shapes=3, max_length=40)
    seen = set()
    for source_ids, target_ids, labels, _ in itertools.chain(
        epoch_of(batches, 0), epoch_of(batches, 1)
    ):
        assert np.shape(source_ids) == np.shape(target_ids) == np.shape(labels)
        seen.add(np.shape(labels))
    assert seen <= set(batches.shapes) and 1 < len(seen) <= 3


def test_rows_of_padding_fill_a_batch_up_to_a_multiple(make):
    batches = make()
    plain = list(batches.arrays(repeat=False))
    filled = list(batches.arrays(repeat=False, row_multiple=4))
    assert any(len(labels) % 4 for _, labels, _ in plain)
    for batch, full in zip(plain, filled, strict=True):
        for array, more in zip(
            (*batch[0].values(), *batch[1:]), (*full[0].values(), *full[1:]), strict=True
        ):
            missing = -len(array) % 4
            np.testing.assert_array_equal(more, np.pad(array, [(0, missing), (0, 0)]))
            assert more.dtype == array.dtype
    assert as_lists(batches.dataset(repeat=False, row_multiple=4)) == [
        [part.tolist() for part in (*inputs.values(), *rest)] for inputs, *rest in filled
    ]


def test_validation_runs_from_long_to_short(make):
    widths = [
        max(len(source_ids[0]), len(labels[0]))
        for source_ids, _, labels, _ in epoch_of(make(shuffle=False), 0)
    ]
    assert widths == sorted(widths, reverse=True)


def test_over_long_and_blank_pairs_are_left_out_and_counted(tokenizer, sentence_pairs):
    no_tokens = [("\u200b", "x"), ("x", "\ufeff"), ("\x01", "x"), ("\u2581", "\u2028")]
    corpus = ParallelCorpus.from_pairs([*sentence_pairs, ("", "blank"), *no_tokens])
    longer = [
        1 + max(len(row) for row in tokenizer.encode(pair).to_list()) for pair in sentence_pairs
    ]
    most = sorted(longer)[20]
    kept = sorted(p for p, length in zip(sentence_pairs, longer, strict=True) if length <= most)
    batches = TranslationBatches(corpus, tokenizer, batch_tokens=150, max_length=most)
    assert 0 < len(kept) < len(sentence_pairs)
    assert texts_of(batches, 0, tokenizer) == kept
    left_out = len(sentence_pairs) - len(kept)
    assert str(batches.summary) == (
        f"{len(kept)} pairs; left out: 5 with a blank side, {left_out} longer than {most} tokens"
    )
    labels = sum(len(tokenizer.encode([t]).to_list()[0]) + 1 for _, t in kept)
    assert batches.num_target_tokens == labels
    budget = TranslationBatches(corpus, tokenizer, batch_tokens=most)  # one such pair fills it
    assert budget.summary == batches.summary


def test_only_over_long_and_blank_pairs(sentence_pairs, tokenizer):
    corpus = ParallelCorpus.from_pairs([*sentence_pairs, ("\u2581", "x")])
    with pytest.raises(ValueError, match="1 to 2 tokens.*32 pairs, 1 with a blank .* longer"):
        TranslationBatches(corpus, tokenizer, max_length=2)


def test_each_side_may_have_its_own_tokenizer(corpus, tokenizer, sentence_pairs):
    german = SentencePieceTokenizer.train(corpus.target, vocab_size=97)
    batches = TranslationBatches(corpus, tokenizer, german, batch_tokens=10**4)
    ((source_ids, _, labels, _),) = epoch_of(batches, 0)
    sources = [text.decode() for text in tokenizer.decode(np.array(source_ids)).numpy()]
    targets = [text.decode() for text in german.decode(np.array(labels)).numpy()]
    assert sorted(zip(sources, targets, strict=True)) == sorted(sentence_pairs)


@pytest.mark.skipif("KERAS_TRANSFORMER_DATA" not in os.environ, reason="needs Multi30k")
def test_little_of_multi30k_is_padding():
    folder = pathlib.Path(os.environ["KERAS_TRANSFORMER_DATA"]) / "multi30k"
    corpus = ParallelCorpus.from_files(folder / "train.en.gz", folder / "train.de.gz")
    assert str(corpus.summary) == "29,000 pairs; left out: none"
    tokenizer = SentencePieceTokenizer.train(corpus.source[::8] + corpus.target[::8], 5000)
    batches = TranslationBatches(corpus, tokenizer, batch_tokens=4096)
    real, padded = np.zeros(2), np.zeros(2)
    smallest = batches.batch_tokens
    for inputs, labels, _ in batches.arrays(repeat=False):
        for side, ids in enumerate((inputs["source_ids"], labels)):
            real[side] += (ids != PAD_ID).sum()
            padded[side] += ids.size
        smallest = min(smallest, max(inputs["source_ids"].shape[1], labels.shape[1]) * len(labels))
    assert (real / padded > 0.92).all()
    assert smallest > 0.45 * batches.batch_tokens
    assert real[1] == batches.num_target_tokens


@pytest.mark.parametrize("sampling", [-1.0, 2.0])
def test_bad_sampling_is_refused_at_once(corpus, tokenizer, sampling):
    with pytest.raises(ValueError, match="Received: sampling="):
        TranslationBatches(corpus, tokenizer, sampling=sampling)


def test_word_pieces_cannot_be_sampled(corpus):
    tokenizer = WordPieceTokenizer(b"[UNK]\nthe\n")
    with pytest.raises(ValueError, match="no sampling with WordPiece"):
        TranslationBatches(corpus, tokenizer, sampling=0.1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_say_how_often_an_epoch_has_a_pair(tokenizer, sentence_pairs, variant):
    some, others = sentence_pairs[:9], sentence_pairs[9:]
    mixed = ParallelCorpus.from_pairs(sentence_pairs)
    mixed.parts = [Part(weight=3.0), Part(weight=0.5)]
    mixed.part_of = np.repeat([0, 1], [len(some), len(others)])
    batches = TranslationBatches(mixed, tokenizer, batch_tokens=150, **VARIANTS[variant])
    first, second = (texts_of(batches, epoch, tokenizer) for epoch in (0, 1))
    if variant == "in order":
        assert first == second == sorted(sentence_pairs)
        return
    assert [pair for pair in first if pair in some] == sorted(3 * some)
    assert sorted(first + second) == sorted(6 * some + others)
    # what goes on in the middle of an epoch takes the same batches
    position = batches.position_after((0, 0), len(batches) + 2)
    again = TranslationBatches(mixed, tokenizer, batch_tokens=150, **VARIANTS[variant])
    assert as_lists(again.arrays(repeat=False, epoch=1, index=2)) == epoch_of(batches, 1)[2:]
    assert position == (1, 2)
    if variant == "sampled":
        rows = [tuple(row) for source_ids, *_ in epoch_of(batches, 0) for row in source_ids]
        assert len(set(rows)) > len(sentence_pairs)  # one pair is split in several ways
    else:
        epochs = [labels for epoch in (0, 1) for *_, labels, _ in epoch_of(batches, epoch)]
        num_labels = sum(np.count_nonzero(labels) for labels in epochs)
        assert batches.num_target_tokens == pytest.approx(num_labels / 2, abs=0.5)
        before = epoch_of(batches, 1)
        batches.soft_labels = types.SimpleNamespace(draw=lambda ids, rng: ids)
        assert epoch_of(batches, 1) == before


def test_weights_that_leave_nothing_to_an_epoch_are_refused(tokenizer):
    corpus = ParallelCorpus.from_pairs([("a", "A")] * 3)
    corpus.parts = [Part(weight=0.25)]
    with pytest.raises(ValueError, match="leave a pair to each epoch. Received: weight=0.25 for 3"):
        TranslationBatches(corpus, tokenizer, batch_tokens=150)
