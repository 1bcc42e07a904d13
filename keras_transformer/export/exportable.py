"""What can be exported: what every format asks of a model, and what other libraries can run."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import InputError
from keras_transformer.layers.base import plain
from keras_transformer.layers.feed_forward import activation_config
from keras_transformer.layers.lora import adapted_layers, merged_weights
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import MarianTokenizer, SentencePieceTokenizer
from keras_transformer.translation.translator import Translator


def exportable_translator(translator, n_best, is_saved_model=False):
    """Returns `translator`, or one with the same weights that computes in float32.

    Args:
        n_best: maximum number of translations of a text in the export.
        is_saved_model: whether it becomes a SavedModel, which alone has shortlists, and processors
            that are no settings.
    Raises:
        ValueError: `translator` is no `Translator`, `n_best` is larger than its beam, or its search
            has what the format does not.
    """
    if not isinstance(translator, Translator):
        raise InputError(
            f"Expected a Translator to export. Received: {translator!r}. "
            "Load a run with keras_transformer.load(run)."
        )
    if not 1 <= n_best <= translator.decoding.beam_size:
        raise InputError(
            "n_best must be from 1 to the beam size. Received: "
            f"n_best={n_best}, beam_size={translator.decoding.beam_size}. Raise the beam size."
        )
    shortlist, processors = translator.decoding.shortlist, translator.processors
    if (shortlist or processors) and not is_saved_model:
        raise InputError(
            "Expected a search without shortlists and processors of your own, which only a "
            f"SavedModel has. Received: {shortlist=}, {processors=}. Export with shortlist=0 and "
            "without the processors, or as a SavedModel."
        )
    model = in_float32(translator.model)
    return translator if model is translator.model else with_model(translator, model)


def with_model(translator, model):
    """Returns a translator like `translator`, with another model."""
    make, (_, *others) = translator.__reduce__()
    return make(model, *others)


def check_weights(weights, types):
    """Raises `ValueError` unless `weights` is one of the types in which a format stores them."""
    if weights not in types:
        raise InputError(
            f"weights must be one of {', '.join(types)}. Received: weights={weights!r}."
        )


def vocab_sizes(translator):
    """Returns the sizes of the vocabularies, as settings of an export."""
    sizes = translator.tokenizer.vocab_size, translator.target_tokenizer.vocab_size
    return dict(zip(("source_vocab_size", "target_vocab_size"), sizes, strict=True))


def in_float32(model):
    """Returns the model, built, or one that computes in float32, with adapters merged.

    With half the bits, an answer depends on its neighbours in the batch, and a CPU is slow.
    """
    if not model.built:
        model.build()
    config = model.get_config()
    float32_config = _with_float32(config)
    if float32_config == config and not adapted_layers(model):
        return model
    copy = type(model).from_config(float32_config)
    copy.build()
    copy.set_weights(merged_weights(model))
    return copy


def _with_float32(config):
    """Returns a serialized model with the dtype of float32, and so the layers within it."""
    if isinstance(config, (list, tuple)):
        return type(config)(map(_with_float32, config))
    if not isinstance(config, dict):
        return config
    return {
        name: _float32_policy(value) if name == "dtype" else _with_float32(value)
        for name, value in config.items()
    }


def _float32_policy(policy):
    return policy if keras.dtype_policies.get(policy).name == "float32" else "float32"


LARGEST_FLOAT16 = float(np.finfo("float16").max)


class OtherLibrary(NamedTuple):
    """A library that runs a part of all Transformers, and refuses the others by name."""

    name: str
    activations: dict[str, str]
    """Its names by those that `activation_config` returns."""
    instead: str
    """What to do with the others."""

    def check(self, translator):
        """Raises `ValueError` for what both formats lack; each checks its own settings besides."""
        model = translator.model
        if not isinstance(model, Transformer):
            raise self.refusal("a Transformer", f"the model {type(model).__name__}")
        for name in model.ATTENTION_SETTINGS:
            attention = plain(getattr(model, name))
            if attention not in (None, "dense", {"name": "dense"}):
                raise self.refusal("dense attention", f"{name}={attention!r}")
        if activation_of(model) not in self.activations:
            raise self.refusal(
                f"an activation among {', '.join(self.activations)}",
                f"activation={model.activation!r}",
            )
        for side, tokenizer, size in (
            ("source", translator.tokenizer, model.source_vocab_size),
            ("target", translator.target_tokenizer, model.output_vocab_size),
        ):
            if not isinstance(tokenizer, SentencePieceTokenizer | MarianTokenizer):
                raise self.refusal(
                    "SentencePiece tokenizers", f"the {side} tokenizer {type(tokenizer).__name__}"
                )
            if tokenizer.vocab_size != size:
                raise self.refusal(
                    "as many embeddings as tokens",
                    f"{size} {side} embeddings for {tokenizer.vocab_size} tokens",
                )

    def refusal(self, expected, received):
        """Returns the error for a translator that the library cannot run."""
        return InputError(
            f"Expected {expected}, as {self.name} has. Received: {received}. {self.instead}"
        )


def check_float16(weights):
    """Raises `ValueError` for a weight that is too large for float16, which has no such numbers.

    Args:
        weights: list of the Keras variables that are to be stored as float16.
    """
    for weight in weights:
        largest = float(ops.max(ops.abs(weight)))
        if largest > LARGEST_FLOAT16:
            raise InputError(
                f"Expected weights from -{LARGEST_FLOAT16:,.0f} to {LARGEST_FLOAT16:,.0f}, the "
                f"range of float16. Received: {weight.path}, with {largest:,.0f}. Export with "
                "weights bfloat16 or float32."
            )


def activation_of(model):
    """Returns the activation of a `Transformer` as `activation_config` names it."""
    return activation_config(model.encoder.blocks[0].feed_forward.activation)


def float32_array(tensor):
    """Returns a tensor as a NumPy array of its own."""
    return np.array(ops.convert_to_numpy(tensor), "float32")
