"""Converts a trained Transformer to CTranslate2 and Hugging Face, with exactly the same weights.

So every library in the decoding benchmark searches with the same model; benchmarks/README.md lists
the remaining differences of the searches. The model must be a pre-norm `Transformer` with
sinusoidal positions, one shared embedding table and a tied output layer, as in the preset `tiny`.
"""

import pathlib

import numpy as np
from keras import ops

from keras_transformer.layers.sinusoidal_positions import sinusoidal_encoding
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID

MAX_POSITIONS = 512


def write_ctranslate2(translator, directory, lexicon=None):
    """Writes the model in CTranslate2's format, with its public `TransformerSpec`.

    Args:
        lexicon: the `Lexicon` of its vocabulary map, or None.
    """
    import ctranslate2

    model = translator.model
    sizes = len(model.encoder.blocks), len(model.decoder.blocks)
    spec = ctranslate2.specs.TransformerSpec.from_config(sizes, model.num_heads, pre_norm=True)
    spec.config.layer_norm_epsilon = model.encoder.norm.epsilon
    spec.config.add_source_eos = True
    embeddings, positions = _embeddings(model), _positions(model)
    spec.encoder.embeddings[0].weight = embeddings
    spec.decoder.embeddings.weight = embeddings
    spec.decoder.projection.weight = embeddings
    for stack, norm in ((spec.encoder, model.encoder.norm), (spec.decoder, model.decoder.norm)):
        stack.position_encodings.encodings = positions
        _set_norm(stack.layer_norm, norm)

    for layer, block in zip(spec.encoder.layer, model.encoder.blocks, strict=True):
        _set_self_attention(layer.self_attention, block.self_attention)
        _set_norm(layer.self_attention.layer_norm, block.self_attention_residual.normalization)
        _set_feed_forward(layer.ffn, block)
    for layer, block in zip(spec.decoder.layer, model.decoder.blocks, strict=True):
        _set_self_attention(layer.self_attention, block.self_attention)
        _set_norm(layer.self_attention.layer_norm, block.self_attention_residual.normalization)
        cross = block.cross_attention
        _set_linear(layer.attention.linear[0], cross.query_projection)
        _set_linear(layer.attention.linear[1], cross.key_projection, cross.value_projection)
        _set_linear(layer.attention.linear[2], cross.output_projection)
        _set_norm(layer.attention.layer_norm, block.cross_attention_residual.normalization)
        _set_feed_forward(layer.ffn, block)

    pieces = [str(piece) for piece in translator.tokenizer.pieces]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = pieces[1:4]
    spec.config.decoder_start_token = pieces[START_ID]
    if lexicon is not None:
        path = pathlib.Path(f"{directory}-map.txt")
        path.write_text("\n".join(_vocabulary_map(lexicon, pieces)) + "\n", encoding="utf-8")
        spec.register_vocabulary_mapping(str(path))
    spec.validate()
    pathlib.Path(directory).mkdir(parents=True)
    spec.save(str(directory))


def _vocabulary_map(lexicon, pieces):
    """Returns lines of a source token, a tab and target tokens; no source token means always."""
    rows = {"": lexicon.frequent, **dict(zip(pieces, lexicon.table, strict=True))}
    for source, ids in rows.items():
        targets = " ".join(pieces[i] for i in ids if i > END_ID)
        if targets:
            yield f"{source}\t{targets}"


def _set_self_attention(spec, attention):
    _set_linear(
        spec.linear[0],
        attention.query_projection,
        attention.key_projection,
        attention.value_projection,
    )
    _set_linear(spec.linear[1], attention.output_projection)


def _set_feed_forward(spec, block):
    _set_linear(spec.linear_0, block.feed_forward.inner)
    _set_linear(spec.linear_1, block.feed_forward.outer)
    _set_norm(spec.layer_norm, block.feed_forward_residual.normalization)


def _set_linear(spec, *layers):
    """Joins several layers, each `(output, input)`, into one matrix, and joins their biases."""
    spec.weight = np.concatenate([_numpy(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([_numpy(layer.bias) for layer in layers])


def _set_norm(spec, layer):
    spec.gamma, spec.beta = _numpy(layer.gamma), _numpy(layer.beta)


def write_hugging_face(translator, path):
    """Writes a pickle of the model as Hugging Face's `M2M100`, which is pre-norm with sinusoids.

    Hugging Face's own format would leave out the table of sinusoids.
    """
    import torch
    import transformers

    model = translator.model
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
    torch.save(peer, path)


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
