import copy
import pickle
import random

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import backend
from keras_transformer.config import Config, DecodingConfig
from keras_transformer.decoding import batch_search
from keras_transformer.decoding.hypotheses import IMPOSSIBLE, SearchResult
from keras_transformer.models import RnnSeq2Seq, Transformer
from keras_transformer.runs.run import Run
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.translation import loading
from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.lexicon import Lexicon
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator

NUM_LAYERS, NUM_DECODER_LAYERS, NUM_HEADS = 2, 1, 4
GREEDY = DecodingConfig(beam_size=1)
BLANK = ["", "   ", "\t\n", "\u3000"]


SIZES = dict(
    num_layers=NUM_LAYERS, num_decoder_layers=NUM_DECODER_LAYERS, num_heads=NUM_HEADS,
    d_model=32, ff_dim=48, dropout=0.0, normalize_first=True,
)  # fmt: skip


def make_model(tokenizer, **arguments):
    random.seed(5)  # Keras draws the seeds of its initializers from here
    return Transformer(tokenizer.vocab_size, **SIZES, **arguments)


@pytest.fixture(scope="module")
def translator(translator, tokenizer):
    """With the default search, of a model that says different things of different texts."""
    return Translator(translator.model, tokenizer)


@pytest.fixture(scope="module")
def model(translator):
    return translator.model


@pytest.fixture(scope="module")
def shortlisted(model, tokenizer, lexicon):
    """Chooses among the likely translations of a text only."""
    return Translator(model, tokenizer, decoding=DecodingConfig(shortlist=4), lexicon=lexicon)


@pytest.fixture(scope="module")
def sources(corpus):
    return corpus.source[:13]


def ids_of(tokenizer, text):
    return [*tokenizer.encode([text]).to_list()[0], END_ID]


def test_one_text_gives_one_and_a_list_a_list(translator):
    assert isinstance(translator("A dog runs."), str)
    assert translator(["A dog runs."]) == [translator("A dog runs.")]
    assert translator([]) == []


def test_answers_stand_in_the_order_of_the_texts_and_do_not_depend_on_neighbours(
    translator, sources, monkeypatch
):
    alone = [translator(source) for source in sources]
    assert len(set(alone)) > 6
    assert translator(sources) == alone
    monkeypatch.setattr(translator._batch_search, "batch_size", 3)
    assert translator(sources) == alone


@pytest.mark.parametrize("num_threads", [1, 2])
def test_chunks_are_translated_in_order_with_one_read_ahead(
    translator, sources, monkeypatch, num_threads
):
    monkeypatch.setattr(backend, "num_search_threads", lambda: num_threads)
    chunks = [sources[:4], ["", " "], [], sources[4:9], sources[9:]]
    read = []

    def reading():
        for number, chunk in enumerate(chunks):
            read.append(number)
            yield chunk

    found = []
    for number, answers in enumerate(translator.translate_chunks(reading(), n_best=3)):
        assert read == list(range(min(number + 2, len(chunks))))
        found.append(answers)
    expected = [translator.translate(chunk, n_best=3) for chunk in chunks]
    assert [[[t.text for t in texts] for texts in each] for each in found] == [
        [[t.text for t in texts] for texts in each] for each in expected
    ]


def test_each_batch_says_how_many_texts_it_has(translator, sources, monkeypatch):
    monkeypatch.setattr(translator._batch_search, "batch_size", 5)
    monkeypatch.setattr(backend, "num_search_threads", lambda: 1)  # which divide few texts
    texts, told = [*sources[:7], ""], []
    for _ in translator.translate_chunks([texts], on_batch=told.append):
        told.append("the chunk")
    assert told == [5, 2, "the chunk"]
    told.clear()
    list(translator.sample_chunks([texts], num_samples=2, on_batch=told.append))
    assert told == [2.5, 2.5, 2.0]


