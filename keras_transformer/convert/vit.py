"""ViT as `transformers` saves it, `ViTForImageClassification` or `ViTModel`."""

import numpy as np

from keras_transformer.convert.weights import (
    Weights,
    activation_name,
    check_settings,
    number,
    size,
    sizes,
)
from keras_transformer.errors import InputError
from keras_transformer.models import VisionTransformer

TOKEN_TENSORS = ()
"""The tensors with one row for each token: none."""


def model_from(config, tensors):
    """Returns a built `VisionTransformer`, which takes images with the channels last.

    A `ViTModel` becomes a model without a head. Its pooler, if the file has one, becomes the layer
    of `representation_dim`. The classes of a head are counted in its tensor. Projections without
    biases (`qkv_bias` false) get biases of zero. There is no dropout on attention weights
    (`attention_probs_dropout_prob`), which has no effect but in training.

    Args:
        config: dict of config.json.
        tensors: dict from name to array.
    Raises:
        InputError: settings without a counterpart in `VisionTransformer`, or tensors that are
            missing, left over (such as those of masked image modelling) or of another shape.
    """
    d_model, num_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    check_settings(config, {"head_dim": (d_model // num_heads,), "pooler_act": ("tanh",)})
    weights = Weights(tensors, prefix="vit.")
    has_pooler = "pooler.dense.weight" in weights
    has_head = "classifier.weight" in weights
    if not has_head and "ViTForImageClassification" in (config.get("architectures") or ()):
        weights.take("classifier.weight", ())  # says that there is none
    model = VisionTransformer(
        len(weights.peek("classifier.weight")) if has_head else None,
        image_size=sizes(config, "image_size"),
        patch_size=_patch_size(config),
        num_channels=size(config, "num_channels"),
        num_layers=size(config, "num_hidden_layers"),
        d_model=d_model,
        ff_dim=size(config, "intermediate_size"),
        num_heads=num_heads,
        dropout=number(config, "hidden_dropout_prob", 0.0),
        representation_dim=_pooled_dim(config) if has_pooler else None,
        activation=activation_name(config, "hidden_act"),
        layer_norm_epsilon=number(config, "layer_norm_eps", 1e-12),
        name="vit",
    )
    model.build()
    _copy_embedding(weights, model.encoder.embedding)
    has_biases = config.get("qkv_bias", True)
    for i, block in enumerate(model.encoder.blocks):
        _copy_block(weights, f"encoder.layer.{i}", block, has_biases)
    weights.copy_normalization("layernorm", model.encoder.norm)
    if has_pooler:
        weights.copy_dense("pooler.dense", model.representation)
    if has_head:
        weights.copy_dense("classifier", model.head)
    weights.check_none_left()
    return model


def _pooled_dim(config):
    name = "hidden_size" if config.get("pooler_output_size") is None else "pooler_output_size"
    return size(config, name)


def _patch_size(config):
    height, width = sizes(config, "patch_size")
    if height != width:
        raise InputError(
            "Expected square patches, the only ones that can be converted. "
            f"Received: patch_size={config['patch_size']}."
        )
    return height


def _copy_embedding(weights, embedding):
    side, channels, d_model = embedding.patch_size, embedding.num_channels, embedding.d_model
    name = "embeddings.patch_embeddings.projection"
    kernel = weights.take(f"{name}.weight", (d_model, channels, side, side))
    kernel = np.transpose(kernel, (2, 3, 1, 0))  # rows, columns, channels, D
    embedding.projection.kernel.assign(kernel.reshape(-1, d_model))
    weights.copy(f"{name}.bias", embedding.projection.bias)
    rows, columns = embedding.grid
    positions = weights.take("embeddings.position_embeddings", (1, 1 + rows * columns, d_model))
    embedding.class_position.assign(positions[0, 0])
    embedding.positions.embeddings.assign(positions[0, 1:].reshape(rows, columns, d_model))
    embedding.class_embedding.assign(weights.take("embeddings.cls_token", (1, 1, d_model))[0, 0])


def _copy_block(weights, name, block, has_biases):
    attention, feed_forward = block.self_attention, block.feed_forward
    for part, layer in (
        ("query", attention.query_projection),
        ("key", attention.key_projection),
        ("value", attention.value_projection),
    ):
        weights.copy_dense(f"{name}.attention.attention.{part}", layer, has_biases)
    weights.copy_dense(f"{name}.attention.output.dense", attention.output_projection)
    weights.copy_dense(f"{name}.intermediate.dense", feed_forward.inner)
    weights.copy_dense(f"{name}.output.dense", feed_forward.outer)
    before, after = block.self_attention_residual, block.feed_forward_residual
    weights.copy_normalization(f"{name}.layernorm_before", before.normalization)
    weights.copy_normalization(f"{name}.layernorm_after", after.normalization)
