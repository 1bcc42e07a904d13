"""The proof of an export must fail where the export is wrong."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.export import serving_session, verification
from keras_transformer.export.verification import (
    INT8_TOLERANCE,
    ExportError,
    _is_near_tie,
    _is_other,
    verify,
)
from keras_transformer.translation.base_translator import Translation


def test_export_that_tracks_the_keras_model_is_not_proven(tmp_path):
    """Python reads such a SavedModel back; a server does not find the variables."""
    dense = keras.layers.Dense(1)
    dense.build((None, 1))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text):
        score = dense(tf.zeros([tf.size(text), 1]))[:, 0]
        return {"translation": text, "score": score, "truncated": score > 1.0}

    tracked = tf.Module()
    tracked.layer = dense
    tf.saved_model.save(tracked, tmp_path, signatures=serve)
    tf.saved_model.load(tmp_path).signatures["serving_default"](text=tf.constant(["A dog."]))
    with pytest.raises(tf.errors.OpError, match="Could not find variable"):
        serving_session.answer(str(tmp_path), [np.array([b"A dog."], object)])


def test_export_that_needs_xla_is_not_proven(translator, tmp_path, forking):
    """The error of the other process is that of the export."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(text):
        score = tf.function(lambda x: 2.0 * x, jit_compile=True)(tf.zeros([tf.size(text)]))
        return {"translation": text, "score": score, "truncated": score > 1.0}

    tf.saved_model.save(tf.Module(), tmp_path, signatures=serve)
    with forking(verification), pytest.raises(ExportError, match="Expected a graph without XLA"):
        verify(tmp_path, translator)


@pytest.fixture
def served(monkeypatch, translator):
    """Puts a function of a batch of texts in the place of the fresh process."""

    def serve(answer):
        def translate(saved_model, batches):
            texts = [[text.decode("utf-8", "replace") for text in batch] for batch in batches]
            return [[list(row) for row in answer(batch)] for batch in texts]

        monkeypatch.setattr(verification, "_translate_in_fresh_process", translate)

    return serve


@pytest.fixture(scope="module")
def right(translator):
    """The translator's answers to a batch of texts."""

    @functools.cache
    def answers(texts):
        return [best for (best,) in translator.translate(texts)]

    return lambda texts: list(answers(tuple(texts)))


def test_answers_that_depend_on_their_neighbours_are_not_proven(served, translator, right):
    """Each is right in the batch in which the translator was asked too, and wrong alone."""

    def right_in_company(change):
        return lambda texts: right(texts) if len(texts) > 1 else [change(*right(texts))]

    served(right)
    proven = verify("a path", translator)
    assert proven.num_texts == 64 + 7 + 8 + 7  # two batches, and eight texts of each alone
    for change in (
        lambda best: best._replace(score=best.score - 0.01),
        lambda best: best._replace(text=best.text + " ja"),
        lambda best: best._replace(truncated=not best.truncated),
    ):
        served(right_in_company(change))
        with pytest.raises(ExportError, match="must (translate|answer) as"):
            verify("a path", translator)


def test_other_texts_of_the_same_scores_are_not_proven(served, translator, right):
    """As of an export with another target tokenizer: near-ties are rare where all is right."""

    served(lambda texts: [best._replace(text=f"{best.text} ja") for best in right(texts)])
    with pytest.raises(ExportError, match="at most 5% of the inputs. Received: 86 of 86"):
        verify("a path", translator)


@pytest.mark.parametrize("place", [0, 63])
def test_one_wrong_answer_in_a_batch_is_found(served, translator, right, place):
    def all_but_one(texts):
        answers = right(texts)
        if len(answers) == 64:
            answers[place] = answers[place]._replace(text="falsch", score=0.0)
        return answers

    served(all_but_one)
    with pytest.raises(ExportError, match="Received: .'falsch'"):
        verify("a path", translator)


def test_near_ties_are_told_from_errors():
    expected = Translation("Ein Hund.", -1.25, False)
    assert not _is_near_tie(b"", expected, ["Ein Hund.", -1.25, False])
    assert not _is_near_tie(b"", expected, ["Ein Hund.", -1.2501, False])
    assert _is_near_tie(b"", expected, ["Der Hund.", -1.250001, False])
    for wrong in (
        ["Der Hund.", -1.2501, False],
        ["Ein Hund.", -1.26, False],
        ["Ein Hund.", -1.25, True],
    ):
        with pytest.raises(ExportError, match="Expected.*Received"):
            _is_near_tie(b"", expected, wrong)


def test_other_translations_in_int8_are_few(served, translator, right):
    """As an input of a product may be rounded to the next whole number; scores remain."""
    other = Translation("anders", -9.0, False)

    def some_others(number):
        def answer(texts):
            answers = right(texts)
            return [other] * number + answers[number:]

        return lambda texts: answer(texts) if len(texts) == 64 else right(texts)

    served(some_others(21))
    assert verify("a path", translator, products="int8").num_near_ties == 21

    def wrong_alone(texts):
        is_alone = len(texts) == 1
        return [other if is_alone and best.score else best for best in right(texts)]

    served(wrong_alone)
    with pytest.raises(ExportError, match=r"at most 25% of the inputs. Received: 1\d of 15"):
        verify("a path", translator, products="int8")

    def wrong_copies(texts):
        pairs = zip(texts, right(texts), strict=True)
        return [best if text.strip() else other for text, best in pairs]

    served(wrong_copies)
    with pytest.raises(ExportError, match="Received: .'anders'"):
        verify("a path", translator, products="int8")
    served(some_others(22))
    with pytest.raises(ExportError, match="at most 25% of the inputs. Received: 22 of 86"):
        verify("a path", translator, products="int8")
    longer = Translation("Hund Hund Hund", -34.83, True)  # of `base`, rounded twice
    assert not _is_other(b"", longer, ["Hund Hund Hund", -34.80, True], INT8_TOLERANCE)
    for wrong in (-35.5, float("nan")):
        with pytest.raises(ExportError, match="Expected.*Received"):
            _is_other(b"", longer, ["Hund Hund Hund", wrong, True], INT8_TOLERANCE)