def test_blank_and_unknown_texts_are_copied_and_do_not_reach_the_model(
    translator, model, tokenizer, monkeypatch
):
    mixed = [BLANK[0], "A dog runs.", BLANK[1], "Where is the bus?"]
    dog, bus = translator(["A dog runs.", "Where is the bus?"])
    assert translator(mixed) == ["", dog, "", bus]

    def fail(*_):
        raise AssertionError("the model was called")

    monkeypatch.setattr(batch_search, "decode", fail)
    untouched = Translator(model, tokenizer)
    assert untouched.translate(BLANK, n_best=2) == [[Translation("", 0.0, False)]] * 4
    assert untouched.translate([" \u4e16\n"], 2) == [[Translation("\u4e16", 0.0, False)]]
    assert untouched.translate(["\u4e16" * 20_000])[0][0] == ("\u4e16" * 20_000, 0.0, True)
    assert untouched.sample(["\u4e16"]) == ["\u4e16"]
    assert untouched.score([*BLANK, "\u4e16"], ["Hund"] * 5).tolist() == [0.0] * 5
    with pytest.raises(ValueError, match="Received: text='\u4e16'. Give one with a word"):
        untouched.attention("\u4e16")


def test_characters_that_are_written_in_bytes_are_unknown(sentence_pairs):
    sources = [source for source, _ in sentence_pairs]
    tokenizer = SentencePieceTokenizer.train(sources, 320, byte_fallback=True)
    model = Transformer(320, num_layers=1, d_model=8, ff_dim=8, num_heads=1)
    translator = Translator(model, tokenizer)
    texts = ["A dog \U0001f600 runs \u4e16.", "A dog runs.", "\u4e16\u754c"]
    assert translator.unknown_characters(texts) == ["\U0001f600\u4e16", "", "\u4e16\u754c"]
    assert translator(texts[2:]) == texts[2:]


def test_n_best_are_different_and_ordered_by_score(translator, sources):
    answers = translator.translate(sources, n_best=3)
    assert [best.text for best, _, _ in answers] == translator(sources)
    for hypotheses in answers:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.text for hypothesis in hypotheses}) == 3
        assert all(isinstance(value, float) for value in scores)


def test_a_text_is_listed_once_with_its_best_score(translator, monkeypatch):
    """Two hypotheses may be one text, in other tokens; the third is one that was not found."""
    ids = np.array([[[5, 6, 3, 0], [START_ID, 5, 6, 3], [3, 0, 0, 0], [7, 3, 0, 0]]])
    scores = np.array([[-1.0, -2.0, IMPOSSIBLE, -3.0]])
    found = SearchResult(ids, scores, None, np.ones((1, 4), "bool"))

    def submit_search(submit, rows, num_hypotheses, prefixes):
        assert num_hypotheses == translator.decoding.beam_size
        return [([0], lambda: found)]

    monkeypatch.setattr(translator._batch_search, "submit_search", submit_search)
    texts = [text.decode() for text in translator.target_tokenizer.decode(ids[0]).numpy()]
    assert len(set(texts)) == 3
    best, last = Translation(texts[0], -1.0, False), Translation(texts[3], -3.0, False)
    assert translator.translate(["A dog."], 2) == translator.translate(["A dog."], 3)
    assert translator.translate(["A dog."], 2) == [[best, last]]


@pytest.mark.parametrize("n_best", [0, 5])
def test_more_than_the_beam_holds_is_refused(translator, n_best):
    with pytest.raises(ValueError, match=f"n_best={n_best}, beam_size=4"):
        translator.translate(["A dog runs."], n_best)


@pytest.mark.parametrize("texts", ["A dog runs.", b"A dog", None, 7])
def test_what_is_no_list_of_texts_is_refused(translator, texts):
    for call in (translator.translate, translator.sample, lambda _: translator.score(["A"], texts)):
        with pytest.raises(ValueError, match=f"list of texts, .* Received: {texts!r}. Put"):
            call(texts)
    if not isinstance(texts, str):
        with pytest.raises(ValueError, match=f"list of texts, .* Received: {texts!r}. Put"):
            translator(texts)


def test_any_iterable_of_texts_is_translated_and_the_first_bad_item_named(translator, sources):
    expected = translator(sources[:3])
    assert translator(iter(sources[:3])) == translator(dict.fromkeys(sources[:3])) == expected
    with pytest.raises(ValueError, match="Received: None as item 1 of the texts. Leave it out"):
        translator(text for text in ["A dog.", None, 7])


