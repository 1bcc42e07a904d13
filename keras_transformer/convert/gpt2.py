"""GPT-2 as `transformers` saves it, `GPT2LMHeadModel` or `GPT2Model`, as a `models.Gpt`."""

import numpy as np
from keras import ops

from keras_transformer.convert.weights import Weights
from keras_transformer.errors import InputError
from keras_transformer.models import Gpt

BUFFERS = r"h\.\d+\.attn\.(bias|masked_bias)"
"""Causal masks, which early versions saved with the weights."""

EXPECTED = {
    "add_cross_attention": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
}


TABLES = ("wte.weight", "lm_head.weight")
"""The tensors with one row for each token."""


def model_from(config, tensors):
    """Returns a built `Gpt` whose ids are those of the file: it has no padding, `pad_id=-1`.

    The output is the embedding, unless config.json or an `lm_head` of other numbers says otherwise.
    In training, `Gpt` applies the dropout `resid_pdrop` to the embeddings too, and none to the
    attention weights; without training, the logits are the same.
    """
    config.check(EXPECTED)
    d_model = config.size("n_embd")
    weights = Weights(tensors, prefix="transformer.", ignored=BUFFERS)
    vocab_size, num_layers = config.size("vocab_size"), config.size("n_layer")
    ff_dim = 4 * d_model if config.get("n_inner") is None else config.size("n_inner")
    last = f"h.{num_layers - 1}"
    weights.check_all(
        {
            "wte.weight": (vocab_size, d_model),
            "wpe.weight": (config.size("n_positions"), d_model),
            f"{last}.attn.c_attn.weight": (d_model, 3 * d_model),
            f"{last}.mlp.c_fc.weight": (d_model, ff_dim),
        }.items()
    )
    model = Gpt(
        vocab_size,
        num_layers=num_layers,
        d_model=d_model,
        ff_dim=ff_dim,
        num_heads=config.size("n_head"),
        dropout=config.number("resid_pdrop", 0.1),
        activation=config.activation("activation_function"),
        max_length=config.size("n_positions"),
        tie_output=config.get("tie_word_embeddings", True) and not _has_own_output(weights),
        layer_norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
        pad_id=-1,
        end_id=_end_id(config, vocab_size),
        name="gpt",
    )
    decoder = model.decoder
    weights.copy("wte.weight", model.embedding.embeddings)
    weights.copy("wpe.weight", decoder.position_layer.embeddings)
    for i, block in enumerate(decoder.blocks):
        _copy_block(weights, f"h.{i}", block, d_model)
    weights.copy_normalization("ln_f", decoder.norm)
    if not model.tie_output:
        weights.copy("lm_head.weight", model.output_layer.kernel, np.transpose)
    else:
        table = ops.convert_to_numpy(model.embedding.embeddings)
        weights.take_copy("lm_head.weight", "the token embedding", table)
    weights.check_none_left()
    return model


def _has_own_output(weights):
    names = "lm_head.weight", "wte.weight"
    return all(name in weights for name in names) and not np.array_equal(*map(weights.peek, names))


def _end_id(config, vocab_size):
    """Returns the id that ends a text; None where no token of the vocabulary does."""
    end_id = config.get("eos_token_id")
    if end_id is not None and type(end_id) is not int:
        raise InputError(
            "Expected eos_token_id in config.json to be an integer or null. "
            f"Received: eos_token_id={end_id!r}."
        )
    return end_id if end_id is not None and 0 <= end_id < vocab_size else None


def _copy_block(weights, name, block, d_model):
    """Copies one block; the projections are `(input, output)`, as ours."""
    attention, feed_forward = block.self_attention, block.feed_forward
    kernel = weights.take(f"{name}.attn.c_attn.weight", (d_model, 3 * d_model))
    bias = weights.take(f"{name}.attn.c_attn.bias", (3 * d_model,))
    projections = attention.query_projection, attention.key_projection, attention.value_projection
    for i, projection in enumerate(projections):
        part = slice(i * d_model, (i + 1) * d_model)
        projection.kernel.assign(kernel[:, part])
        projection.bias.assign(bias[part])
    weights.copy_normalization(f"{name}.ln_1", block.self_attention_residual.normalization)
    weights.copy_normalization(f"{name}.ln_2", block.feed_forward_residual.normalization)
    for part, layer in (
        ("attn.c_proj", attention.output_projection),
        ("mlp.c_fc", feed_forward.inner),
        ("mlp.c_proj", feed_forward.outer),
    ):
        weights.copy(f"{name}.{part}.weight", layer.kernel)
        weights.copy(f"{name}.{part}.bias", layer.bias)
