"""The benchmarks import what there is, and those that train name settings that exist."""

import ast
import gzip
import importlib
import itertools
import json
import pathlib
import sys

import numpy as np
import pytest

from keras_transformer.config import Config
from keras_transformer.data import TranslationBatches
from keras_transformer.errors import InputError
from keras_transformer.models import Transformer

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
QUALITY = BENCHMARKS / "results" / "quality"
PARTS = ("value", "output")
"""The projections of attention that DeepNorm scales."""


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a program of `benchmarks/`, whose folder is on its path when it runs."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module


def test_every_import_from_the_package_is_there():
    """No test runs most of the programs, so nothing else would notice a name that has moved."""
    found = set()
    for path in BENCHMARKS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_transformer"):
                found |= {(node.module, alias.name) for alias in node.names}
    assert len(found) > 20
    for module, name in sorted(found):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


def test_every_ablation_is_a_change_of_tiny(benchmark):
    ablations = benchmark("ablations")
    # those of the results: with the defaults, two changes would be none
    settings = ["training.warmup_steps=500", "training.mixed_precision=mixed_bfloat16"]
    base = Config.from_preset("tiny").override([*ablations.BASE, *settings])
    for name, changes in ablations.CHANGES.items():
        config = base.override([change.format(runs="RUNS", late_steps=2250) for change in changes])
        assert (config == base) == (name == "tiny"), name


def test_the_factors_of_deep_norm_are_those_of_the_paper(benchmark):
    """Table 1 of Wang et al., 2022: those of 6 layers on each side, and 18 beside 6."""
    ablations = benchmark("ablations")
    encoder, decoder = (1.4180, 0.4969), (2.0598, 0.3433)
    np.testing.assert_allclose(ablations.deep_norm_factors(6, 6), [encoder, decoder], rtol=1e-3)
    encoder, other_decoder = ablations.deep_norm_factors(18, 6)
    np.testing.assert_allclose(encoder, [0.81 * 629_856**0.0625, 0.87 / 629_856**0.0625])
    np.testing.assert_allclose(other_decoder, decoder, rtol=1e-3)


def test_a_training_with_deep_norm_begins_with_its_weights(benchmark):
    """Queries and keys keep theirs, and a block is LayerNorm(alpha x + f(x)) of its parts."""
    ablations = benchmark("ablations")
    sizes = dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2, dropout=0.0)
    model = Transformer(20, **sizes, normalize_first=False)
    model.build()
    before = {variable.path: np.array(variable) for variable in model.variables}
    ablations.use_deep_norm(model.decoder.blocks, alpha=1.0, beta=0.6)
    changed = {
        "/".join(variable.path.split("/")[-3:])
        for variable in model.variables
        if not np.array_equal(before[variable.path], variable)
    }
    attention = {f"{kind}_attention/{part}/kernel" for kind in ("self", "cross") for part in PARTS}
    assert changed == attention | {"feed_forward/inner/kernel", "feed_forward/outer/kernel"}

    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    (block,) = model.encoder.blocks
    ablations.use_deep_norm([block], alpha=1.0, beta=0.6)
    expected = x
    for sublayer, residual in (
        (block.self_attention, block.self_attention_residual),
        (block.feed_forward, block.feed_forward_residual),
    ):
        expected = residual.normalization(1.7 * expected + sublayer(expected))
    ablations.use_deep_norm([block], alpha=1.7, beta=1.0)
    np.testing.assert_allclose(block(x), expected, rtol=1e-4, atol=1e-4)


def test_batches_double_after_two_thirds_of_the_steps(benchmark, monkeypatch, corpus, tokenizer):
    ablations = benchmark("ablations")
    assert set(ablations.TASKS) <= set(ablations.CHANGES)

    def prepare(task, config):
        task.batches = TranslationBatches(corpus, tokenizer, batch_tokens=60)

    monkeypatch.setattr(ablations.TranslationTask, "prepare", prepare)
    task = ablations.LateBatchesTask()
    small = len(TranslationBatches(corpus, tokenizer, batch_tokens=60))
    task.prepare(Config().override([f"training.max_steps={3 * small}"]))  # two epochs of small ones
    steps = itertools.islice(task.batches.arrays(), 3 * small)
    positions = [inputs["source_ids"].size for inputs, _, _ in steps]
    assert max(positions[: 2 * small]) <= 60 < max(positions[2 * small :]) <= 120
    assert task.batches.position_after((0, 0), 2 * small) == (2, 0)


def test_every_point_of_the_learning_curves_is_a_change_of_tiny(benchmark):
    curves = benchmark("learning_curves")
    tiny = Config.from_preset("tiny")
    for curve, (_, points) in curves.TRAINED.items():
        settings = [curves.settings_of(curve, point) for point in points]
        configs = [tiny.override(changes) for _, changes in settings]
        all_pairs = max(curves.TATOEBA) if curve == "tatoeba" else curves.ALL_PAIRS
        assert all(0 < num_pairs <= all_pairs for num_pairs, _ in settings)
        assert len({str(setting) for setting in settings}) == len(points)
        assert curve == "vocabulary" or tiny in configs  # where the curves meet