def test_the_score_is_the_normalized_log_probability_of_the_target(
    translator, model, tokenizer, corpus
):
    sources, targets = corpus.source[:1], corpus.target[:1]
    expected = []
    for source, target in zip(sources, targets, strict=True):
        source_ids, labels = ids_of(tokenizer, source), ids_of(tokenizer, target)
        total = 0.0
        for position in range(len(labels)):
            prefix = np.array([[START_ID, *labels[:position]]])
            logits = model({"source_ids": np.array([source_ids]), "target_ids": prefix})
            logits = ops.convert_to_numpy(logits)[0, -1].astype("float64")
            total += logits[labels[position]] - np.log(np.exp(logits).sum())
        expected.append(total / ((5 + len(labels)) / 6) ** 0.6)
    scores = translator.score(sources, targets)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_the_score_of_what_was_found_is_the_score_of_the_search(translator, tokenizer, sources):
    answers = [best for (best,) in translator.translate(sources)]
    forced = translator.score(sources, [best.text for best in answers])
    # text may be split into pieces in other ways than the search put it together
    same = [
        i
        for i, best in enumerate(answers)
        if not best.truncated and forced[i] == pytest.approx(best.score, abs=1e-4)
    ]
    assert len(same) >= len(sources) // 2
    assert all(forced <= np.array([best.score for best in answers]) + 1e-4)


def test_scores_need_a_target_for_each_source(translator):
    with pytest.raises(ValueError, match="2 sources, 1 targets"):
        translator.score(["A dog.", "A cat."], ["Ein Hund."])


def test_scores_of_few_logits_at_a_time_are_the_same(translator, corpus, monkeypatch):
    sides = corpus.source[:9], corpus.target[:9]
    expected, calls = translator.score(*sides), []
    compiled = translator._batch_search._compiled["score"]
    monkeypatch.setitem(
        translator._batch_search._compiled,
        "score",
        lambda sources, labels: calls.append(len(labels)) or compiled(sources, labels),
    )
    monkeypatch.setattr("keras_transformer.translation.translator.MAX_LOGITS", 7000)
    np.testing.assert_allclose(translator.score(*sides), expected, rtol=1e-5)
    assert len(calls) > 1 and translator.model.output_vocab_size * max(calls) <= 7000


def test_half_of_a_surrogate_pair_is_a_replacement_character(translator):
    """JSON has them, where somebody has cut an emoji."""
    texts = ["A dog \ud83d runs.", "A dog.", "\ud83d\ude00"]
    whole = ["A dog \ufffd runs.", "A dog.", "\U0001f600"]
    assert translator(texts) == translator(whole)
    assert translator(np.array(texts, object)) == translator(whole)


def test_inputs_end_with_the_learned_positions(tokenizer, eagerly):
    """A position beyond the table would have the vector of the last one, or be refused."""
    model = make_model(tokenizer, positions="learned", max_length=9)
    translator = Translator(model, tokenizer, decoding=GREEDY)
    assert (translator.decoding.max_source_length, translator.decoding.max_length) == (8, 9)
    short = Translator(model, tokenizer, decoding=DecodingConfig(max_source_length=5))
    assert short.decoding.max_source_length == 5
    text = "Two children are playing with a red ball."
    for (best,) in translator.translate([text, "A dog."]):
        assert best.truncated
    weights = translator.attention(text).weights
    assert weights["encoder"].shape[-1] == 9 and weights["cross"].shape[-2] <= 9
    assert translator.attention(text, target=text).weights["decoder"].shape[-1] == 9
    labels = translator._encode_targets([text, "A dog."])[0]
    assert [len(row) for row in labels] == [9, len(ids_of(tokenizer, "A dog."))]
    assert np.isfinite(translator.score([text, "A dog."], [text, text])).all()
    assert make_model(tokenizer).longest_input is None


