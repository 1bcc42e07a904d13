import io
import types

import keras
import numpy as np
import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.data import TranslationBatches
from keras_transformer.models import Transformer
from keras_transformer.training.callbacks import BleuCallback, SampleTranslations
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.translation.evaluation import bleu
from keras_transformer.translation.translator import Translator

GREEDY = DecodingConfig(beam_size=1, max_length=6)
pytestmark = pytest.mark.usefixtures("uncompiled")

SIZES = dict(num_layers=1, d_model=8, ff_dim=8, num_heads=2)
SHORT = DecodingConfig(beam_size=1, max_length=3)


def fit(model, tokenizer, corpus, epochs, callbacks):
    """Takes a step in each epoch."""
    model.compile(keras.optimizers.SGD(0.1), TokenCrossEntropy(0.0), run_eagerly=True)
    dataset = TranslationBatches(corpus, tokenizer, batch_tokens=300).dataset()
    model.fit(dataset, epochs=epochs, steps_per_epoch=1, callbacks=callbacks, verbose=0)


class Remember(keras.callbacks.Callback):
    """Stands for any callback that is placed after another and reads the epoch's logs."""

    def on_train_begin(self, logs=None):
        self.values, self.weights = [], []

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(logs.get("val_bleu"))
        self.weights.append(self.model.get_weights())


class Forget(keras.callbacks.Callback):
    """Makes the model of each epoch a worse one than that of the epoch before."""

    def on_epoch_begin(self, epoch, logs=None):
        rng = np.random.default_rng(1)
        for weight in self.model.trainable_variables:
            weight.assign_add(rng.normal(scale=0.1 * epoch, size=weight.shape))


@pytest.fixture(scope="module")
def run(tokenizer, corpus, translator):
    """Two epochs with both callbacks, of a model that knows the sentences in the first."""
    sources, references = corpus.source[:5], corpus.target[:5]
    stream, remember = io.StringIO(), Remember()
    lines = []
    model = Transformer.from_config(translator.model.get_config())
    model.build()
    model.set_weights(translator.model.get_weights())
    score = BleuCallback(
        sources, references, tokenizer, decoding=GREEDY, samples=2, write=lines.append
    )
    samples = SampleTranslations(
        sources[:2], references[:2], tokenizer, decoding=SHORT, every=2, stream=stream
    )
    fit(model, tokenizer, corpus, 2, [Forget(), score, samples, remember])
    history = model.history.history
    translator = Translator(model, tokenizer, decoding=GREEDY)
    translations = {}  # by the weights of each epoch
    for epoch, weights in enumerate(remember.weights):
        model.set_weights(weights)
        translations[epoch] = translator(sources)
    return types.SimpleNamespace(
        model=model, sources=sources, references=references, printed=stream.getvalue(), lines=lines,
        history=history, remember=remember, translations=translations,
    )  # fmt: skip


def test_val_bleu_is_the_bleu_of_each_epochs_weights_by_greedy_search(run):
    assert run.history["val_bleu"] == run.remember.values
    translations = run.translations.values()
    for value, texts in zip(run.remember.values, translations, strict=True):
        assert value == bleu(texts, run.references).value
    assert len(set(run.remember.values)) == 2


def test_samples_are_printed_beside_their_references(run, tokenizer):
    run.model.set_weights(run.remember.weights[1])
    translations = Translator(run.model, tokenizer, decoding=SHORT)(run.sources[:2])
    assert run.printed == (
        "\nepoch 2\n"
        f"  source       {run.sources[0]}\n"
        f"  reference    {run.references[0]}\n"
        f"  translation  {translations[0]}\n"
        "\n"
        f"  source       {run.sources[1]}\n"
        f"  reference    {run.references[1]}\n"
        f"  translation  {translations[1]}\n"
        "\n"
    )


def test_the_first_of_the_translations_that_are_scored_are_shown(run):
    blocks = [run.lines[i : i + 4] for i in range(0, len(run.lines), 4)]
    assert len(blocks) == 2 * 2  # of each epoch
    for epoch, translations in run.translations.items():
        for i in range(2):
            assert blocks[2 * epoch + i] == [
                f"  source       {run.sources[i]}",
                f"  reference    {run.references[i]}",
                f"  translation  {translations[i]}",
                "",
            ]