def test_what_was_measured_is_of_trainings_that_the_programs_know(benchmark):
    ablations, quality = benchmark("ablations"), benchmark("quality")
    for path in (BENCHMARKS / "results").glob("ablations-*.json"):
        for name, row in json.loads(path.read_text())["results"].items():
            assert row["changes"] == ablations.CHANGES[name], name
    names = {str(path.relative_to(QUALITY).with_suffix("")) for path in QUALITY.rglob("*.jsonl")}
    drawn = {name.partition("-seed-")[0] for name in names if "/" not in name}
    assert drawn == set(sum(quality.GROUPS.values(), []))
    for name in names:
        config = Config.load(QUALITY / f"{name}.yaml")
        assert not pathlib.Path(config.data.train[0].source).is_absolute()
        minutes, scores = quality.curve(QUALITY / f"{name}.jsonl")
        assert minutes == sorted(minutes) and 0 <= min(scores) < max(scores) <= 100


def test_translations_of_the_training_text_stand_beside_its_own_other_side(
    benchmark, monkeypatch, tmp_path
):
    """A run of each direction adds its translation of each pair, which a file keeps."""
    ablations = benchmark("ablations")
    trained, read = [], []

    def load(run, **search):
        read.append(run.name)
        return lambda texts: [f"{run.name}({text})" for text in texts]

    def train_task(task, config, run):
        trained.append([list(zip(each.source, each.target, strict=True)) for each in task.corpora])

    monkeypatch.setattr(ablations.keras_transformer, "load", load)
    monkeypatch.setattr(ablations, "train_task", train_task)
    pairs = [("a", "A"), ("b", "B")]
    valid = ablations.ParallelCorpus.from_pairs([("v", "V")])
    ways = ["forward", "back"]
    both = [ablations.with_translations(ways, pairs, valid, None, tmp_path) for _ in range(2)]
    forward, back = [("a", "tiny(a)"), ("b", "tiny(b)")], [("back(A)", "A"), ("back(B)", "B")]
    assert both == [[*pairs, *forward, *back]] * 2
    assert trained == [[[("A", "a"), ("B", "b")], [("V", "v")]]]
    assert read == ["tiny", "back"]
    for direction, more in (("forward", forward), ("back", back)):
        found = ablations.with_translations([direction], pairs, valid, None, tmp_path)
        assert found == [*pairs, *more]


def test_bad_arguments_are_answered_in_one_line(benchmark, monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which the import replaces
    pinned = benchmark("pinned")
    monkeypatch.setattr(sys, "argv", ["benchmarks/decoding.py", "runs/none"])
    pinned._show(InputError, InputError("Expected a run. Received: runs/none."), None)
    assert capsys.readouterr().err == "decoding.py: Expected a run. Received: runs/none.\n"
    pinned._show(KeyError, KeyError("a fault"), None)
    assert "KeyError: 'a fault'" in capsys.readouterr().err


def test_the_tutorials_model_sees_neither_later_words_nor_the_padding(benchmark, monkeypatch):
    tutorial = benchmark("tutorial_model")
    sizes = dict(VOCABULARY=20, LENGTH=6, WIDTH=8, FF_WIDTH=12, HEADS=2)
    for name, size in sizes.items():
        monkeypatch.setattr(tutorial, name, size)
    model = tutorial.tutorial_model()
    words = tutorial.Words(["Je viens !", "«\xa0J’aime.\u202f»", "je pars"])
    assert words.words[4] == "je" and set(words.words[5:]) == {"viens", "jaime", "pars"}
    target = words.ids(["Je viens ici !", "Je viens ici"], 6, begins=True)
    assert target[:, :1].tolist() == [[2]] * 2 and target[0, 3:].tolist() == [1, 3, 0]
    source = np.array([[4, 5, 6, 0, 0, 0], [4, 5, 6, 7, 0, 0]], "int32")
    before = np.array(model((source, target)))
    target[:, 3:] = 9
    after = np.array(model((source, target)))
    np.testing.assert_allclose(after[:, :3], before[:, :3], rtol=1e-5)
    assert np.abs(after[:, 3:] - before[:, 3:]).max() > 1e-4
    # the row of a padding token has no effect on the others
    table = next(w for w in model.weights if w.path.endswith("embeddings") and w.shape[0] == 20)
    table.assign(np.where(np.arange(20)[:, None] == 0, 9.0, np.array(table)))
    np.testing.assert_allclose(np.array(model((source, target))), after, rtol=1e-4, atol=1e-6)


def test_a_fifth_of_the_pairs_gets_faults_and_those_that_are_left_are_counted(
    benchmark, tmp_path, capsys
):
    dirty_text = benchmark("dirty_text")
    lines = [f"{i} ü {word}" for i in range(10) for word in ("a b", "c d", "e f", "g h", "i j")]
    for name in ("en", "de", "fr"):
        text = "".join(f"{name} {line}\n" for line in lines)
        (tmp_path / f"train.{name}.gz").write_bytes(gzip.compress(text.encode()))
    dirty_text.plant(tmp_path, tmp_path / "dirty")
    names = "dirty.en", "dirty.de", "faults.txt"
    source, target, faults = ((tmp_path / "dirty" / n).read_text().splitlines() for n in names)
    before = [(f"en {line}", f"de {line}") for line in lines]
    pairs = list(zip(source, target, strict=True))
    good = [pair for pair, fault in zip(pairs, faults, strict=True) if not fault]
    changed = [new != old for new, old in zip(pairs, before, strict=True)]
    assert changed == list(map(bool, faults)) and sum(changed) == 10
    assert set(faults) == {"", *dirty_text.FAULTS}
    kept = [tmp_path / "kept.en", tmp_path / "kept.de"]
    for path, side in zip(kept, zip(*good, strict=True), strict=True):
        path.write_text("\n".join(side))
    dirty_text.count_kept(tmp_path / "dirty", kept)
    counts = capsys.readouterr().out.splitlines()
    assert "| none | 40 | 40 |" in counts and "| swapped | 2 | 0 |" in counts
