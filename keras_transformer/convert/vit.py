"""ViT as `transformers` saves it, `ViTForImageClassification` or `ViTModel`."""

import numpy as np

from keras_transformer.convert.weights import Weights
from keras_transformer.errors import InputError
from keras_transformer.models import VisionTransformer

NAMES = {
    "self.query": "attention.attention.query",
    "self.key": "attention.attention.key",
    "self.value": "attention.attention.value",
    "self.output": "attention.output.dense",
    "self.norm": "layernorm_before",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward.norm": "layernorm_after",
}

PATCHES = "embeddings.patch_embeddings.projection"


def model_from(config, tensors):
    """Returns a built `VisionTransformer`, which takes images with the channels last.

    A `ViTModel` becomes a model without a head. Its pooler, if the file has one, becomes the layer
    of `representation_dim`. The classes of a head are counted in its tensor. Projections without
    biases (`qkv_bias` false) get biases of zero. There is no dropout on attention weights
    (`attention_probs_dropout_prob`), which has no effect but in training.
    """
    d_model, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    config.check({"head_dim": (d_model // num_heads,), "pooler_act": ("tanh",)})
    weights = Weights(tensors, prefix="vit.")
    has_pooler = "pooler.dense.weight" in weights
    pooled = "hidden_size" if config.get("pooler_output_size") is None else "pooler_output_size"
    has_head = "classifier.weight" in weights
    if not has_head and "ViTForImageClassification" in (config.get("architectures") or ()):
        weights.take("classifier.weight", ())  # says that there is none
    (height, width), patch_size = config.sizes("image_size"), _patch_size(config)
    num_channels, ff_dim = config.size("num_channels"), config.size("intermediate_size")
    num_layers = config.size("num_hidden_layers")
    representation_dim = config.size(pooled) if has_pooler else None
    num_patches = (height // patch_size) * (width // patch_size)
    weights.check_all(
        {
            f"{PATCHES}.weight": (d_model, num_channels, patch_size, patch_size),
            "embeddings.position_embeddings": (1, 1 + num_patches, d_model),
            f"encoder.layer.{num_layers - 1}.intermediate.dense.weight": (ff_dim, d_model),
            **({"pooler.dense.weight": (representation_dim, d_model)} if has_pooler else {}),
        }.items()
    )
    model = VisionTransformer(
        len(weights.peek("classifier.weight")) if has_head else None,
        image_size=(height, width),
        patch_size=patch_size,
        num_channels=num_channels,
        num_layers=num_layers,
        d_model=d_model,
        ff_dim=ff_dim,
        num_heads=num_heads,
        dropout=config.number("hidden_dropout_prob", 0.0),
        representation_dim=representation_dim,
        activation=config.activation("hidden_act"),
        layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
        name="vit",
    )
    _copy_embedding(weights, model.encoder.embedding)
    unbiased = () if config.get("qkv_bias", True) else ("self.query", "self.key", "self.value")
    for i, block in enumerate(model.encoder.blocks):
        weights.copy_block(f"encoder.layer.{i}", block, NAMES, unbiased)
    weights.copy_normalization("layernorm", model.encoder.norm)
    if has_pooler:
        weights.copy_dense("pooler.dense", model.representation)
    if has_head:
        weights.copy_dense("classifier", model.head)
    weights.check_none_left()
    return model


def _patch_size(config):
    height, width = config.sizes("patch_size")
    if height != width:
        raise InputError(
            "Expected square patches, the only ones that can be converted. "
            f"Received: patch_size={config['patch_size']}."
        )
    return height


def _copy_embedding(weights, embedding):
    side, channels, d_model = embedding.patch_size, embedding.num_channels, embedding.d_model
    kernel = weights.take(f"{PATCHES}.weight", (d_model, channels, side, side))
    kernel = np.transpose(kernel, (2, 3, 1, 0))  # rows, columns, channels, D
    embedding.projection.kernel.assign(kernel.reshape(-1, d_model))
    weights.copy(f"{PATCHES}.bias", embedding.projection.bias)
    rows, columns = embedding.grid
    positions = weights.take("embeddings.position_embeddings", (1, 1 + rows * columns, d_model))
    embedding.class_position.assign(positions[0, 0])
    embedding.positions.embeddings.assign(positions[0, 1:].reshape(rows, columns, d_model))
    embedding.class_embedding.assign(weights.take("embeddings.cls_token", (1, 1, d_model))[0, 0])
