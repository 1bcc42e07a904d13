"""Converts a trained Transformer to Hugging Face's M2M100, with exactly the same weights.

So it searches with the same model in the decoding benchmark as the others, for which the package
itself writes the model; benchmarks/README.md lists the remaining differences of the searches. The
model must be a pre-norm `Transformer` with sinusoidal positions, one shared embedding table and a
tied output layer, as in the preset `tiny`.
"""

import numpy as np
from keras import ops

from keras_transformer.layers.positions import sinusoidal_encoding
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID

MAX_POSITIONS = 512


def write_vocabulary_map(lexicon, tokenizer, path):
    """Writes CTranslate2's vocabulary map: the tokens that it projects for the source tokens.

    Each line has a source token, a tab and target tokens; no source token means always.
    """
    pieces = [str(piece) for piece in tokenizer.pieces]
    rows = {"": lexicon.frequent, **dict(zip(pieces, lexicon.table, strict=True))}
    lines = []
    for source, ids in rows.items():
        targets = " ".join(pieces[i] for i in ids if i > END_ID)
        if targets:
            lines.append(f"{source}\t{targets}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_hugging_face(model, path):
    """Writes a pickle: Hugging Face's own format would leave out the table of sinusoids."""
    import torch

    torch.save(hugging_face(model), path)


def hugging_face(model):
    """Returns a model as Hugging Face's `M2M100`, which is pre-norm with sinusoids."""
    import torch
    import transformers

    config = transformers.M2M100Config(
        vocab_size=model.source_vocab_size,
        d_model=model.d_model,
        encoder_layers=len(model.encoder.blocks),
        decoder_layers=len(model.decoder.blocks),
        encoder_ffn_dim=model.ff_dim,
        decoder_ffn_dim=model.ff_dim,
        encoder_attention_heads=model.num_heads,
        decoder_attention_heads=model.num_heads,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=MAX_POSITIONS,
        pad_token_id=PAD_ID,
        bos_token_id=START_ID,
        eos_token_id=END_ID,
        decoder_start_token_id=START_ID,
    )
    peer = transformers.M2M100ForConditionalGeneration(config).eval()
    copy = {"model.shared": model.source_embedding}
    for side, blocks, norm in (
        ("encoder", model.encoder.blocks, model.encoder.norm),
        ("decoder", model.decoder.blocks, model.decoder.norm),
    ):
        copy[f"model.{side}.layer_norm"] = norm
        for i, block in enumerate(blocks):
            name = f"model.{side}.layers.{i}"
            copy |= _attention(f"{name}.self_attn", block.self_attention)
            copy[f"{name}.self_attn_layer_norm"] = block.self_attention_residual.normalization
            if side == "decoder":
                copy |= _attention(f"{name}.encoder_attn", block.cross_attention)
                copy[f"{name}.encoder_attn_layer_norm"] = (
                    block.cross_attention_residual.normalization
                )
            copy[f"{name}.fc1"] = block.feed_forward.inner
            copy[f"{name}.fc2"] = block.feed_forward.outer
            copy[f"{name}.final_layer_norm"] = block.feed_forward_residual.normalization
    with torch.no_grad():
        for name, layer in copy.items():
            for target, weight in zip(
                peer.get_submodule(name).parameters(), layer.weights, strict=True
            ):
                value = torch.from_numpy(_numpy(weight))
                is_kernel = name.endswith(("proj", "fc1", "fc2")) and value.ndim == 2
                target.copy_(value.T if is_kernel else value)
        for stack in (peer.model.encoder, peer.model.decoder):
            # position p is in row p + 1 + padding id
            stack.embed_positions.weights[1 : 1 + MAX_POSITIONS] = torch.from_numpy(
                _positions(model)
            )
    return peer


def _attention(name, attention):
    return {
        f"{name}.q_proj": attention.query_projection,
        f"{name}.k_proj": attention.key_projection,
        f"{name}.v_proj": attention.value_projection,
        f"{name}.out_proj": attention.output_projection,
    }


def _embeddings(model):
    return _numpy(model.source_embedding.embeddings)


def _positions(model):
    return _numpy(sinusoidal_encoding(np.arange(MAX_POSITIONS), model.d_model))


def _numpy(tensor):
    return np.array(ops.convert_to_numpy(tensor), "float32")
