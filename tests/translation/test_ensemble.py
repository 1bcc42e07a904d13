"""Several runs that translate as one model."""

import shutil

import pytest

from keras_transformer.config import Config, DecodingConfig
from keras_transformer.models import Ensemble, RnnSeq2Seq, Transformer
from keras_transformer.runs.run import Run
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator

SETTINGS = {
    "first": {"num_layers": 1, "d_model": 16, "ff_dim": 20, "num_heads": 2},
    "second": {"name": "rnn_seq2seq", "d_model": 12, "units": 10},
}
GREEDY = DecodingConfig(beam_size=1, max_length=9)


@pytest.fixture(scope="module")
def runs(tokenizer, tmp_path_factory):
    """The paths of two runs with one tokenizer and models of different classes."""
    folder, paths = tmp_path_factory.mktemp("runs"), []
    for name, settings in SETTINGS.items():
        run = Run(folder / name)
        config = Config(model=settings, decoding=GREEDY if name == "first" else DecodingConfig())
        run.create(config, tokenizer, tokenizer)
        model_class = RnnSeq2Seq if "units" in settings else Transformer
        model = model_class(tokenizer.vocab_size, **config.model_arguments)
        model.build()
        model.save_weights(run.averaged_path)
        paths.append(run.path)
    return paths


@pytest.fixture(scope="module")
def both(runs):
    return load(runs, "averaged")


def test_runs_are_loaded_with_the_search_of_the_first(runs, both):
    assert isinstance(both.model, Ensemble) and both.model.mean == "probabilities"
    assert [type(member) for member in both.model.members] == [Transformer, RnnSeq2Seq]
    assert both.decoding == GREEDY
    assert isinstance(load(runs[:1], "averaged").model, Transformer)  # a list of one is no ensemble


def test_the_translation_has_the_score_that_the_ensemble_gives_it(both, corpus, eagerly):
    sources = corpus.source[:4]
    answers = [best for (best,) in both.translate(sources)]
    scores = both.score(sources, [best.text for best in answers])
    for best, expected in zip(answers, scores, strict=True):
        if not best.truncated:
            assert best.score == pytest.approx(expected, abs=1e-4)
    inputs = both.explain(sources, corpus.target[:4])
    assert all(word.source is not None for each in inputs for word in each.words)
    found = both.attention(sources[0], corpus.target[0])
    assert set(found.weights) == {"cross"} and found.weights["cross"].shape[:2] == (1, 3)


def test_another_mean_or_search_has_another_checksum(runs, both, tokenizer):
    copied = Translator(both.model, tokenizer, decoding=GREEDY)
    assert copied.checksum() == both.checksum()
    assert load(runs, "averaged", "log_probabilities").checksum() != both.checksum()
    assert load(runs[::-1], "averaged").checksum() != both.checksum()


def test_an_ensemble_needs_two_runs_and_one_vocabulary(runs, corpus, tmp_path):
    other = Run(shutil.copytree(runs[0], tmp_path / "other"))
    others = SentencePieceTokenizer.train(corpus.source, vocab_size=150)
    shutil.rmtree(other.path)
    other.create(Config(model=SETTINGS["first"]), others, others)
    export = tmp_path / "export" / "1"
    export.mkdir(parents=True)
    (export / "saved_model.pb").touch()
    for paths, options, message in (
        ([runs[0], other.path], {}, "same tokenizer.*Received: .*other, whose tokenizers differ"),
        (runs[:1], {"ensemble": "probabilities"}, "several runs for an ensemble. Received: path="),
        ([], {}, "several runs"),
        ([runs[0], export.parent], {}, "Expected runs for an ensemble. Received: .*an export"),
        ([runs[0], tmp_path / "none"], {}, "none"),
    ):
        with pytest.raises(ValueError, match=message):
            load(paths, **options)
