"""Training: `train`, and the parts that serve any `model.fit`."""

from keras_transformer.training.callbacks import BleuCallback, SampleTranslations
from keras_transformer.training.interruption import Interrupted
from keras_transformer.training.losses import TokenCrossEntropy
from keras_transformer.training.metrics import Perplexity, TokenAccuracy
from keras_transformer.training.prepare import prepare
from keras_transformer.training.schedules import (
    CosineDecay,
    InverseSquareRoot,
    LinearDecay,
    NoamSchedule,
)
from keras_transformer.training.train import train
from keras_transformer.training.tune_decoding import TunedDecoding, tune_decoding
from keras_transformer.training.write_lexicon import write_lexicon

__all__ = [
    "BleuCallback",
    "CosineDecay",
    "InverseSquareRoot",
    "Interrupted",
    "LinearDecay",
    "NoamSchedule",
    "Perplexity",
    "SampleTranslations",
    "TokenAccuracy",
    "TokenCrossEntropy",
    "TunedDecoding",
    "prepare",
    "train",
    "tune_decoding",
    "write_lexicon",
]
