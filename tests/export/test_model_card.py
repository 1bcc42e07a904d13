"""What the model card of an export says."""

import json

import keras
import pytest
import yaml

from keras_transformer import cli
from keras_transformer.config import Config
from keras_transformer.export import facts_of_runs
from keras_transformer.export.model_card import write_model_card
from keras_transformer.files.checksums import check_export
from keras_transformer.files.model_card import read_card
from keras_transformer.runs.checkpoints import Checkpoints, TrainingState

FINISHED = {
    "step": 535, "limit": "max_minutes", "value": 32.0, "reason": "over", "checkpoint": "averaged",
    "metrics": {"val_bleu": 21.2441, "val_loss": 3.69}, "num_averaged": 3, "averaged_checksum": "0",
}  # fmt: skip
DECODING = {"beam_size": 4, "max_source_length": 25, "max_length": 12}


@pytest.fixture
def run(tmp_path):
    """The path of a run that has ended, without its weights."""
    path = tmp_path / "run"
    path.mkdir()
    text = [
        "data.train=[{source: /home/me/train.en.gz, target: /home/me/train.de.gz}]",
        "data.valid=[{tsv: /home/me/valid.tsv}]",
        "training.distill_from=/home/me/teacher",
    ]
    Config.from_preset("tiny").override(text).save(path / "config.yaml")
    identity = {"run_id": "1", "training_text": "ab12", "validation_text": "cd34"}
    identity["command"] = (
        "keras-transformer train --config /home/me/a.yaml --set "
        "'tokenizer.model=/home/me/my dir/b' "
        "'data.train=[{source: /home/me/c, target: d/e}]' --output 'my run'"
    )
    (path / "identity.json").write_text(json.dumps(identity))
    Checkpoints(path / "checkpoints").save_weights(
        keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]),
        TrainingState(step=535, num_pairs=29000, run_id="1"),
    )
    (path / "finished.json").write_text(json.dumps(FINISHED))
    return path


def test_a_run_tells_its_text_its_scores_and_its_settings(run):
    facts = facts_of_runs([run])
    assert facts["languages"] == {"source": "en", "target": "de"}
    files = ["train.en.gz, train.de.gz", "valid.tsv"]
    assert list(facts["data"].values()) == [*files, "29,000", "ab12", "cd34"]
    assert facts["training"]["command"] == (
        "keras-transformer train --config a.yaml --set tokenizer.model=b "
        "'data.train=[{source: c, target: d/e}]' --output 'my run'"
    )
    assert facts["scores"]["bleu"] == "21.24"
    assert facts["scores"]["signature of bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert facts["training"]["steps"] == "535" and facts["training"]["weights"] == "averaged"
    assert facts["training"]["training.batch_tokens"] == "4096"
    assert facts["training"]["training.distill_from"] == "teacher"
    assert facts["license"] == {"license": "not stated"}
    assert "/home/me" not in json.dumps(facts)


def test_only_what_is_known_is_said(run):
    assert "scores" not in facts_of_runs([run], checkpoint="last")
    assert "scores" not in facts_of_runs([run], adapter="adapter.npz")
    assert "scores" not in facts_of_runs([run, run])
    given = facts_of_runs([run], languages=("pl", "cs"), license="cc0-1.0")
    assert given["languages"] == {"source": "pl", "target": "cs"}
    assert given["license"] == {"license": "cc0-1.0"}
    (run / "finished.json").unlink()
    assert facts_of_runs([run])["training"]["steps"] == "not stated"


def test_an_export_has_a_card_with_its_proof(exported, translator, capsys):
    check_export(exported)  # which has checksums of the card too
    card = read_card(exported)
    settings = json.loads((exported / "assets.extra/keras_transformer.json").read_text())
    assert card["proof"]["loader"].endswith("as TensorFlow Serving does, without XLA")
    compared = card["proof"]["answers compared with those before the export"]
    assert compared == str(settings["verification"]["num_texts"])
    assert card["size"]["parameters"] == f"{translator.model.count_params():,}"
    assert card["limits"]["longest text"].startswith(f"{translator.decoding.max_source_length} ")
    assert "## Proof" in (exported / "model_card.md").read_text("utf-8")
    assert cli.main(["info", str(exported)]) == 0
    assert f"parameters: {card['size']['parameters']}" in capsys.readouterr().out


def test_a_hub_reads_languages_and_license(run, translator, tmp_path):
    settings = {
        "format": "hugging_face",
        "decoding": DECODING,
        "verification": {"num_texts": 9, "num_near_ties": 1},
    }
    about = facts_of_runs([run], license="cc-by-4.0")
    write_model_card(tmp_path, settings, translator.model, about)
    front, markdown = (tmp_path / "README.md").read_text("utf-8").split("---\n")[1:]
    found = yaml.safe_load(front)
    assert (found["language"], found["license"]) == (["en", "de"], "cc-by-4.0")
    assert found["pipeline_tag"] == "translation" and markdown.lstrip().startswith("# Model card")
    assert not (tmp_path / "model_card.md").exists() and read_card(tmp_path)["license"]
