"""A translator's model in the form of CTranslate2's public `TransformerSpec`.

Shapes: D d_model, V vocabulary.
"""

import numpy as np

from keras_transformer.errors import import_library
from keras_transformer.export.exportable import (
    OtherLibrary,
    activation_of,
    float32_array,
)
from keras_transformer.special_ids import END_ID, START_ID, UNKNOWN_ID

CTRANSLATE2 = OtherLibrary(
    "CTranslate2",
    activations={
        "relu": "RELU",
        "gelu": "GELU",
        "gelu_tanh": "GELUTanh",
        "gelu_sigmoid": "GELUSigmoid",
        "silu": "SWISH",
        "tanh": "Tanh",
        "sigmoid": "Sigmoid",
    },
    instead="Export it as a SavedModel, or as another model.",
)
POSITIONS = ("sinusoidal", "learned", "rotary")


def check_model(translator):
    """Raises `ValueError` for a model or a tokenizer that CTranslate2 cannot run, and names why."""
    CTRANSLATE2.check(translator)
    positions = translator.model.positions
    if positions not in POSITIONS:
        raise CTRANSLATE2.refusal(
            f"positions among {', '.join(POSITIONS)}", f"positions={positions!r}"
        )


def transformer_spec(translator):
    """Returns the `ctranslate2.specs.TransformerSpec` with the weights of a translator.

    Args:
        translator: `Translator` that `check_model` has passed.
    """
    specs, model = import_library("ctranslate2").specs, translator.model
    activation = specs.Activation[CTRANSLATE2.activations[activation_of(model)]]
    stack = dict(pre_norm=model.normalize_first, activation=activation)
    if model.positions == "rotary":
        stack.update(rotary_dim=0, rotary_interleave=True)  # 0: all of a head
    encoder = specs.TransformerEncoderSpec(len(model.encoder.blocks), model.num_heads, **stack)
    decoder = specs.TransformerDecoderSpec(len(model.decoder.blocks), model.num_heads, **stack)
    spec = specs.TransformerSpec(encoder, decoder)
    encoder.embeddings[0].weight = float32_array(model.source_embedding.embeddings)
    decoder.embeddings.weight = float32_array(model.target_embedding.embeddings)
    decoder.projection.weight = float32_array(model.output_table())
    if model.output_biases is not None:
        decoder.projection.bias = float32_array(model.output_biases)
    decoding = translator.decoding
    limits = decoding.max_source_length + 1, decoding.max_length + 1  # with the end token
    parts = (encoder, model.encoder), (decoder, model.decoder)
    for (part, layer), limit in zip(parts, limits, strict=True):
        _set_positions(part, layer, limit)
        part.scale_embeddings = layer.embedding.scale
        if layer.norm is not None:
            _set_norm(part.layer_norm, layer.norm)
        for block_spec, block in zip(part.layer, layer.blocks, strict=True):
            _set_block(block_spec, block)
    _set_vocabularies(spec, translator)
    spec.config.layer_norm_epsilon = model.layer_norm_epsilon
    return spec


def _set_positions(spec, stack, limit):
    """Sets the table of the first `limit` positions, which are all that a search reaches."""
    if stack.position_layer is not None:
        spec.position_encodings.encodings = float32_array(
            stack.position_layer.encode(np.arange(limit))
        )
    elif hasattr(spec, "position_encodings"):
        delattr(spec, "position_encodings")  # rotary positions are applied in the attention


def _set_block(spec, block):
    attention = block.self_attention
    projections = (
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    _set_linear(spec.self_attention.linear[0], *projections)
    _set_linear(spec.self_attention.linear[1], attention.output_projection)
    _set_norm(spec.self_attention.layer_norm, block.self_attention_residual.normalization)
    if hasattr(spec, "attention"):
        attention = block.cross_attention
        _set_linear(spec.attention.linear[0], attention.query_projection)
        _set_linear(spec.attention.linear[1], attention.key_projection, attention.value_projection)
        _set_linear(spec.attention.linear[2], attention.output_projection)
        _set_norm(spec.attention.layer_norm, block.cross_attention_residual.normalization)
    _set_linear(spec.ffn.linear_0, block.feed_forward.inner)
    _set_linear(spec.ffn.linear_1, block.feed_forward.outer)
    _set_norm(spec.ffn.layer_norm, block.feed_forward_residual.normalization)


def _set_linear(spec, *layers):
    """Joins several layers, each `(output, input)`, into one matrix, and joins their biases."""
    spec.weight = np.concatenate([float32_array(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([float32_array(layer.bias) for layer in layers])


def _set_norm(spec, layer):
    spec.gamma, spec.beta = float32_array(layer.gamma), float32_array(layer.beta)


def _set_vocabularies(spec, translator):
    source, target = translator.tokenizer.pieces, translator.target_tokenizer.pieces
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = True
    spec.config.unk_token = target[UNKNOWN_ID]
    spec.config.bos_token = spec.config.decoder_start_token = target[START_ID]
    spec.config.eos_token = target[END_ID]
