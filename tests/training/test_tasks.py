"""One loop trains every task: what it takes from the task, and nothing else, changes with it."""

import json

from keras_transformer.runs.run import Run
from keras_transformer.training.final_weights import CLEARLY_BETTER
from keras_transformer.training.train import train_task
from keras_transformer.training.translation_task import TranslationTask


class AccuracyTask(TranslationTask):
    """Translation that is scored by accuracy, as a model without text would be."""

    monitor = "val_accuracy"
    score_name = "accuracy"

    def callbacks(self):
        return []

    def rank(self, metrics):
        return metrics["val_accuracy"], -metrics["val_loss"]

    def scores(self, model, metrics):
        return {"val_accuracy": metrics["val_accuracy"]}


def test_the_task_names_the_score_that_chooses_the_weights(tmp_path, config, corpus, validated):
    lines = []
    metrics = train_task(
        AccuracyTask((corpus, validated)), config, tmp_path / "run", write=lines.append
    )
    run = Run(tmp_path / "run")
    records = [json.loads(line) for line in run.metrics_path.open()]
    validations = [record for record in records if "weights" not in record]
    final = {record["weights"]: record for record in records if "weights" in record}
    assert not any("val_bleu" in record for record in records)
    state = run.checkpoints.read_state(run.checkpoints.newest())
    scores = {record["step"]: record["val_accuracy"] for record in validations}
    assert state.best_score == max(scores.values()) == scores[state.best_step]
    (chosen,) = (
        name for name in final if f"weights     {name}, chosen by validation accuracy" in lines
    )
    assert metrics["val_accuracy"] == final[chosen]["val_accuracy"]
    highest = max(record["val_accuracy"] for record in final.values())
    assert highest <= CLEARLY_BETTER * metrics["val_accuracy"]
