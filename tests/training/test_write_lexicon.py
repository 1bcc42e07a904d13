import copy
import importlib
import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer.config import Config
from keras_transformer.data import ParallelCorpus
from keras_transformer.errors import InputError
from keras_transformer.models import Transformer
from keras_transformer.runs.run import Run, checksum_of_tokenizers
from keras_transformer.training import write_lexicon
from keras_transformer.translation.lexicon import Lexicon, load_lexicon

module = importlib.import_module("keras_transformer.training.write_lexicon")
SIZES = dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2)


@pytest.fixture
def files(corpus, tmp_path):
    paths = {"source": tmp_path / "train.en", "target": tmp_path / "train.de"}
    for path, texts in zip(paths.values(), (corpus.source, corpus.target), strict=True):
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return {"train": [paths], "valid": [paths]}


@pytest.fixture
def make_run(tokenizer, tmp_path, files):
    """Returns a function that writes an untrained run, whose two tokenizers may be equal files."""

    def make_run(shared=True, **data):
        values = {"data": {**files, **data}, "tokenizer": {"shared": shared}}
        run = Run(tmp_path / "run")
        run.path.mkdir()
        target_tokenizer = tokenizer if shared else copy.copy(tokenizer)
        run.create(Config(model=SIZES).merged(values), tokenizer, target_tokenizer)
        keras.utils.set_random_seed(1)  # other weights may give an empty translation
        model = Transformer(tokenizer.vocab_size, None if shared else tokenizer.vocab_size, **SIZES)
        model.build()
        model.save_weights(run.averaged_path)
        end = {"step": 1, "limit": "max_steps", "value": 1, "reason": "", "metrics": {}}
        end["checkpoint"] = "averaged"
        run.finished_path.write_text(json.dumps(end))
        return run.path

    return make_run


def tokens_of(translator, text):
    """Returns the set of tokens of which the translation of a text may consist."""
    (row,), _ = translator._encode_sources([text])
    ids, bias = translator._batch_search.shortlist_of(row[None])
    return {int(i) for i, b in zip(ids, bias[0], strict=True) if b == 0}


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_translates_with_the_lexicon_of_its_text(make_run, corpus, shared, eagerly):
    path, lines = make_run(shared), []
    assert write_lexicon(path, write=lines.append) == path / "lexicon.npz"
    assert f"from {len(corpus)} pairs" in lines[-1]
    translator = keras_transformer.load(path, shortlist=3, max_length=8)
    allowed = tokens_of(translator, "A dog runs.")
    hund = translator.target_tokenizer.encode(["Ein Hund"]).flat_values.numpy().tolist()
    assert set(hund) < allowed and len(allowed) < translator.target_tokenizer.vocab_size
    assert translator.lexicon.table[:, 0].any() == shared  # tokens that can be copied
    (best,) = translator.translate(["A dog runs."])[0]
    assert best.text and best.score < 0


def test_a_training_makes_the_lexicon_that_its_search_needs(start_training, tokenizer, tmp_path):
    """From the text that it is given, which need not be in files; once."""
    config = Config(model=SIZES).override(["decoding.shortlist=3", "tokenizer.vocab_size=150"])
    lines = start_training(config, path := tmp_path / "run").lines
    assert any(line.startswith("lexicon ") for line in lines)
    made = load_lexicon(path).table
    assert made[:, 1:].any()
    again = start_training(config, path).lines
    assert not any(line.startswith("lexicon ") for line in again)
    plain = tmp_path / "plain"
    start_training(config.override(["decoding.shortlist=0"]), plain)
    assert not Run(plain).lexicon_path.exists()


def test_other_text_can_be_given(make_run, corpus, tmp_path):
    path = make_run(train=[{"tsv": tmp_path / "gone.tsv"}])
    with pytest.raises(ValueError) as caught:
        write_lexicon(path)
    assert str(tmp_path / "gone.tsv") in str(caught.value)
    assert "Give other parallel text: --source F --target F" in str(caught.value)
    assert not (path / "lexicon.npz").exists()
    write_lexicon(path, ParallelCorpus.from_pairs([("A dog", "Ein Hund")]), write=lambda line: None)
    assert keras_transformer.load(path, shortlist=1).lexicon.table.any()