def test_a_cut_source_is_flagged_and_read_up_to_the_cut(model, tokenizer, eagerly):
    """Wherever it stands in the list of texts and in its batch, where the longest is the first."""
    long, whole = "Two children are playing with a red ball.", "The dog sees the cat."
    num_pieces = len(ids_of(tokenizer, whole)) - 1
    assert len(ids_of(tokenizer, long)) - 1 > num_pieces
    decoding = DecodingConfig(beam_size=1, max_source_length=num_pieces)
    texts = [whole, "A dog runs.", long, whole, long[:-5] + "apple."]
    cut = Translator(model, tokenizer, decoding=decoding).translate(texts)
    assert [best.truncated for (best,) in cut] == [False, False, True, False, True]
    ((first,), (second,)) = cut[2], cut[4]
    assert first.text == second.text and cut[0][0].text == cut[3][0].text != first.text
    assert first.score == pytest.approx(second.score, rel=1e-5)  # other rows, another order of sums


def test_a_translation_that_meets_its_limit_is_flagged(translator, model, tokenizer, eagerly):
    texts = ["A dog runs.", "Two children are playing with a red ball."]
    assert [best.truncated for (best,) in translator.translate(texts)] == [False, False]
    short = Translator(model, tokenizer, decoding=DecodingConfig(beam_size=1, max_length=3))
    assert [best.truncated for (best,) in short.translate(texts)] == [True, True]


@pytest.fixture(scope="module")
def lexicon(corpus, tokenizer):
    """Of every other pair, so that shortlists lack some words."""
    rows = [
        [row.numpy() for row in tokenizer.encode(texts[::2])]
        for texts in (corpus.source, corpus.target)
    ]
    lexicon = Lexicon.learn(*rows, tokenizer.vocab_size)
    return lexicon._replace(frequent=lexicon.frequent[:5])


def test_a_shortlist_changes_what_it_leaves_out(
    model, tokenizer, translator, lexicon, sources, eagerly
):
    sources = sources[:3]
    whole = lexicon._replace(frequent=np.arange(tokenizer.vocab_size, dtype="int32"))
    same, narrow = (
        Translator(model, tokenizer, decoding=DecodingConfig(2, shortlist=4), lexicon=each)
        for each in (whole, lexicon)
    )
    expected = Translator(model, tokenizer, decoding=DecodingConfig(2)).translate(sources)
    for (found,), (best,) in zip(same.translate(sources), expected, strict=True):
        assert found.text == best.text
        assert found.score == pytest.approx(best.score, abs=1e-4)
    found = [best for (best,) in narrow.translate(sources)]
    texts = [best.text for best in found]
    assert texts != [best.text for (best,) in expected]
    # all texts have a score of their own: that of the softmax over the shortlist
    scores = narrow.score(sources, texts)
    assert np.all(scores <= np.array([best.score for best in found]) + 1e-4)
    np.testing.assert_allclose(scores, translator.score(sources, texts), atol=1e-5)


@pytest.mark.parametrize("name", ["translator", "shortlisted"])
def test_any_number_of_threads_gives_the_same_translations(request, name, sources, monkeypatch):
    translator = request.getfixturevalue(name)
    texts = [*sources, "", *sources[:5], " "]
    found = []
    for num_threads, batch_size in ((1, 64), (2, 3), (5, 3), (5, 64)):
        monkeypatch.setattr(backend, "num_search_threads", lambda count=num_threads: count)
        monkeypatch.setattr(translator._batch_search, "batch_size", batch_size)
        found.append(translator.translate(texts, n_best=3))
    texts_of = [[[t._replace(score=0.0) for t in answer] for answer in each] for each in found]
    assert all(each == texts_of[0] for each in texts_of)
    scores = np.array([[t.score for answer in each for t in answer] for each in found])
    np.testing.assert_allclose(scores, scores[:1].repeat(len(found), 0), rtol=1e-4, atol=1e-5)


def test_neighbours_with_other_shortlists_have_no_influence(shortlisted, sources, monkeypatch):
    def translate(texts):  # as many as the other tests want, so that it is compiled already
        return [row[0].text for row in shortlisted.translate(texts, n_best=3)]

    alone = [translate([source])[0] for source in sources]
    assert len(set(alone)) > 6
    assert translate([*sources, "", *sources[::-1]]) == [*alone, "", *alone[::-1]]
    monkeypatch.setattr(shortlisted._batch_search, "batch_size", 3)
    assert translate(sources) == alone


