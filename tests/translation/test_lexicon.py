import dataclasses
import itertools

import numpy as np
import pytest
from keras import ops

from keras_transformer.config import MAX_TRANSLATIONS
from keras_transformer.translation import lexicon
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.translator import Translator

V = 60


def rows(*texts):
    return [np.array(text, "int32") for text in texts]


def allowed(shortlist):
    """Returns the set of tokens that each text may be translated with."""
    ids, bias = (ops.convert_to_numpy(part) for part in shortlist)
    return [set(ids[row == 0].tolist()) for row in bias]


@pytest.fixture(scope="module")
def pairs():
    """Random pairs of 1 to 6 tokens; the translation of token i is mostly i + 30."""
    rng = np.random.default_rng(3)
    source = [rng.integers(4, 29, size=n).astype("int32") for n in rng.integers(1, 7, size=90)]
    target = [
        np.where(rng.random(len(row)) < 0.8, row + 30, rng.integers(4, V, size=len(row)))
        for row in source
    ]
    return source, [rng.permutation(row).astype("int32") for row in target]


def model_1_by_loops(source_rows, target_rows, num_iterations=5):
    """Brown et al. (1993), equations 16 to 18, without an empty word."""
    pairs = list(zip(source_rows, target_rows, strict=True))
    links = {(s, t) for row, translation in pairs for s in row for t in translation}
    probability = dict.fromkeys(links, 1.0)
    for _ in range(num_iterations):
        counts = dict.fromkeys(links, 0.0)
        for row, translation in pairs:
            for t in translation:
                total = sum(probability[s, t] for s in row)
                for s in row:
                    counts[s, t] += probability[s, t] / total
        totals = {}
        for (s, _), count in counts.items():
            totals[s] = totals.get(s, 0.0) + count
        probability = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return probability