def test_pairs_that_training_leaves_out_are_left_out(make_run, sentence_pairs):
    path, lines = make_run(max_length=16), []
    write_lexicon(path, write=lines.append)
    tokenizer = keras_transformer.load(path).tokenizer
    lengths = [
        tokenizer.encode(texts).row_lengths().numpy() for texts in zip(*sentence_pairs, strict=True)
    ]
    num_short = int((np.maximum(*lengths) < 16).sum())
    assert 0 < num_short < len(sentence_pairs) and f"from {num_short} pairs" in lines[-1]


def test_of_much_text_every_nth_pair_is_read(make_run, corpus, monkeypatch):
    monkeypatch.setattr(module, "MAX_PAIRS", -(-len(corpus) // 3))
    lines = []
    write_lexicon(make_run(), write=lines.append)
    assert f"from {len(corpus.source[::3])} pairs" in lines[-1]


def test_text_without_a_pair_that_is_short_enough_is_refused(make_run):
    path = make_run(max_length=2)
    with pytest.raises(ValueError, match="all longer than data.max_length=2 tokens"):
        write_lexicon(path, write=lambda line: None)
    assert not (path / "lexicon.npz").exists()


def test_a_run_that_cannot_be_written_is_refused_before_the_work(make_run, monkeypatch):
    run = make_run()
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    monkeypatch.setattr(module.Lexicon, "learn", lambda *arguments: pytest.fail("minutes of work"))
    with pytest.raises(ValueError, match="Expected a directory to write to.*cannot be written"):
        write_lexicon(run)


def test_two_tokenizers_of_one_vocabulary_copy_source_tokens(make_run, tokenizer):
    """As those of an imported run, whose two SentencePiece models share their ids."""
    path = make_run()
    run = Run(path)
    run.create(run.load_config(), tokenizer, copy.copy(tokenizer))
    assert len(set(map(id, run.load_tokenizers(run.load_config())))) == 2
    write_lexicon(path, write=lambda line: None)
    table = keras_transformer.load(path, "averaged", shortlist=2).lexicon.table
    np.testing.assert_array_equal(table[:, 0], np.arange(tokenizer.vocab_size))


def test_a_lexicon_of_other_sizes_is_refused(make_run, tokenizer):
    """Its checksum of the tokenizers may be right all the same."""
    path, size = make_run(), tokenizer.vocab_size
    for sizes in ((size - 1, size), (size, size + 1)):
        other = Lexicon(np.zeros((sizes[0], 2), "int32"), np.zeros(1, "int32"), sizes[1])
        other.save(path / "lexicon.npz", checksum_of_tokenizers((tokenizer, tokenizer)))
        with pytest.raises(InputError, match=re.escape(f"lexicon.npz, of {sizes}. Make it again")):
            load_lexicon(path)


def test_the_validation_files_are_not_needed(make_run, tmp_path):
    path = make_run(valid=[{"tsv": tmp_path / "gone.tsv"}])
    assert write_lexicon(path, write=lambda line: None).exists()


def test_a_training_that_begins_leaves_a_lexicon_that_is_being_written(make_run):
    path = make_run()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    numbers = os.getppid(), dead.pid, os.getpid()
    files = [path / f".{number}.lexicon.npz" for number in numbers]
    for file in files:
        file.touch()
    Run(path).recover()  # in a container, a killed process often had our own number
    assert [file.exists() for file in files] == [True, False, False]


def test_a_shortlist_needs_the_lexicon_of_the_same_tokenizers(make_run):
    path = make_run()
    with pytest.raises(ValueError, match="lexicon.npz, which does not exist. Make it with `keras"):
        keras_transformer.load(path, shortlist=2)
    write_lexicon(path, write=lambda line: None)
    lexicon = keras_transformer.load(path, shortlist=2).lexicon
    lexicon.save(path / "lexicon.npz", tokenizers="others")
    with pytest.raises(ValueError, match="made with others"):
        keras_transformer.load(path, shortlist=2)
