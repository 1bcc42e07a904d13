"""The run directory: settings, tokenizers, checkpoints and results of one training."""

from keras_transformer.runs.checkpoints import Checkpoints, TrainingState
from keras_transformer.runs.load import load_run
from keras_transformer.runs.run import Run

__all__ = ["Checkpoints", "Run", "TrainingState", "load_run"]
