"""The benchmarks that train name settings that exist, and what they have measured can be read."""

import importlib
import json
import pathlib
import sys

import numpy as np
import pytest

from keras_transformer.config import Config
from keras_transformer.models import Transformer

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
QUALITY = BENCHMARKS / "results" / "quality"


@pytest.fixture
def benchmark(monkeypatch):
    """Imports a program of `benchmarks/`, whose folder is on its path when it runs."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module


def test_every_ablation_is_a_change_of_tiny(benchmark):
    ablations = benchmark("ablations")
    # those of the results: with the defaults, two changes would be none
    settings = ["training.warmup_steps=500", "training.mixed_precision=mixed_bfloat16"]
    base = Config.from_preset("tiny").override([*ablations.BASE, *settings])
    for name, changes in ablations.CHANGES.items():
        config = base.override([change.format(runs="RUNS") for change in changes])
        assert (config == base) == (name == "tiny"), name


def test_deep_norm_is_that_of_the_paper(benchmark):
    """LayerNorm(alpha x + f(x)), computed from the parts of a block without alpha."""
    ablations = benchmark("ablations")
    sizes = dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2, dropout=0.0)
    model = Transformer(20, **sizes, normalize_first=False)
    model.build()
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


def test_every_measured_ablation_is_one_of_the_program(benchmark):
    ablations = benchmark("ablations")
    for path in (BENCHMARKS / "results").glob("ablations-*.json"):
        for name, row in json.loads(path.read_text())["results"].items():
            assert row["changes"] == ablations.CHANGES[name]


def test_every_point_of_the_learning_curves_is_a_change_of_tiny(benchmark):
    curves = benchmark("learning_curves")
    tiny = Config.from_preset("tiny")
    for curve, (_, points) in curves.TRAINED.items():
        settings = [curves.settings_of(curve, point) for point in points]
        configs = [tiny.override(changes) for _, changes in settings]
        assert all(0 < num_pairs <= curves.ALL_PAIRS for num_pairs, _ in settings)
        assert len({str(config) for config in configs}) == len(points)
        assert curve == "vocabulary" or tiny in configs  # where the curves meet


def test_every_training_for_quality_is_kept_whole_and_drawn(benchmark):
    quality = benchmark("quality")
    names = {str(path.relative_to(QUALITY).with_suffix("")) for path in QUALITY.rglob("*.jsonl")}
    settings = {str(path.relative_to(QUALITY).with_suffix("")) for path in QUALITY.rglob("*.yaml")}
    assert names == settings
    drawn = {name.partition("-seed-")[0] for name in names if not name.startswith("french/")}
    assert drawn == set(quality.COLORS)
    for name in names:
        config = Config.load(QUALITY / f"{name}.yaml")
        minutes, scores = quality.curve(QUALITY / f"{name}.jsonl")
        assert minutes == sorted(minutes) and 0 <= min(scores) < max(scores) <= 100
        assert not pathlib.Path(config.data.source_train).is_absolute()
    assert set(json.loads((QUALITY / "scores.json").read_text())) <= names
