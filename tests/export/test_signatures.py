"""The signatures of an export, held against the `Translator` that it was made from."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding.hypotheses import IMPOSSIBLE
from keras_transformer.export import signatures as signatures_module
from keras_transformer.export.signatures import Signatures, distinct
from keras_transformer.models import Transformer
from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.markup_translator import MarkupTranslator
from keras_transformer.translation.terminology import Terminology
from keras_transformer.translation.translator import Translator

NEAR_TIE = 1e-5
PREFIXES = ["", "Der Hu", "Der Hu ", "D", "Wo  ist", "ubri", " Ich bin", "Die Katze schl", " "]


def call(signature, **inputs):
    """Returns the outputs as NumPy arrays, strings as str."""
    outputs = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    decode = np.vectorize(lambda text: text.decode("utf-8"), otypes=[object])
    arrays = {name: output.numpy() for name, output in outputs.items()}
    return {name: decode(a) if a.dtype == object else a for name, a in arrays.items()}


def test_batch_of_64_translates_as_the_translator_does(signatures, translator, texts):
    assert len(texts) == 64
    found = call(signatures["serving_default"], text=texts)
    expected = [best for (best,) in translator.translate(texts)]
    assert len({answer.text for answer in expected}) > 40  # else equality would say little
    assert [answer.text for answer in expected] == found["translation"].tolist()
    np.testing.assert_allclose([answer.score for answer in expected], found["score"], atol=1e-5)
    assert [answer.truncated for answer in expected] == found["truncated"].tolist()


def test_batch_of_one_equals_batch_of_many(signatures, texts, record_property):
    many = call(signatures["serving_default"], text=texts)
    num_near_ties = 0
    for i, text in list(enumerate(texts))[::3]:
        one = call(signatures["serving_default"], text=[text])
        assert abs(one["score"][0] - many["score"][i]) < NEAR_TIE
        num_near_ties += one["translation"][0] != many["translation"][i]
    record_property("near_ties", num_near_ties)
    assert num_near_ties <= 1


def test_long_input_is_cut_and_flagged(signatures, texts):
    found = call(signatures["serving_default"], text=[texts[0], texts[-1]])
    assert found["truncated"].tolist() == [False, True]


@pytest.mark.parametrize("blanks", [[""], [" ", "\n\t\u3000\u00a0", "\xad"]])
def test_blank_text_has_an_empty_translation(signatures, blanks):
    found = call(signatures["n_best"], text=[*blanks, "A dog runs."])
    assert found["translations"][:-1].tolist() == [["", ""]] * len(blanks)
    assert not found["scores"][:-1, 0].any() and not found["truncated"][:-1].any()
    assert (found["scores"][:-1, 1] == IMPOSSIBLE).all()  # there is no second
    assert found["translations"][-1, 0] == "Ein Hund läuft."
    found = call(signatures["attention"], text=blanks)
    assert found["translation"].tolist() == [""] * len(blanks) and not found["weights"].any()


def test_a_text_of_which_nothing_is_known_is_copied(signatures, translator):
    texts = [" \u4e16 \u754c\u3000", "A \u4e16"]
    expected = ["\u4e16 \u754c", translator(texts[1])]
    for name in ("serving_default", "attention"):
        assert call(signatures[name], text=texts)["translation"].tolist() == expected
    assert call(signatures["serving_default"], text=texts)["score"][0] == 0.0
    scores = call(signatures["score"], text=texts, target=["Hund", "Hund"])["score"]
    assert scores[0] == 0.0 > scores[1]


def test_empty_batch_has_an_empty_answer(signatures):
    for name, signature in signatures.items():
        inputs = {
            name: tf.zeros([0] * spec.shape.rank, spec.dtype)
            for name, spec in signature.structured_input_signature[1].items()
        }
        assert inputs and {len(output) for output in signature(**inputs).values()} == {0}, name


def test_n_best_is_that_of_the_translator(signatures, translator, texts):
    found = call(signatures["n_best"], text=texts)
    blank, filler = Translation("", 0.0, False), Translation("", IMPOSSIBLE, False)
    expected = translator.translate(texts, n_best=2)
    expected = [[blank, filler] if row == [blank] else row for row in expected]
    assert [[t.text for t in row] for row in expected] == found["translations"].tolist()
    np.testing.assert_allclose([[t.score for t in r] for r in expected], found["scores"], atol=1e-5)
    assert [[t.truncated for t in row] for row in expected] == found["truncated"].tolist()


def test_a_text_is_listed_once_with_its_best_score():
    texts = [["a", "a", "b", "", "c"], ["a", "b", "a", "b", "a"], ["", "", "", "", ""]]
    scores = [[-1, -2, -3, IMPOSSIBLE, -5], [-1, -2, -3, -4, -5], [IMPOSSIBLE] * 5]
    columns = tf.constant(texts), tf.constant(scores, "float32")
    (found, scores), is_there = distinct(columns, 3)
    assert found.numpy().tolist() == [[b"a", b"b", b"c"], [b"a", b"b", b"b"], [b""] * 3]
    assert scores.numpy()[:2].tolist() == [[-1, -3, -5], [-1, -2, -2]]
    assert is_there.numpy().tolist() == [[True] * 3, [True, True, False], [True, False, False]]


def test_few_of_many_texts_are_searched_at_once(translator, tokenizer, monkeypatch):
    """So that memory is bounded for any number of sentences; with a search that copies."""
    monkeypatch.setattr(signatures_module, "MAX_TEXTS", 5)
    made, sizes = Signatures(translator), []

    def search(text):
        sizes.append(len(text))
        ids = tokenizer.encode_padded(text, 50)[0]
        nothing = tf.zeros([len(text), 1], tf.bool)
        scores = tf.cast(tf.strings.length(text), tf.float32)[:, None]
        return signatures_module._Found(ids, nothing[:, 0], text, ids[:, None], scores, nothing)

    made._searches = {1: search}
    texts = [" ".join(["A dog"] * (1 + i % 7)) for i in range(12)]
    found = call(made._serving_default, text=texts)
    assert found["translation"].tolist() == texts and sizes == [5, 5, 2]
    assert found["score"].tolist() == list(map(len, texts))


def test_the_k_th_best_of_a_text_joins_those_of_its_sentences(translator, tokenizer):
    """With a search that finds a copy, and as the second best one that has a word more."""
    made = Signatures(translator, n_best=2, split_sentences=True)

    def search(text):
        texts = [each.decode() for each in text.numpy()]
        rows = [
            row for each in texts for row in (each, each if each == "Water!" else f"{each} mit")
        ]
        ids = tf.reshape(tokenizer.encode_padded(rows, 50)[0], [len(texts), 2, -1])
        scores = tf.constant([[-1.0, -2.0 - len(each)] for each in texts])
        truncated = tf.constant([[False, "cat" in each] for each in texts])
        return signatures_module._Found(ids[:, 0], truncated[:, 0], text, ids, scores, truncated)

    made._searches = {translator.decoding.beam_size: search}
    found = call(made._served_n_best, text=["A dog runs. A cat sleeps.\nWater!", "Water!"])
    assert found["translations"].tolist() == [
        ["A dog runs. A cat sleeps.\nWater!", "A dog runs. mit A cat sleeps. mit\nWater!"],
        ["Water!", ""],
    ]
    np.testing.assert_allclose(found["scores"], [[-3.0, -2 - 11 - 2 - 13 - 1], [-1.0, IMPOSSIBLE]])
    assert found["truncated"].tolist() == [[False, True], [False, False]]


def test_attention_is_that_of_the_translator(signatures, translator):
    texts = ["A dog runs.", "The woman in the green coat is waiting for the bus."]
    found = call(signatures["attention"], text=texts)
    assert found["translation"].tolist() == translator(texts)
    for i, text in enumerate(texts):
        expected = translator.attention(text)
        num_source, num_target = len(expected.source_pieces), len(expected.target_pieces)
        weights = found["weights"][i]  # (layers, H, T, S)
        real = weights[:, :, :num_target, :num_source]
        np.testing.assert_allclose(real, expected.weights["cross"], atol=1e-5)
        assert np.isclose(weights.sum(), real.sum()) and real.sum() > 1.0
        for side, num_pieces in (("source", num_source), ("target", num_target)):
            pieces = found[f"{side}_pieces"][i].tolist()
            assert pieces[:num_pieces] == getattr(expected, f"{side}_pieces")
            assert set(pieces[num_pieces:]) <= {""}
    forced = call(signatures["forced_attention"], text=texts, target=translator(texts))
    np.testing.assert_allclose(forced.pop("weights"), found["weights"], atol=1e-5)
    assert all(pieces.tolist() == found[name].tolist() for name, pieces in forced.items())


def test_score_forces_a_translation(signatures, translator, texts):
    found = call(signatures["serving_default"], text=texts[:30])  # known ones, split as learned
    targets = found["translation"].tolist()
    forced = call(signatures["score"], text=texts[:30], target=targets)["score"]
    assert not found["truncated"].any()
    np.testing.assert_allclose(forced, found["score"], atol=1e-4)
    targets = [*texts[1:], "Ein Hund."]
    forced = call(signatures["score"], text=texts, target=targets)["score"]
    np.testing.assert_allclose(forced, translator.score(texts, targets), atol=1e-4)


def test_score_with_a_target_tokenizer_and_a_search_of_its_own(tokenizer, corpus):
    """Of a model that has learned nothing: the export of the pairs shares its tokenizer."""
    target_tokenizer = type(tokenizer).train(corpus.target, vocab_size=101)
    model = Transformer(tokenizer.vocab_size, 101, num_layers=1, d_model=16, ff_dim=24, num_heads=2)
    decoding = DecodingConfig(length_penalty=1.3, max_length=5, max_source_length=7)
    translator = Translator(model, tokenizer, target_tokenizer, decoding)
    functions = Signatures(translator).functions()
    texts = {"text": corpus.source[4:7], "target": ["Ein Ω läuft.", *corpus.target[5:7]]}
    scores = call(functions["score"], **texts)["score"]
    np.testing.assert_allclose(scores, translator.score(*texts.values()), rtol=1e-4)
    ids = target_tokenizer.encode(corpus.target[:1]).to_tensor()
    assert call(functions["decode"], ids=ids)["text"].tolist() == corpus.target[:1]


def test_bytes_are_no_list_of_texts(exported_translator):
    with pytest.raises(ValueError, match="Expected a list of texts, .* Received: b'A dog.'"):
        exported_translator.translate(b"A dog.")


def test_score_wants_a_target_for_each_text(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected a target for each text"):
        call(signatures["score"], text=["A dog.", "A cat."], target=["Ein Hund."])


def test_encode_and_decode_are_the_tokenizer(signatures, tokenizer, texts):
    ids = call(signatures["encode"], text=texts)["ids"]
    expected, _ = tokenizer.encode_padded(texts, 50)
    np.testing.assert_array_equal(ids, expected)
    decoded = call(signatures["decode"], ids=ids)["text"]
    assert decoded[:30].tolist() == texts[:30]
    stray = call(signatures["decode"], ids=np.array([[5, -7, 10**6, 3, 5]], "int32"))["text"]
    assert stray.shape == (1,)


def test_warm_up_requests_of_every_signature_are_in_the_export(exported, exported_translator):
    path = exported / "assets.extra" / "tf_serving_warmup_requests"
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    names = [log.predict_log.request.model_spec.signature_name for log in logs]
    assert set(names) == set(exported_translator.signatures) and len(logs) < 1000
    for log, name in zip(logs, names, strict=True):
        inputs = {key: tf.make_ndarray(p) for key, p in log.predict_log.request.inputs.items()}
        outputs = exported_translator.signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        rows = {len(value) for value in [*inputs.values(), *outputs.values()]}
        assert len(rows) == 1


def test_an_export_translates_with_prefixes_and_terms(exported_translator, translator, texts):
    # more than are searched at once; one is cut, and has no term, as many would take long
    sources = [*texts[:16], "", "zebra " * 60, "zebra"]
    words = sorted({word.strip(".,?!") for text in texts[:16] for word in text.split()})[::3]
    terms = Terminology({word: ["Bahnhof", "!Hund"] for word in words})
    prefixes = [PREFIXES[i % len(PREFIXES)] for i in range(len(sources))]
    options = {"prefixes": prefixes, "terms": terms}
    found = exported_translator.translate(sources, **options)
    expected = translator.translate(sources, **options)
    for (ours,), (theirs,), prefix in zip(found, expected, prefixes, strict=True):
        assert (ours.text, ours.truncated) == (theirs.text, theirs.truncated)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)
        assert ours.text.startswith(prefix) or not ours.text
    given = [[*terms.cells(text), *[""] * 9][:9] for text in sources]
    answers = exported_translator.signatures["constrained"](
        text=tf.constant(sources), prefix=tf.constant(prefixes), terms=tf.constant(given)
    )
    assert answers["terms_met"].shape == (len(sources), 9) and answers["terms_met"].numpy().all()
    lacking = [terms.not_met(t, best.text) for t, (best,) in zip(sources, found, strict=True)]
    assert sum(map(len, lacking)) == 0 and sum(map(bool, map(terms.terms_of, sources))) > 3
    ((alone,),) = exported_translator.translate(sources[1:2], 1, prefixes[1:2], terms)
    assert alone.text == found[1][0].text
    assert [best.truncated for (best,) in found[16:18]] == [False, True]
    assert not prefixes[-1] and not terms.terms_of(sources[-1])  # translated as always
    with pytest.raises(ValueError, match="Expected one translation of each text"):
        exported_translator.translate(sources, n_best=2, terms=terms)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"prefixes": "\u4e16"}, "prefixes of at most 64 tokens, .* Received: \u4e16"),
        ({"terms": {"dog": "Bahnhof " * 40}}, "terms of at most 32 tokens, .* Received: Bahnhof"),
        ({"terms": {"dog": ["Hund"] * 129}}, "at most 128 forms for each text"),
    ],
)
def test_what_the_tokenizer_cannot_write_is_refused(exported_translator, options, expected):
    limit = exported_translator.decoding.max_length
    with pytest.raises(ValueError, match=expected.replace("64", str(limit))):
        exported_translator.translate(["A dog runs."], **options)


def test_every_text_has_a_prefix_and_a_row_of_terms(signatures):
    inputs = {"text": ["A dog."] * 2, "prefix": ["", ""], "terms": [[""], [""]]}
    for name, expected in (("prefix", "a prefix"), ("terms", "a row of terms")):
        unequal = {**inputs, name: inputs[name][:1]}
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Expected {expected} for each"):
            signatures["constrained"](**{k: tf.constant(x) for k, x in unequal.items()})


def test_an_export_explains_as_the_translator_does(exported_translator, translator, texts):
    targets = [best.text for (best,) in translator.translate(texts)]
    found = exported_translator.explain(texts, targets)
    expected = translator.explain(texts, targets)
    assert sum(len(each.words) for each in expected) > 200
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.source, ours.alignment) == (theirs.source, theirs.alignment)
        assert ours.token_alignment == theirs.token_alignment
        assert [word.text for word in ours.words] == [word.text for word in theirs.words]
        scores = ([word.score for word in each.words] for each in (ours, theirs))
        np.testing.assert_allclose(*scores, atol=1e-4)
        assert (ours.attention is None) == (theirs.attention is None)
        if ours.attention is not None:
            np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-5)
    marked = [f"{{0}} <b>{text}</b> %s" for text in texts[:5]]
    with_markup = MarkupTranslator(exported_translator)(marked)
    assert with_markup == MarkupTranslator(translator)(marked)
    assert all("<b>" in text for text in with_markup)
    with pytest.raises(ValueError, match="Expected a target for each source"):
        exported_translator.explain(texts, targets[1:])


def test_an_explanation_tells_of_unknown_and_cut_texts(exported_translator, translator):
    texts = ["A dog.", "A 🎒 dog 🎒.", "a dog " * 300, ""]
    explain = exported_translator.signatures["explain"]
    found = explain(text=tf.constant(texts), target=tf.constant(["Ein Hund."] * len(texts)))
    ids = translator.tokenizer.encode(texts).to_list()
    unknown = [sum(i in translator.tokenizer.unknown_ids for i in row) for row in ids]
    assert found["num_unknown"].numpy().tolist() == unknown and unknown[1] > 1
    assert found["truncated"].numpy().tolist() == [False, False, True, False]