def test_every_search_of_a_translator_chooses_from_the_shortlist(
    model, tokenizer, lexicon, sources, eagerly
):
    decoding = DecodingConfig(beam_size=2, max_length=12, shortlist=2)
    translator = pickle.loads(
        pickle.dumps(Translator(model, tokenizer, decoding=decoding, lexicon=lexicon))
    )
    sources = sources[:1]
    drawn = translator.sample(sources, temperature=3.0, seed=1)
    assert drawn == translator.sample(sources, temperature=3.0, seed=1)
    for source, text in zip(sources, drawn, strict=True):
        ids, bias = translator._batch_search.shortlist_of(np.array([ids_of(tokenizer, source)]))
        pieces = tokenizer.to_pieces(ids.numpy()[bias[0].numpy() == 0])
        letters = set("".join(pieces).replace("\u2581", " "))
        assert set(text) <= letters | {"\u2047"}
        tree = translator.search_tree(source)
        assert {node.token for node in tree.nodes} <= {"", *pieces}
        tokens, index = [], tree.best
        while index:
            tokens.append(tree.nodes[index].token)
            index = tree.nodes[index].parent
        (best,) = translator.translate([source])[0]
        assert tree.nodes[tree.best].score == pytest.approx(best.score, abs=1e-4)
        assert translator.attention(source).target_pieces == tokens[::-1]


def test_a_shortlist_without_its_lexicon_is_refused(model, tokenizer, lexicon):
    decoding = DecodingConfig(shortlist=2)
    for other in (None, lexicon._replace(table=lexicon.table[:-1])):
        with pytest.raises(ValueError, match="shortlist=2, lexicon=.* Learn one with Lexicon.lear"):
            Translator(model, tokenizer, decoding=decoding, lexicon=other)


def test_samples_follow_the_seed(translator, sources):
    first = translator.sample(sources, seed=1)
    assert translator.sample(sources, seed=1) == first
    assert translator.sample(sources, seed=2) != first
    assert translator.sample(["A dog runs.", ""], seed=1)[1] == ""


def test_a_sample_depends_on_its_seed_text_and_place_alone(translator, sources, monkeypatch):
    texts = [*sources, "The bus is not here!", "The bus is not here!"]
    options = {"temperature": 3.0, "seed": 1}
    assert translator.sample([], **options) == []
    found = translator.sample(texts, **options)
    assert found[-1] != found[-2]
    other = ["Another text."] * (len(texts) - 1)
    assert translator.sample([*other, texts[-1]], **options)[-1] == found[-1]
    chunks = list(translator.sample_chunks([texts[:2], texts[2:]], **options))
    assert [best.text for chunk in chunks for (best,) in chunk] == found
    monkeypatch.setattr(translator._batch_search, "batch_size", 1)
    assert translator.sample(texts, **options) == found


def test_several_samples_of_a_text_differ(translator):
    texts = ["The bus is not here!", "", "A dog runs."]
    (found,) = translator.sample_chunks([texts], 5, temperature=3.0, seed=3)
    assert list(map(len, found)) == [5, 5, 5] and {blank.text for blank in found[1]} == {""}
    assert len({translation.text for translation in found[0]}) == 5
    assert found[0][0].text == translator.sample(texts[:1], temperature=3.0, seed=3)[0]


@pytest.mark.parametrize("batch_size", [-1, 0, 2.0])
def test_batches_have_at_least_one_sentence(model, tokenizer, batch_size):
    with pytest.raises(ValueError, match=f"at least 1. Received: batch_size={batch_size}"):
        Translator(model, tokenizer, batch_size=batch_size)