def test_tokens_are_aligned_that_are_each_others_best(pairs, monkeypatch):
    """Compared with loops over all links of each pair, in chunks, and in text not learned from."""
    monkeypatch.setattr(lexicon, "CHUNK_LINKS", 100)
    monkeypatch.setattr(lexicon, "MAX_LINKS", 500)
    num_links = sum(len(s) * len(t) for s, t in zip(*pairs, strict=True))
    learned = [side[:: -(-num_links // 500)] for side in pairs]
    forwards, backwards = model_1_by_loops(*learned), model_1_by_loops(*learned[::-1])
    found = lexicon.align(*pairs)
    assert len(found) == len(pairs[0]) and 0 < len(np.concatenate(found)) < sum(map(len, pairs[1]))
    for links, source, target in zip(found, *pairs, strict=True):
        scores = {
            (i, j): forwards.get((s, t), 0.0)
            * backwards.get((t, s), 0.0)
            * np.exp(-4 * abs(i / len(source) - j / len(target)))
            for i, s in enumerate(source)
            for j, t in enumerate(target)
        }
        expected = [  # of equal scores, the first is the best
            [i, j]
            for i, j in scores
            if scores[i, j] > 0
            and max(range(len(source)), key=lambda s, j=j: scores[s, j]) == i
            and max(range(len(target)), key=lambda t, i=i: scores[i, t]) == j
        ]
        assert sorted(links.tolist()) == expected


def test_the_probabilities_are_those_of_a_loop_over_all_links(pairs):
    expected = model_1_by_loops(*pairs)
    sources, targets, probabilities = lexicon._model_1(*pairs)
    found = dict(zip(zip(sources, targets, strict=True), probabilities, strict=True))
    assert found.keys() == expected.keys()
    for link, value in expected.items():
        assert found[link] == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_translations_are_ordered_by_probability(pairs):
    expected = model_1_by_loops(*pairs)
    table = Lexicon.learn(*pairs, V, V).table
    assert table.shape == (V, 1 + MAX_TRANSLATIONS) and not table[:, 0].any()
    for source in range(V):
        found = [t for t in table[source, 1:] if t]
        assert set(found) == {t for s, t in expected if s == source}
        values = [expected[source, t] for t in found]
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(values))
        assert not table[source, 1 + len(found) :].any()
    assert np.mean(table[4:29, 1] == np.arange(34, 59)) > 0.9  # as the pairs were made


def test_words_that_always_come_together_are_told_apart_by_other_pairs():
    source = rows([5, 6], [5, 7], [6, 7])
    target = rows([15, 16], [15, 17], [16, 17])
    table = Lexicon.learn(source, target, 20, 20).table
    assert table[5:8, 1].tolist() == [15, 16, 17]


def test_the_size_of_the_chunks_changes_nothing(pairs, monkeypatch):
    whole = lexicon._model_1(*pairs)
    monkeypatch.setattr(lexicon, "CHUNK_LINKS", 50)
    assert len(lexicon._chunks(*pairs)) > 10
    for found, expected in zip(lexicon._model_1(*pairs), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_of_a_long_text_every_nth_pair_is_read(pairs, monkeypatch):
    source, target = pairs
    num_links = sum(len(s) * len(t) for s, t in zip(source, target, strict=True))
    monkeypatch.setattr(lexicon, "MAX_LINKS", num_links // 3 + 1)
    found = lexicon._model_1(source, target)
    expected = lexicon._model_1(source[::3], target[::3])
    for part, expected_part in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, expected_part)


def test_texts_without_tokens_have_no_translations():
    source, target = rows([5], [], [6]), rows([15], [16], [])
    table = Lexicon.learn(source, target, 10, 17).table
    assert table[5, 1] == 15 and np.count_nonzero(table) == 1


def test_a_shortlist_has_the_translations_the_frequent_tokens_and_what_can_be_copied():
    source = rows([5, 6], [5], [7])
    target = rows([8, 9, 9], [8], [9])
    for shared in (False, True):
        whole = Lexicon.learn(source, target, 10, None if shared else 10)
        assert whole.frequent.tolist() == [9, 8]
        narrow = whole._replace(frequent=whole.frequent[:1]).top(1)
        found = allowed(narrow.shortlist(np.array([[5, 6, 3], [4, 3, 0]], "int32")))
        own = [{5, 6}, {4}] if shared else [set(), set()]  # 4 has no translation
        assert found == [{0, 1, 2, 3, 8, 9} | own[0], {0, 1, 2, 3, 9} | own[1]]


def test_a_shortlist_depends_on_nothing_but_its_text(pairs):
    narrow = Lexicon.learn(*pairs, V).top(3)
    texts = [[5, 9, 3, 0, 0, 0], [20, 21, 22, 23, 24, 3]]
    together = allowed(narrow.shortlist(np.array(texts, "int32")))
    assert together[0] != together[1]
    assert allowed(narrow.shortlist(np.array([texts[0][:3]], "int32"))) == together[:1]


def test_a_file_gives_the_same_lexicon(pairs, tmp_path):
    learned = Lexicon.learn(*pairs, V)
    learned.save(tmp_path / "lexicon.npz", tokenizers="abc")
    loaded = Lexicon.load(tmp_path / "lexicon.npz", tokenizers="abc")
    assert [part.dtype for part in loaded[:2]] == ["int32", "int32"]
    for part, expected in zip(loaded, learned, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_missing_damaged_and_foreign_files_are_refused_by_name(pairs, tmp_path):
    path = tmp_path / "lexicon.npz"
    with pytest.raises(ValueError, match=f"{path}, which does not exist. Make it with `keras-"):
        Lexicon.load(path)
    Lexicon.learn(*pairs, V).save(path, tokenizers="abc")
    with pytest.raises(ValueError, match=f"{path}, made with others. Make it again with"):
        Lexicon.load(path, tokenizers="abd")
    content = path.read_bytes()
    for damaged in (content[:-200], content[:100], b"", content.replace(b"frequent", b"frequenz")):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{path}, which is damaged .*. Make it again with"):
            Lexicon.load(path, tokenizers="abc")


def test_a_lexicon_of_another_vocabulary_makes_no_shortlists(translator, tokenizer):
    size = tokenizer.vocab_size
    lexicon = Lexicon(np.zeros((size, 1), "int32"), np.zeros(0, "int32"), size + 1)
    decoding = dataclasses.replace(translator.decoding, shortlist=1)
    with pytest.raises(ValueError, match="Expected a lexicon of the tokenizers"):
        Translator(translator.model, tokenizer, decoding=decoding, lexicon=lexicon)


@pytest.mark.parametrize(
    "change",
    [
        dict(table=np.full((V, 3), 10**6)),
        dict(table=np.full((V, 3), -1)),
        dict(table=np.zeros((V, 3))),
        dict(table=np.zeros(V, "int32")),
        dict(frequent=np.array([10**6])),
        dict(target_vocab_size="x"),
    ],
)
def test_a_file_with_other_contents_is_refused(pairs, tmp_path, change):
    path = tmp_path / "lexicon.npz"
    Lexicon.learn(*pairs, V)._replace(**change).save(path)
    with pytest.raises(ValueError, match=f"{path}, which is damaged .*. Make it again with"):
        Lexicon.load(path)


def test_coverage_is_the_share_of_tokens_with_a_counterpart():
    table = np.zeros((V, 1 + MAX_TRANSLATIONS), "int32")
    table[:, 0] = np.arange(V)  # a shared vocabulary
    table[5, 1:4], table[6, 1:3] = (35, 45, 55), (36, 45)
    table[7, 1 + lexicon.NUM_COUNTERPARTS] = 37  # too improbable
    found = Lexicon(table, np.array([], "int32"), V).coverage(
        rows([5, 6], [5, 6, 7, 8], [5], [9, 9], []), rows([36, 35], [45, 37], [40, 41], [9], [9])
    )
    np.testing.assert_allclose(found, [1.0, (2 / 4 + 1 / 2) / 2, 0.0, 1.0, 0.0])