def test_of_several_references_the_first_is_shown(tokenizer, capsys):
    callback = BleuCallback(["A dog."], [["Ein Hund."], ["Hund."]], tokenizer, samples=5)
    assert callback.decoding == DecodingConfig(beam_size=1)
    callback.on_translations(0, ["Ein Hut."], {})
    expected = "  source       A dog.\n  reference    Ein Hund.\n  translation  Ein Hut.\n\n"
    assert capsys.readouterr().err == expected


def test_other_callbacks_can_monitor_val_bleu(tokenizer, corpus, tmp_path, capsys):
    class Scripted(BleuCallback):
        def on_translations(self, epoch, translations, logs):
            logs["val_bleu"] = [3.0, 5.0, 4.0, 9.0][epoch]

    best = tmp_path / "best.weights.h5"
    remember = Remember()
    sources, references = corpus.source[:1], corpus.target[:1]
    model = Transformer(tokenizer.vocab_size, **SIZES)
    model.build()
    fit(
        model,
        tokenizer,
        corpus,
        4,
        [
            Scripted(sources, references, tokenizer, decoding=SHORT),
            SampleTranslations(sources, references, tokenizer, decoding=SHORT),
            keras.callbacks.ModelCheckpoint(
                best, "val_bleu", mode="max", save_best_only=True, save_weights_only=True
            ),
            keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=1),
            remember,
        ],
    )
    assert remember.values == [3.0, 5.0, 4.0]
    model.load_weights(best)
    for saved, weights in zip(model.get_weights(), remember.weights[1], strict=True):
        np.testing.assert_array_equal(saved, weights)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count(sources[0]) == 3  # standard error, unless told otherwise


def test_bleu_takes_case_tokenizer_and_several_references(tokenizer):
    hypotheses = ["ein hund rennt", "eine katze schläft"]
    references = [["EIN HUND LÄUFT", "EINE KATZE SCHLÄFT"], ["ein Hund rennt", "sie schläft"]]
    callback = BleuCallback(
        ["A dog runs.", "A cat sleeps."], references, tokenizer, lowercase=True, tokenize="char"
    )
    logs = {}
    callback.on_translations(0, hypotheses, logs)
    assert logs["val_bleu"] == pytest.approx(100)
    BleuCallback(hypotheses, references[0], tokenizer).on_translations(0, hypotheses, logs)
    assert logs["val_bleu"] == bleu(hypotheses, references[0]).value < 50


def test_parts_of_the_text_have_their_own_bleu(tokenizer):
    hypotheses, references = ["a b c d", "e f g h", "x"], ["a b c d", "e f g i", "x"]
    groups = {">>a<<": [0, 2], ">>b<<": [1]}
    logs = {}
    callback = BleuCallback(hypotheses, [references], tokenizer, groups=groups)
    callback.on_translations(0, hypotheses, logs)
    assert logs == {
        "val_bleu": bleu(hypotheses, references).value,
        "val_bleu/>>a<<": pytest.approx(100),
        "val_bleu/>>b<<": bleu(hypotheses[1:2], references[1:2]).value,
    }


def test_a_target_tokenizer_of_its_own(tokenizer, corpus):
    target_tokenizer = type(tokenizer).train(corpus.target, vocab_size=101)
    model = Transformer(tokenizer.vocab_size, 101, **SIZES)
    callback = BleuCallback(
        corpus.source[:2], corpus.target[:2], tokenizer, target_tokenizer, SHORT
    )
    callback.set_model(model)
    expected = Translator(model, tokenizer, target_tokenizer, SHORT)(corpus.source[:2])
    assert callback.translations() == expected
    assert callback.translator.target_tokenizer is target_tokenizer


def test_wrong_references_are_refused_before_training(tokenizer):
    with pytest.raises(ValueError, match="2 hypotheses, 1 lines in reference 1"):
        BleuCallback(["A dog.", "A cat."], ["Ein Hund."], tokenizer)
    with pytest.raises(ValueError, match="tokenize='moses'"):
        BleuCallback(["A dog."], ["Ein Hund."], tokenizer, tokenize="moses")
    with pytest.raises(ValueError, match="2 sources, 1 references"):
        SampleTranslations(["A dog.", "A cat."], ["Ein Hund."], tokenizer)
