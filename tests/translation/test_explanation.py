"""What is said of the words of a translation, against the model's own numbers."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.models import Ensemble, RnnSeq2Seq, Transformer
from keras_transformer.special_ids import END_ID, START_ID
from keras_transformer.translation.explanation import Explanation, Word, words_of
from keras_transformer.translation.translator import Translator

SURFACES = [*[b""] * 4, b" a", b"b", b" c", b"."]


@pytest.mark.parametrize(
    ("ids", "texts", "places"),
    [
        ([4, 5, 6, 7, 3], ["ab", "c."], [[0, 1], [2, 3]]),
        ([5, 1, 4, 3], ["b\u2047", "a"], [[0, 1], [2]]),  # no space at first; an unknown token
        ([1, 4, 99, 3], ["\u2047", "a"], [[0], [1, 2]]),  # a model may have more embeddings
        ([3], [], []),
    ],
)
def test_a_word_begins_with_a_space(ids, texts, places):
    assert words_of(SURFACES, ids) == (texts, places)


def test_pairs_of_words_are_written_as_pharaoh_does():
    words = [Word("a", 0.0, 1), Word("b", 0.0, 0), Word("c", 0.0, 1)]
    assert Explanation(["x", "y"], words).alignment == "0-1 1-0 1-2"
    assert Explanation([], [Word("a", 0.0, None)]).alignment == ""
    assert Explanation(["x", "y"], words, tokens=[2, 0, 2]).token_alignment == "0-1 2-0 2-2"


SIZES = dict(d_model=16, dropout=0.0)
MODELS = {
    "transformer": lambda size: Transformer(
        size, num_layers=1, num_decoder_layers=3, ff_dim=16, num_heads=2, **SIZES
    ),
    "rnn": lambda size: RnnSeq2Seq(size, num_layers=1, **SIZES),
}


@pytest.mark.usefixtures("eagerly")
def test_a_head_can_be_chosen(tokenizer, corpus):
    """One of an ensemble too, whose heads are side by side."""
    models = [
        Transformer(tokenizer.vocab_size, num_layers=2, ff_dim=16, num_heads=2, **SIZES)
        for _ in range(2)
    ]
    pair = corpus.source[:1], corpus.target[:1]
    places = [words_of(tokenizer.surfaces, [*row, END_ID])[1]
              for texts in pair for row in tokenizer.encode(texts).to_list()]  # fmt: skip
    for model, (layer, head) in ((models[0], (1, 1)), (Ensemble(models), (0, 3))):
        translator = Translator(model, tokenizer, alignment_head=(layer, head))
        (found,) = translator.explain(*pair)
        looks = translator.attention(pair[0][0], pair[1][0]).weights["cross"][layer, head]
        expected = [
            [looks[np.ix_(target, source)].sum() / len(target) for source in places[0]]
            for target in places[1]
        ]
        np.testing.assert_allclose(found.attention, expected, atol=1e-5)
        assert translator.__reduce__()[1][-1] == (layer, head)
        without = Translator(model, tokenizer)
        assert translator.checksum() != without.checksum()
        assert not np.allclose(without.explain(*pair)[0].attention, expected, atol=1e-3)
    for wrong in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(ValueError, match="2 layers and 2 heads.* Received: layer"):
            Translator(models[0], tokenizer, alignment_head=wrong)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", MODELS)
def test_words_have_the_numbers_of_their_tokens(name, tokenizer, corpus):
    model = MODELS[name](tokenizer.vocab_size)
    translator = Translator(model, tokenizer, decoding=DecodingConfig(1, length_penalty=0.0))
    sources, targets = corpus.source[:4], corpus.target[:4]
    explained = translator.explain([*sources, ""], [*targets, "x"])
    assert explained[-1] == Explanation([], [])
    for source, target, found in zip(sources, targets, explained, strict=False):
        sides = [[*tokenizer.encode([text]).to_list()[0], END_ID] for text in (source, target)]
        inputs = {
            "source_ids": np.array([sides[0]]),
            "target_ids": np.array([[START_ID, *sides[1][:-1]]]),
        }
        logits, weights = model(inputs, return_attention_weights=True)
        log_probs = ops.convert_to_numpy(ops.log_softmax(logits))[0]
        cross = weights["cross"][1 if name == "transformer" else 0]
        looks = ops.convert_to_numpy(cross)[0].mean(axis=0)
        texts, places = words_of(tokenizer.surfaces, sides[1])
        source_texts, source_places = words_of(tokenizer.surfaces, sides[0])
        assert source_texts == found.source == source.split()
        assert texts == [word.text for word in found.words] == target.split()
        assert found.attention.shape == (len(texts), len(source_texts))
        for row, (word, tokens) in enumerate(zip(found.words, places, strict=True)):
            expected = sum(log_probs[t, sides[1][t]] for t in tokens)
            assert word.score == pytest.approx(expected, abs=1e-4)
            sums = [sum(looks[t, s] for t in tokens for s in each) for each in source_places]
            assert sums[word.source] == pytest.approx(max(sums), abs=1e-4)
            means = np.array(sums) / len(tokens)
            np.testing.assert_allclose(found.attention[row], means, atol=1e-4)
        without_ends = looks[:-1, :-1]
        highest = np.take_along_axis(without_ends, np.array(found.tokens)[:, None], axis=1)
        np.testing.assert_allclose(highest[:, 0], without_ends.max(axis=1), atol=1e-4)
        whole = sum(word.score for word in found.words) + log_probs[-1, END_ID]
        assert translator.score([source], [target])[0] == pytest.approx(whole, abs=1e-3)


def test_a_target_for_each_source_is_needed(translator):
    with pytest.raises(ValueError, match="a target for each source. Received: 1 sources, 0 tar"):
        translator.explain(["A dog."], [])
