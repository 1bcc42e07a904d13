"""An imported model is a run like another: it translates, trains further, and is exported."""

import importlib
import json
import re
import shutil

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import cli
from keras_transformer.config import Config
from keras_transformer.convert import import_run, read_marian
from keras_transformer.convert.tensor_files import read_tensors, write_tensors
from keras_transformer.data import ParallelCorpus
from keras_transformer.errors import InputError
from keras_transformer.export import hugging_face
from keras_transformer.export.verification import Verification
from keras_transformer.training import train
from keras_transformer.translation.loading import load

pytest.importorskip("safetensors.numpy")


CHECKPOINTS = "best", "last"


@pytest.fixture(scope="module")
def directory(marian, tmp_path_factory):
    """A directory of Hugging Face's files whose model writes short answers that differ."""
    directory = tmp_path_factory.mktemp("model")
    tensors = marian.hugging_face(directory, generation={"num_beams": 2})
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors["final_logits_bias"][0, 0] = 1.0
    safetensors.save_file(tensors, directory / "model.safetensors")
    return directory


@pytest.fixture(scope="module")
def run(directory, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "imported"
    assert import_run(directory, path, lambda line: None) == path
    return path


def test_the_run_translates_as_the_files_do(directory, run, texts):
    texts = texts[:24]
    expected = read_marian(directory).translate(texts, n_best=2)
    assert len({best.text for best, _ in expected}) > 10  # with these weights, 15 of 24
    translator = keras_transformer.load(run)
    assert translator.translate(texts, n_best=2) == expected
    weights = translator.model.get_weights()
    for other in (read_marian(directory), *(keras_transformer.load(run, c) for c in CHECKPOINTS)):
        for weight, its in zip(weights, other.model.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, its)
    with pytest.raises(ValueError, match="Received: .* which has none"):
        keras_transformer.load(run, "averaged")


def test_its_settings_can_be_read_and_changed(run):
    config = Config.load(run / "config.yaml")
    assert config.tokenizer.shared and config.decoding.length_normalization == "length"
    assert sorted(path.name for path in (run / "tokenizer").iterdir()) == [
        "source.marian.json",
        "target.marian.json",
    ]
    translator = keras_transformer.load(run, beam_size=1, length_normalization="gnmt")
    assert translator.decoding.beam_size == 1


def test_scores_and_attention_of_a_given_translation(run, eagerly):
    translator = keras_transformer.load(run)
    source, target = ">>deu<< A cat sleeps.", "Eine Katze schläft."
    found = translator.attention(source, target)
    assert found.source_pieces[0] == ">>deu<<" and found.source_pieces[-1] == "</s>"
    assert found.target_inputs[0] == "<s>"
    assert translator.target_tokenizer.decode(
        translator.target_tokenizer.encode([target])
    ).numpy() == [target.encode()]
    assert np.isfinite(translator.score([source], [target])).all()
    tree = translator.search_tree(source)
    ((best,),) = translator.translate([source])
    score = tree.nodes[tree.best].score
    assert score is None if best.truncated else score == pytest.approx(best.score, abs=1e-4)


def test_a_separate_vocabulary_for_each_language(marian, tmp_path):
    """Two tables, the target's with more tokens than the source's."""
    tensors = marian.hugging_face(
        tmp_path,
        {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": marian.vocab_size},
        tokenizer={"separate_vocabs": True},
    )
    (tmp_path / "vocab.json").rename(tmp_path / "target_vocab.json")
    pieces = [piece for piece in marian.ids if piece != ">>deu<<"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}))
    config = json.loads((tmp_path / "config.json").read_text())
    config["vocab_size"] = len(pieces)
    config["pad_token_id"] = len(pieces) - 1  # as of a row that both tables have
    (tmp_path / "config.json").write_text(json.dumps(config))
    table = tensors.pop("model.shared.weight")
    tensors["model.encoder.embed_tokens.weight"] = table[: len(pieces)].copy()
    tensors["model.decoder.embed_tokens.weight"] = table
    pytest.importorskip("safetensors.numpy").save_file(tensors, tmp_path / "model.safetensors")
    run = import_run(tmp_path, tmp_path / "run", lambda line: None)
    translator = keras_transformer.load(run)
    sizes = translator.model.source_vocab_size, translator.model.target_vocab_size
    assert sizes == (marian.vocab_size, marian.vocab_size + 1)
    assert not Config.load(run / "config.yaml").tokenizer.shared
    files = read_marian(tmp_path)
    for found, expected in (
        (translator.tokenizer, files.tokenizer),
        (translator.target_tokenizer, files.target_tokenizer),
    ):
        assert found.serialized == expected.serialized
    for weight, other in zip(
        translator.model.get_weights(), files.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(weight, other)


@pytest.mark.slow
def test_fine_tuning_starts_from_it_and_its_own_training_cannot_go_on(run, tmp_path, corpus):
    decoding = {"length_normalization": "length", "max_length": 20}
    training = {"max_steps": 6, "checkpoint_every": 3, "warmup_steps": 2, "batch_tokens": 256}
    config = Config().merged({"training": training, "decoding": decoding})
    lines = []
    before = keras_transformer.load(run).model.get_weights()
    metrics = train(
        config, tmp_path / "mine", init_from=run, corpora=(corpus, corpus), write=lines.append
    )
    assert np.isfinite(metrics["val_loss"])
    tuned = keras_transformer.load(tmp_path / "mine")
    assert [w.shape for w in tuned.model.weights] == [w.shape for w in before]
    assert tuned.tokenizer.pieces == keras_transformer.load(run).tokenizer.pieces
    assert tuned.tokenizer.serialized != tuned.target_tokenizer.serialized
    moved = [
        weight.name
        for weight, old in zip(tuned.model.weights, before, strict=True)
        if np.abs(weight.numpy() - old).max() > 1e-6
    ]
    assert "embeddings" in moved and "output_biases" in moved
    # the same run again goes on by the same rules as every other
    train(config, tmp_path / "mine", init_from=run, corpora=(corpus, corpus), write=lines.append)
    assert "has ended at step 6" in lines[-1]
    with pytest.raises(ValueError, match=f"which was imported.* --init-from {run}"):
        train(config, run, corpora=(corpus, corpus))


def test_nothing_is_written_where_something_is_wrong(directory, marian, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("text")
    with pytest.raises(ValueError, match="Expected a new or empty directory"):
        import_run(directory, full)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    marian.hugging_face(damaged, {"encoder_layers": 5})
    for empty in (tmp_path / "new" / "run", full.parent / "empty"):
        with pytest.raises(ValueError, match="Expected a tensor encoder.layers.2"):
            import_run(damaged, empty)
        assert not empty.exists()
    (tmp_path / "empty").mkdir(0o750)  # a shell may stand in it, or it is a mount point
    number, mode = (tmp_path / "empty").stat().st_ino, (tmp_path / "empty").stat().st_mode
    import_run(directory, tmp_path / "empty", lambda line: None)
    status = (tmp_path / "empty").stat()
    assert (status.st_ino, status.st_mode) == (number, mode)
    assert keras_transformer.load(tmp_path / "empty").model.built
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged", "empty", "full"]


@pytest.mark.parametrize(
    "file, content",
    [
        ("source.spm", b""),
        ("generation_config.json", b'{"max_length": "x"}'),
        ("tokenizer_config.json", b'{"eos_token": [1]}'),
        ("vocab.json", b"[" * 100_000),
    ],
)
def test_files_with_odd_contents_are_refused_in_one_line(directory, tmp_path, file, content):
    shutil.copytree(directory, tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)
    with pytest.raises(InputError, match=r"^Expected .*Received: [^\n]*$"):
        import_run(tmp_path / "model", tmp_path / "run", lambda line: None)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_finite_are_refused(marian, tmp_path):
    (tmp_path / "model").mkdir()
    tensors = marian.hugging_face(tmp_path / "model")
    name = "model.encoder.layers.0.fc1.weight"
    tensors[name][0, 0] = np.nan
    write_tensors(tmp_path / "model" / "model.safetensors", tensors)
    with pytest.raises(InputError, match="finite numbers.*Received: encoder.layers.0.fc1.weight"):
        import_run(tmp_path / "model", tmp_path / "run", lambda line: None)


def test_a_link_leads_to_its_directory_and_the_slower_of_two_is_refused(
    directory, tmp_path, monkeypatch
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    import_run(directory, tmp_path / "link", lambda line: None)
    assert (tmp_path / "empty" / "config.yaml").exists() and (tmp_path / "link").is_symlink()

    def read(path, write):  # meanwhile another import ends
        shutil.copytree(tmp_path / "empty", tmp_path / "run")
        return read_marian(path, write)

    module = importlib.import_module("keras_transformer.convert.marian")
    monkeypatch.setattr(module, "read_marian", read)
    with pytest.raises(InputError, match="new or empty directory.*/run, which holds files"):
        import_run(directory, tmp_path / "run", lambda line: None)
    assert (tmp_path / "run" / "config.yaml").exists()


def test_where_a_run_or_an_export_is_expected_the_error_says_to_import(directory, tmp_path):
    shutil.copytree(directory, tmp_path / "models" / "1")  # as `export --format hugging_face`
    remedy = "keras-transformer import {} --output RUN"
    for path, model in (
        (directory, directory),
        (tmp_path / "models", tmp_path / "models" / "1"),
        (tmp_path / "models" / "1", tmp_path / "models" / "1"),
    ):
        with pytest.raises(InputError, match=re.escape(remedy.format(model))):
            load(path)
    with pytest.raises(InputError, match=re.escape(remedy.format(tmp_path / "models" / "1"))):
        read_marian(tmp_path / "models")


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports need TensorFlow")
def test_what_changes_on_the_way_to_hugging_face_and_back(marian, tmp_path, monkeypatch):
    """The bias of a forbidden token, and the place and name of a start token that is no padding."""
    files, start, forbidden = tmp_path / "model", 9, 12
    files.mkdir()
    bad_words = [[marian.vocab_size - 1], [forbidden]]
    before = marian.hugging_face(
        files, {"decoder_start_token_id": start}, generation={"bad_words_ids": bad_words}
    )
    names = {i: piece for piece, i in marian.ids.items()}
    vocabulary = {names[i].replace(names[start], "<<s>>"): i for i in names}
    (files / "vocab.json").write_text(json.dumps(vocabulary))
    monkeypatch.setattr(hugging_face, "verify_greedy", lambda *_: Verification(1, 0))
    translator = read_marian(files)
    path = hugging_face.export_hugging_face(translator, tmp_path / "models")
    after, ids = read_tensors(path), json.loads((path / "vocab.json").read_text())
    assert set(ids) == set(marian.ids) - {names[start]} | {"<s>"}
    moved = [ids["<s>" if i == start else names[i]] for i in range(marian.vocab_size)]
    assert moved[-1] == marian.vocab_size - 1 and moved[start] == marian.vocab_size - 2
    assert set(before) == set(after)
    for name, tensor in before.items():
        other = after[name]
        if name == "model.shared.weight":
            other = other[moved]
        if name == "final_logits_bias":
            other, tensor = other[:, moved], tensor.copy()
            tensor[0, [start, forbidden]] = -100
        np.testing.assert_array_equal(tensor, other, err_msg=name)


def test_a_damaged_run_is_to_be_imported_again(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(InputError, match="Use best or last.$"):
        keras_transformer.load(tmp_path / "run", "averaged")
    (weights,) = (tmp_path / "run").glob("checkpoints/*/*.weights.h5")
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(InputError, match="Received: .* is damaged .* Import the model again") as e:
        keras_transformer.load(tmp_path / "run")
    assert "rain" not in str(e.value)  # training cannot go on
    shutil.rmtree(weights.parent)
    with pytest.raises(InputError, match="has none yet. Import the model again"):
        keras_transformer.load(tmp_path / "run")


def test_the_command(directory, tmp_path, capsys):
    path = str(tmp_path / "run")
    assert cli.main(["import", str(directory), "--output", path]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{path}\n"
    lines = [line.split()[0] for line in captured.err.splitlines()]
    working = "keras-transformer:"  # a busy machine takes so long that it says what it does
    assert [line for line in lines if line != working] == ["model", "vocabulary", "search"]
    assert cli.main(["import", str(directory), "--output", path]) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-transformer: error: Expected a new or empty directory")
    assert error.count("\n") == 1
    assert cli.main(["import", path, "--output", str(tmp_path / "other")]) == 2
    assert "without either" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_the_export_answers_as_the_run_does(run, tmp_path, texts):
    """`export_saved_model` compares in a fresh process; the server loads the same files."""
    import tensorflow as tf

    from keras_transformer.export import export_saved_model

    translator = keras_transformer.load(run)
    path = export_saved_model(translator, tmp_path / "export", n_best=2)
    exported = keras_transformer.load(path)
    assert exported(texts) == translator(texts)
    signatures = tf.saved_model.load(path).signatures
    ids = signatures["encode"](text=tf.constant([">>deu<< A cat sleeps."]))["ids"].numpy()
    assert translator.tokenizer.to_pieces(ids[0])[0] == ">>deu<<" and ids[0, -1] == 3
    scores = signatures["score"](
        text=tf.constant(["A cat sleeps."]), target=tf.constant(["Eine Katze schläft."])
    )["score"]
    expected = translator.score(["A cat sleeps."], ["Eine Katze schläft."])
    np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-4)


def test_a_corpus_for_fine_tuning_has_the_ids_of_the_source_and_of_the_target(run, sentence_pairs):
    from keras_transformer.data import TranslationBatches

    translator = keras_transformer.load(run)
    corpus = ParallelCorpus.from_pairs(sentence_pairs[:2])
    tokenizers = translator.tokenizer, translator.target_tokenizer
    batches = TranslationBatches(corpus, *tokenizers, batch_tokens=500, shuffle=False)
    ((inputs, labels, _),) = [batch for batch, _ in zip(batches.dataset(), range(1), strict=False)]
    decoded = [row.decode() for row in translator.target_tokenizer.decode(labels).numpy()]
    assert sorted(decoded) == sorted(target for _, target in sentence_pairs[:2])
    assert set(inputs["target_ids"].numpy()[:, 0].tolist()) == {2}
