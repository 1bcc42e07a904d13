"""Guided alignment: where its links come from, that it acts, and what a run keeps of it."""

import shutil

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.models import Transformer
from keras_transformer.models.from_config import check_model
from keras_transformer.runs import load_run
from keras_transformer.runs.run import Run
from keras_transformer.training import Perplexity, TokenAccuracy, TokenCrossEntropy, train
from keras_transformer.training.guided_alignment import links_of_batches
from keras_transformer.translation.lexicon import align
from keras_transformer.translation.loading import load

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture
def guided(config, sentence_pairs, tmp_path):
    """The settings of a training by a file, and the file, in which first words are aligned."""
    path = tmp_path / "links"
    path.write_text("0-0\n" * len(sentence_pairs))
    return config.override([f"training.guided_alignment={path}"]), path


def test_links_of_a_lexicon_are_those_of_the_words_of_its_tokens(corpus, tokenizer):
    batches, lines = TranslationBatches(corpus, tokenizer), []
    found = links_of_batches(batches, corpus, [tokenizer] * 2, None, lines.append)
    rows = [list(side.texts()) for side in batches.rows]
    words = [
        [np.cumsum([i == 0 or tokenizer.surfaces[x][:1] == b" " for i, x in enumerate(row)]) - 1
         for row in side] for side in rows
    ]  # fmt: skip
    for i, links in enumerate(align(*rows)):
        expected = [[words[0][i][s], words[1][i][t]] for s, t in links]
        assert found.row(i).tolist() == expected
    assert f"{len(found.ids):,} pairs of tokens" in lines[0]


def test_links_of_a_file_are_of_the_pairs_in_the_batches(tokenizer):
    """Without those of sentences whose words the tokenizer does not know, as after U+200B."""
    pairs = [("A dog runs.", "Ein Hund rennt."), ("A dog " * 40, "Ein Hund"), ("A\u200bdog", "Ein")]
    corpus = ParallelCorpus.from_pairs([*pairs, ("A dog", "Ein Hund")])
    batches = TranslationBatches(corpus, tokenizer, max_length=30)
    links, lines = RaggedIds(np.array([[2, 2], [7, 1], [0, 0], [1, 0], [0, 1]]), [1, 1, 1, 2]), []
    found = links_of_batches(batches, corpus, [tokenizer] * 2, links, lines.append)
    assert [found.row(i).tolist() for i in range(3)] == [[[2, 2]], [], [[1, 0], [0, 1]]]
    assert lines[1].split() == "without 1 sentences that the tokenizer splits otherwise".split()


@pytest.mark.slow
def test_a_head_learns_to_align():
    """A target that says the source backwards, in few steps: with the guide it is known where."""
    rng = np.random.default_rng(1)
    source = rng.integers(4, 20, (32, 6))
    backwards = np.eye(6, dtype="float32")[::-1]
    target_ids = np.concatenate([np.full((32, 1), 2), source[:, :0:-1]], axis=1)
    found = []
    for is_guided in (True, False):
        keras.utils.set_random_seed(1)
        model = Transformer(20, d_model=16, num_layers=1, ff_dim=8, num_heads=2, dropout=0.0)
        metrics = [TokenAccuracy(), Perplexity()]
        loss = TokenCrossEntropy(alignment_weight=1.0)
        model.compile(keras.optimizers.Adam(0.02), loss, metrics=metrics)
        inputs = {"source_ids": source, "target_ids": target_ids}
        fed = inputs | ({"alignment": np.tile(backwards, (32, 1, 1))} if is_guided else {})
        weights = np.full(source.shape, 1 / source.size)
        model.fit(fed, source[:, ::-1], 32, 40, sample_weight=weights, verbose=0, shuffle=False)
        _, weights = model(inputs, return_attention_weights=True)
        right = ops.convert_to_numpy(weights["cross"][0])[:, 0].argmax(-1) == backwards.argmax(-1)
        found.append(right.mean())
    assert found[0] > 0.9 > found[1] + 0.3


def test_an_alignment_that_no_loss_learns_is_refused():
    model = Transformer(20, d_model=8, num_layers=1, ff_dim=8, num_heads=2)
    ids = np.full((2, 3), 5)
    inputs = {"source_ids": ids, "target_ids": ids, "alignment": np.zeros((2, 3, 3), "float32")}
    with pytest.raises(ValueError, match="Expected a step of fit where the inputs have an align"):
        model(inputs, training=True)


def weights_of(run):
    return np.concatenate([np.ravel(x) for x in load_run(run, "last")[0].get_weights()])


def test_a_run_keeps_its_alignments(guided, train_quietly, train_to_last_checkpoint, tmp_path):
    """It goes on by the same file alone, and aligns words by the head that it has trained.

    Its weights are others than those of the same training without alignments.
    """
    config, links = guided
    config = config.override(["training.max_steps=2", "training.checkpoint_every=1"])
    without = config.override(["training.guided_alignment=null"])
    run, whole = tmp_path / "run", tmp_path / "whole"
    train_to_last_checkpoint(config, whole)
    train_to_last_checkpoint(without.override(["training.max_steps=1"]), tmp_path / "without")
    shutil.copytree(whole, run)
    shutil.rmtree(Run(run).checkpoints.path(2))  # as if it had been killed before
    first = weights_of(run)
    content = links.read_text()
    links.write_text(content.replace("0-0", "1-0", 1))
    with pytest.raises(ValueError, match="Expected the alignments that the run began with. Rec"):
        train_quietly(config, run)
    with pytest.raises(ValueError, match="guided_alignment=None"):
        train_quietly(without, run)
    links.write_text(content)
    train_to_last_checkpoint(config, run)
    np.testing.assert_allclose(weights_of(run), weights_of(whole), rtol=1e-4, atol=1e-6)
    assert np.abs(first - weights_of(tmp_path / "without")).max() > 1e-4
    assert load(run).alignment_head == (0, 0)


def test_a_wrong_file_is_refused_before_a_tokenizer_is_trained(guided, monkeypatch, tmp_path):
    from keras_transformer.training import translation_task

    monkeypatch.setattr(translation_task, "train_tokenizers", None)
    config, links = guided
    content = links.read_text()
    for wrong in (content + "0-0\n", content.replace("0-0", "0-99", 1), "x" + content):
        links.write_text(wrong)
        with pytest.raises(ValueError, match="links"):
            train(config, tmp_path / "run", write=lambda line: None)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "model", [["model.name=rnn_seq2seq"], ["model.cross_attention=linear"]], ids=str
)
def test_models_without_heads_are_refused(config, model):
    config = config.override(["training.guided_alignment=lexicon", *model])
    with pytest.raises(ValueError, match="dense attention to the source"):
        check_model(config)


def test_an_export_has_no_choice_of_a_head(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="no choice of a head"):
        load(tmp_path, alignment_head=(0, 0))