def test_a_copy_translates_alike_and_sees_its_new_weights(translator, sources):
    expected = translator(sources)  # has compiled a search
    for through in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        other = through(translator)
        assert other is not translator and other.model is not translator.model
        assert other.decoding == translator.decoding and other.batch_size == translator.batch_size
        assert other.target_tokenizer is other.tokenizer
    assert other(sources) == expected  # of the last copy: both are made by the same method
    weights = other.model.get_weights()
    other.model.set_weights([0 * weight for weight in weights])
    assert other(sources) != expected
    other.model.set_weights(weights)
    assert other(sources) == expected == translator(sources)


def test_scores_that_are_not_finite_are_an_error(tokenizer, eagerly):
    broken = make_model(tokenizer)
    broken.build()
    weights = broken.get_weights()
    weights[-1] = np.full_like(weights[-1], np.nan)
    broken.set_weights(weights)
    greedy, beam = (
        Translator(broken, tokenizer, decoding=DecodingConfig(beam_size=size, max_length=2))
        for size in (1, 3)
    )
    texts = ["", "A dog runs."]
    message = "Expected a model with finite weights.*of the text 'A dog runs.'"
    for call in (
        lambda: greedy(texts),
        lambda: beam(texts),
        lambda: greedy.attention(texts[1]),
        lambda: greedy.sample(texts),
        lambda: greedy.score(texts, ["", "Ein Hund."]),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="JAX compiles each shape, PyTorch nothing"
)
def test_each_search_is_compiled_once(translator, sources, monkeypatch):
    traced = []

    def counting(name, function):
        def counted(*args, **kwargs):
            traced.append(name)
            return function(*args, **kwargs)

        return counted

    for name in ("decode", "decode_sampled"):
        monkeypatch.setattr(batch_search, name, counting(name, getattr(batch_search, name)))
    for texts in (sources[:2], sources[:3], sources[:5]):
        translator(texts)
        translator.sample(texts, seed=1)
    traced.clear()  # by now the graphs take every shape
    translator(sources)
    translator.sample(sources, seed=2)
    translator.attention(sources[1])
    assert traced == []


def test_each_choice_of_sampling_acts_also_after_another(model, tokenizer, sources, eagerly):
    """A draw is remembered for its choices: those of an earlier call must not stay."""
    decoding = DecodingConfig(beam_size=1, max_length=5)
    translator, sources = Translator(model, tokenizer, decoding=decoding), sources[:2]
    expected = translator(sources)
    free = {"temperature": 2.0, "seed": 3}
    assert translator.sample(sources, **free) != expected
    # sampling from the best token alone is greedy search
    for narrow in ({"temperature": 0.01}, {"top_p": 1e-6}, {"top_k": 1}):
        assert translator.sample(sources, **free | narrow) == expected, narrow


def test_attention_is_of_the_best_translation_with_pieces_for_names(
    translator, model, tokenizer, sources
):
    source = sources[4]
    attention = translator.attention(source)
    assert attention.source_pieces == tokenizer.to_pieces(ids_of(tokenizer, source))
    end, start = tokenizer.to_pieces([END_ID, START_ID])
    assert attention.target_pieces[-1] == end
    assert attention.target_inputs == [start, *attention.target_pieces[:-1]]
    text = "".join(attention.target_pieces[:-1]).replace("\u2581", " ").strip()
    assert text == translator(source)

    for weights in attention.weights.values():
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
    assert np.triu(attention.weights["decoder"], k=1).max() == 0
    ids = [tokenizer.pieces.index(piece) for piece in attention.target_inputs]
    _, expected = model(
        {"source_ids": np.array([ids_of(tokenizer, source)]), "target_ids": np.array([ids])},
        return_attention_weights=True,
    )
    np.testing.assert_allclose(
        attention.weights["cross"][0], ops.convert_to_numpy(expected["cross"][0])[0], atol=1e-5
    )


def test_attention_of_a_given_target(tokenizer):
    translator = Translator(make_model(tokenizer), tokenizer)
    attention = translator.attention("A dog runs.", target="Eine Katze schläft.")
    assert attention.target_pieces == tokenizer.to_pieces(ids_of(tokenizer, "Eine Katze schläft."))
    num_sources, num_targets = len(attention.source_pieces), len(attention.target_pieces)
    assert {kind: weights.shape for kind, weights in attention.weights.items()} == {
        "encoder": (NUM_LAYERS, NUM_HEADS, num_sources, num_sources),
        "decoder": (NUM_DECODER_LAYERS, NUM_HEADS, num_targets, num_targets),
        "cross": (NUM_DECODER_LAYERS, NUM_HEADS, num_targets, num_sources),
    }


