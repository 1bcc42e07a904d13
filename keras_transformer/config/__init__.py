"""All settings: their groups, YAML, presets and recipes."""

from keras_transformer.config.config import GROUPS, Config, model_name
from keras_transformer.config.groups import (
    MAX_TRANSLATIONS,
    STRATEGIES,
    CorpusConfig,
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TrainingConfig,
)

__all__ = [
    "GROUPS",
    "MAX_TRANSLATIONS",
    "STRATEGIES",
    "Config",
    "CorpusConfig",
    "DataConfig",
    "DecodingConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "model_name",
]
