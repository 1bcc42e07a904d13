"""Distillation: labels are drawn from the mean prediction of other runs."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from keras import ops

from keras_transformer.backend import compile_function
from keras_transformer.config import Config
from keras_transformer.files.checksums import checksum
from keras_transformer.models import Ensemble, Transformer
from keras_transformer.runs import load_run
from keras_transformer.runs.run import Run, checksum_of_tokenizers
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training import distillation
from keras_transformer.training.distillation import teachers_of

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture(scope="module")
def teachers(trained, tmp_path_factory):
    """The settings and the paths of two runs with one tokenizer and other weights."""
    config, path = trained
    other = Run(shutil.copytree(path, tmp_path_factory.mktemp("teachers") / "other"))
    finished, model = other.finished(), load_run(path)[0]
    for weight in model.trainable_variables:
        weight.assign(1.5 * weight)
    model.save_weights(other.averaged_path)
    finished |= {"checkpoint": "averaged", "averaged_checksum": checksum(other.averaged_path)}
    other.finished_path.write_text(json.dumps(finished))
    return config, path, other.path


def distilled(config, *paths):
    return config.override(
        [f"training.distill_from={' '.join(map(str, paths))}", "training.distill_share=0.9"]
    )


def test_labels_are_the_most_probable_of_the_mean_prediction(teachers, start_training):
    """Compared with a softmax over the whole vocabulary, sentence by sentence, in NumPy."""
    config, *paths = teachers
    started = start_training(distilled(config, *paths))
    assert any("teachers    2" in line for line in started.lines)
    models = [load_run(path)[0] for path in paths]
    batches, (source, target) = started.batches, started.batches.rows
    labels = batches.soft_labels
    assert labels.share == 0.9
    assert not np.isin(labels.ids, (0, 2)).any()  # neither padding nor the start
    assert labels.ids.shape[1] == 8 and all(len(set(row)) == 8 for row in labels.ids)
    for pair in range(0, len(source.lengths), 10):
        target_ids = np.concatenate([[2], target.row(pair)[:-1]])
        inputs = {"source_ids": source.row(pair)[None], "target_ids": target_ids[None]}
        logits = [ops.convert_to_numpy(model(inputs))[0].astype("float64") for model in models]
        powers = [np.exp(each - each.max(-1, keepdims=True)) for each in logits]
        mean = sum(each / each.sum(-1, keepdims=True) for each in powers) / 2
        for position, place in enumerate(target.places(np.array([pair]))):
            best = np.sort(np.delete(mean[position], (0, 2)))[::-1][:8]
            np.testing.assert_allclose(mean[position][labels.ids[place]], best, rtol=1e-4)
            np.testing.assert_allclose(
                labels.cumulative[place], np.cumsum(best) / best.sum(), rtol=1e-4
            )


def test_the_prediction_is_the_same_when_it_is_compiled():
    """The other tests compile nothing. With TensorFlow, what is compiled has unknown shapes."""
    models = [Transformer(23, d_model=8, num_layers=1, ff_dim=8, num_heads=2) for _ in range(2)]
    model = Ensemble(models)
    model.build()
    compiled = compile_function(lambda *ids: distillation._best(model, 3, *ids), model.variables)
    for shape in ((2, 5), (3, 4)):
        ids = np.random.default_rng(1).integers(4, 23, (2, *shape)).astype("int32")
        for array, expected in zip(compiled(*ids), distillation._best(model, 3, *ids), strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-5)


def test_a_student_has_the_tokenizer_of_its_teachers(teachers, start_training, tmp_path):
    config, path, _ = teachers
    run = Run(tmp_path / "run")
    other = distilled(config.override(["tokenizer.vocab_size=99"]), path)
    said = f"The settings tokenizer.* are those of the run {path}."
    assert start_training(other, run.path).lines.count(said) == 1
    assert said not in start_training(distilled(config, path)).lines
    loaded = run.load_config()
    assert loaded.tokenizer.vocab_size == 150
    checksums = {checksum_of_tokenizers(each.load_tokenizers(config)) for each in (run, Run(path))}
    assert len(checksums) == 1


def test_a_tag_that_the_teachers_do_not_know_is_refused(teachers, train_quietly, tmp_path):
    config, path, _ = teachers
    (text,) = config.data.train
    tagged = {"data": {"train": [dataclasses.replace(text, tag=">>new<<")]}}
    with pytest.raises(ValueError, match=f"know.*Received: >>new<<, .*{path}.*--init-from") as e:
        train_quietly(distilled(config.merged(tagged), path), tmp_path / "run")
    assert "SentencePiece" not in str(e.value) and not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def student(teachers, tmp_path_factory, train_quietly):
    """The settings, the run and the teacher of a student that has ended after two steps."""
    config, path, _ = teachers
    folder = tmp_path_factory.mktemp("student")
    teacher = shutil.copytree(path, folder / "teacher")
    settings = ["training.max_steps=2", "training.checkpoint_every=1"]
    config = distilled(config, teacher).override(settings)
    train_quietly(config, folder / "run")
    return config, folder / "run", teacher


def test_a_student_goes_on_without_its_teachers(student, train_to_last_checkpoint, tmp_path):
    """With the same weights as without the interruption, from the labels that it has saved."""
    config, path, teacher = student
    run = shutil.copytree(path, tmp_path / "run")
    for name in ("finished.json", "averaged.weights.h5"):
        (run / name).unlink()
    shutil.rmtree(run / "checkpoints/step-00000002")  # as if it had been killed before
    gone = teacher.rename(tmp_path / "gone")
    train_to_last_checkpoint(config, run)
    gone.rename(teacher)
    runs = [load_run(each, "last")[0] for each in (path, run)]
    for expected, found in zip(*(model.weights for model in runs), strict=True):
        found, expected = map(ops.convert_to_numpy, (found, expected))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_labels_that_were_removed_are_predicted_and_saved_again(student, start_training, tmp_path):
    config, path, _ = student
    run = shutil.copytree(path, tmp_path / "run")
    before = dict(np.load(run / "soft_labels.npz"))
    (run / "soft_labels.npz").unlink()
    start_training(config.override(["training.max_steps=3"]), run)
    after = np.load(run / "soft_labels.npz")
    assert before.keys() == set(after)
    for name, expected in before.items():
        np.testing.assert_array_equal(after[name], expected)


def test_a_student_that_has_ended_says_so_without_its_teachers(student, train_quietly, tmp_path):
    config, path, teacher = student
    run = shutil.copytree(path, tmp_path / "run")
    (run / "soft_labels.npz").unlink()
    gone = teacher.rename(tmp_path / "gone")
    train_quietly(config, run)
    gone.rename(teacher)
    assert "has ended" in train_quietly.lines[-1]


def test_a_student_may_begin_with_the_weights_of_a_run(teachers, start_training, tmp_path):
    """Whose subword sampling ends, because the labels are of one tokenization."""
    config, path, other = teachers
    sampled = shutil.copytree(path, tmp_path / "sampled")
    config.override(["tokenizer.sampling=0.1"]).save(sampled / "config.yaml")
    start_training(distilled(config, other), tmp_path / "run", init_from=sampled)
    assert Run(tmp_path / "run").load_config().tokenizer.sampling == 0.0


@pytest.mark.parametrize("left", [[], [".lock", "soft_labels.npz"]], ids=["new", "killed"])
def test_a_teacher_with_too_few_learned_positions_is_refused(
    teachers, tmp_path, train_quietly, left
):
    """Also where a process that was killed before it made the run has left labels."""
    config, path, _ = teachers
    (tmp_path / "student").mkdir()
    for name in left:
        (tmp_path / "student" / name).touch()
    short = shutil.copytree(path, tmp_path / "short")
    lengths = [f"{name}=64" for name in ("data.max_length", "decoding.max_source_length")]
    learned = ["model.positions=learned", "model.max_length=64"]
    config.override([*lengths, *learned]).save(short / "config.yaml")
    message = "data.max_length within the learned positions.*short, in distill_from"
    with pytest.raises(ValueError, match=message):
        train_quietly(distilled(config, short), tmp_path / "student")


def test_runs_that_cannot_teach_are_refused(teachers, train_quietly, tmp_path, corpus):
    config, path, _ = teachers
    other = Run(shutil.copytree(path, tmp_path / "other"))
    tokenizer = SentencePieceTokenizer.train(corpus.source + corpus.target, vocab_size=140)
    tokenizer.save(other.tokenizer_path)
    checksum = checksum_of_tokenizers([tokenizer, tokenizer])
    other.write_identity(dataclasses.replace(other.identity, tokenizers=checksum))
    for paths, message in (
        ([tmp_path / "none"], "none"),
        ([path, other.path], "tokenizers differ"),
    ):
        with pytest.raises(ValueError, match=message):
            train_quietly(distilled(config, *paths), tmp_path / "student")
        assert not (tmp_path / "student").exists()
    with pytest.raises(ValueError, match="tokenizers differ"):
        train_quietly(distilled(config, path), tmp_path / "student", init_from=other.path)
    assert not (tmp_path / "student").exists()


def test_a_path_with_a_space_is_quoted():
    assert teachers_of(distilled(Config(), "runs/a", "'my runs/b'").training) == [
        "runs/a",
        "my runs/b",
    ]
    assert teachers_of(Config().training) == []
    with pytest.raises(ValueError, match="a path with a space in quotes"):
        teachers_of(distilled(Config(), "'my runs/b").training)


def test_subword_sampling_is_refused():
    with pytest.raises(ValueError, match="Received: tokenizer.sampling=0.1, .*distill_from=runs/a"):
        Config().override(["training.distill_from=runs/a", "tokenizer.sampling=0.1"])