def test_attention_says_whether_something_was_cut(model, tokenizer, eagerly):
    def truncated(text, target=None, **limits):
        translator = Translator(model, tokenizer, decoding=DecodingConfig(**limits))
        return translator.attention(text, target).truncated

    text, target = "A dog runs.", "Eine Katze schläft."
    length = len(ids_of(tokenizer, text)) - 1  # the end token is not counted
    assert truncated(text, target) is False
    assert truncated(text, target, max_source_length=length) is False
    assert truncated(text, target, max_source_length=length - 1) is True
    assert truncated(text, target, max_length=len(ids_of(tokenizer, target)) - 2) is True
    assert truncated(text, max_length=1) is True  # the search stops at its limit


@pytest.mark.parametrize("text", BLANK)
def test_attention_of_a_blank_text_is_refused(translator, text):
    with pytest.raises(ValueError, match="Expected a text to look at"):
        translator.attention(text)


@pytest.fixture(scope="module")
def target_tokenizer(corpus, tokenizer):
    return type(tokenizer).train(corpus.target, vocab_size=101)


def test_a_target_tokenizer_of_its_own(tokenizer, target_tokenizer, eagerly):
    model = make_model(tokenizer, target_vocab_size=target_tokenizer.vocab_size)
    decoding = DecodingConfig(beam_size=1, max_length=9)
    translator = Translator(model, tokenizer, target_tokenizer, decoding)
    attention = translator.attention("A dog runs.", target="Ein Hund läuft.")
    assert attention.source_pieces == tokenizer.to_pieces(ids_of(tokenizer, "A dog runs."))
    labels = ids_of(target_tokenizer, "Ein Hund läuft.")
    assert attention.target_pieces == target_tokenizer.to_pieces(labels)
    best = translator.attention("A dog runs.").target_pieces
    assert set(best) <= set(target_tokenizer.pieces)
    assert isinstance(translator("A dog runs."), str)


def forced_score(model, source_ids, labels, alpha=0.6):
    """The normalized log-probability of `labels`, all in one pass, by NumPy."""
    inputs = {"source_ids": source_ids, "target_ids": [START_ID, *labels[:-1]]}
    logits = model({name: np.array([ids]) for name, ids in inputs.items()})
    logits = ops.convert_to_numpy(logits)[0].astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    total = log_probs[np.arange(len(labels)), labels].sum()
    return total / ((5 + len(labels)) / 6) ** alpha


def test_scores_with_a_target_tokenizer_of_its_own(tokenizer, target_tokenizer, corpus, eagerly):
    model = make_model(tokenizer, target_vocab_size=target_tokenizer.vocab_size)
    translator = Translator(model, tokenizer, target_tokenizer)
    sources, targets = corpus.source[:3], corpus.target[:3]
    expected = [
        forced_score(model, ids_of(tokenizer, source), ids_of(target_tokenizer, target))
        for source, target in zip(sources, targets, strict=True)
    ]
    np.testing.assert_allclose(translator.score(sources, targets), expected, rtol=1e-4)


def test_scores_follow_the_settings_of_the_search(model, tokenizer, corpus, eagerly):
    decoding = DecodingConfig(length_penalty=1.3, max_length=5, max_source_length=7)
    translator = Translator(model, tokenizer, decoding=decoding)
    source, target = (max(side, key=len) for side in (corpus.source, corpus.target))
    source_ids, labels = ids_of(tokenizer, source), ids_of(tokenizer, target)
    assert len(source_ids) > 8 and len(labels) > 8
    expected = forced_score(model, [*source_ids[:7], END_ID], [*labels[:5], END_ID], alpha=1.3)
    np.testing.assert_allclose(translator.score([source], [target]), [expected], rtol=1e-4)


