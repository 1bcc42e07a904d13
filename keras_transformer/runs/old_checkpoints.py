"""Reads checkpoints that earlier versions of this package have written."""

import itertools


def upgrade_state(content):
    """Returns the content of a `state.json` with the names that its fields have today."""
    if isinstance(content, dict) and "best_bleu" in content and "best_score" not in content:
        content = dict(content)
        content["best_score"] = content.pop("best_bleu")
    return content


def keyed_by_index(tensors):
    """Returns whether a `state.npz` has an index in place of the path of each variable."""
    return "optimizer/0" in tensors


def variables_by_index(model):
    """Returns the variables of such a `state.npz`: dict from key to variable.

    The optimizer's own variables come first (iterations, a constant learning rate, the loss scale),
    then those of each weight in turn (for Adam, its momentum and its velocity).

    Args:
        model: compiled `Transformer`.
    """
    trainable, random_states = _in_old_order(model)
    of_weight = {variable.path.replace("/", "_"): [] for variable in trainable}
    own = []
    for variable in model.optimizer.variables:
        weight, _, _ = variable.name.rpartition("_")  # "decoder_norm_gamma_momentum"
        of_weight.get(weight, own).append(variable)
    groups = {
        "optimizer": [*own, *itertools.chain.from_iterable(of_weight.values())],
        "random": random_states,
    }
    return {
        f"{group}/{i}": variable
        for group, variables in groups.items()
        for i, variable in enumerate(variables)
    }


def _in_old_order(model):
    """Returns the `(trainable variables, random states)` of a `Transformer` in their old order.

    The layers of the stacks were its own: first the embeddings of both, then the blocks.
    """
    encoder, decoder = model.encoder, model.decoder
    layers = [encoder.embedding, decoder.embedding, encoder.position_layer, decoder.position_layer]
    layers += [encoder.embedding_dropout, decoder.embedding_dropout]
    layers += [*encoder.blocks, *decoder.blocks, encoder.norm, decoder.norm, model.output_layer]
    layers = [layer for layer in dict.fromkeys(layers) if layer is not None]
    weights = {id(weight) for weight in model.weights}
    trainable = [v for layer in layers for v in layer.trainable_variables]
    others = [v for layer in layers for v in layer.non_trainable_variables]
    return trainable, [v for v in others if id(v) not in weights]
