"""What the models on top of a BERT encoder have in common."""

from typing import Any

import keras

from keras_transformer.errors import InputError
from keras_transformer.layers.keeps_frozen import KeepsFrozen
from keras_transformer.layers.shared_layer import config_of_shared
from keras_transformer.layers.unquantized import Unquantized
from keras_transformer.models.bert import Bert
from keras_transformer.models.self_building import SelfBuilding
from keras_transformer.types import Self, Tensor


class BertHead(SelfBuilding, KeepsFrozen, Unquantized, keras.Model):
    """A model on top of a `Bert`, which it trains with it. Models that share a `Bert` share it.

    Args:
        bert: `Bert`, with or without trained weights.
        needs_pooler: whether the subclass reads the pooled output.
    """

    def __init__(self, bert: Bert, needs_pooler: bool, **kwargs: Any) -> None:
        if not isinstance(bert, Bert):
            raise InputError(f"bert must be a Bert, such as Bert(30_522). Received: {bert=}.")
        if needs_pooler and not bert.pooler:
            raise InputError(
                f"{type(self).__name__} reads the pooled output. Received: a Bert with "
                "pooler=False. Leave pooler=False out."
            )
        super().__init__(**{"dtype": bert.dtype_policy, **kwargs})
        self.autocast = False  # it would round ids that come as floats to bfloat16
        self.bert = bert

    def encode(
        self, inputs: Tensor | dict[str, Tensor], return_attention_weights: bool, training: bool
    ) -> tuple[dict[str, Tensor], Any]:
        """Returns the outputs of the `Bert`, a dict, and its attention weights or None."""
        options = dict(return_attention_weights=return_attention_weights, training=training)
        result = self.bert(inputs, **options)
        return result if return_attention_weights else (result, None)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bert": config_of_shared(self.bert)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        bert = keras.saving.deserialize_keras_object(config["bert"])
        return cls(**{**config, "bert": bert})