def test_an_unknown_piece_of_a_target_has_its_score(translator, model, tokenizer):
    """No search may choose it, but a given translation may hold it."""
    source, target = "A dog runs.", "Ein Ω läuft."
    labels = ids_of(tokenizer, target)
    assert UNKNOWN_ID in labels
    expected = forced_score(model, ids_of(tokenizer, source), labels)
    scores = translator.score([source, source], [target, "Ein Hund läuft."])
    np.testing.assert_allclose(scores[0], expected, rtol=1e-4)
    assert -100 < scores[0] < scores[1] < 0


def test_tokenizers_of_another_model_are_refused(model, tokenizer, target_tokenizer):
    small = Transformer(101, num_layers=1, d_model=8, ff_dim=8, num_heads=2)
    with pytest.raises(ValueError, match="source tokenizer.*vocab_size=150.*model=101"):
        Translator(small, tokenizer)
    small = Transformer(150, 97, num_layers=1, d_model=8, ff_dim=8, num_heads=2)
    with pytest.raises(ValueError, match="target tokenizer.*vocab_size=101.*model=97"):
        Translator(small, tokenizer, target_tokenizer)


def test_a_run_is_loaded_with_its_search(tokenizer, tmp_path):
    run, model = Run(tmp_path / "run"), make_model(tokenizer)
    model.build()
    run.create(Config(model=SIZES, decoding=GREEDY), tokenizer, tokenizer)
    model.save_weights(run.averaged_path)
    loaded = load(run.path, "averaged")
    assert loaded.decoding == GREEDY
    assert loaded.tokenizer.pieces == loaded.target_tokenizer.pieces == tokenizer.pieces
    for ours, theirs in zip(loaded.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="a checkpoint"):
        load(run.path, checkpoint="last")


@pytest.mark.parametrize("part", ["", "7"])
def test_an_export_is_loaded(tmp_path, monkeypatch, part):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "saved_model.pb").touch()
    monkeypatch.setattr(loading, "_load_version", lambda path: ("export", path))
    assert load(str(tmp_path / part)) == ("export", tmp_path / "7")
    with pytest.raises(ValueError, match="one set of weights. Received: checkpoint='best'"):
        load(tmp_path / part, checkpoint="best")


@pytest.mark.parametrize("part", ["", "7"])
def test_an_unknown_setting_of_the_search_is_refused(tmp_path, part):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="Received: beam. Did you mean beam_size?"):
        load(tmp_path / part, beam=5)


def test_nothing_to_load_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Expected a run directory"):
        load(tmp_path)


def test_the_search_tree_leads_to_the_best_translation(translator, sentence_pairs):
    for source, _ in sentence_pairs[:2]:
        tree = translator.search_tree(source)
        pieces, index = [], tree.best
        while tree.nodes[index].parent is not None:
            pieces.insert(0, tree.nodes[index].token)
            index = tree.nodes[index].parent
        ((best,),) = translator.translate([source])
        text = "".join(pieces).replace("▁", " ").removesuffix("</s>").strip()
        assert text == best.text
        assert tree.nodes[0].token == ""
        np.testing.assert_allclose(tree.nodes[tree.best].score, best.score, rtol=1e-4)


def test_the_search_of_a_recurrent_model_has_a_tree(tokenizer, eagerly):
    """Of one without attention, whose searches keep no keys."""
    sizes = {"d_model": 8, "units": 8, "num_layers": 1, "attention": None, "dropout": 0.0}
    decoding = DecodingConfig(2, max_length=4)
    translator = Translator(RnnSeq2Seq(tokenizer.vocab_size, **sizes), tokenizer, decoding=decoding)
    ((best,),) = translator.translate(["A dog runs."])
    tree = translator.search_tree("A dog runs.")
    index, pieces = tree.best, []
    while tree.nodes[index].parent is not None:
        pieces.insert(0, tree.nodes[index].token)
        index = tree.nodes[index].parent
    assert "".join(pieces).replace("▁", " ").removesuffix("</s>").strip() == best.text


def test_a_blank_text_has_no_search_tree(translator):
    with pytest.raises(ValueError, match="Expected a text to look at. Received: text=' '"):
        translator.search_tree(" ")
