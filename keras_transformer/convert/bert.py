"""BERT as `transformers` saves it, as a `models.Bert` or one of the models on top of it."""

from keras import ops

from keras_transformer.convert.weights import (
    Weights,
    activation_name,
    check_settings,
    number,
    size,
)
from keras_transformer.errors import InputError
from keras_transformer.models import Bert, BertClassifier, BertPretraining, BertTokenClassifier
from keras_transformer.special_ids import PAD_ID

TOKEN_TENSORS = (
    "embeddings.word_embeddings.weight",
    "bert.embeddings.word_embeddings.weight",
    "cls.predictions.bias",
    "cls.predictions.decoder.bias",
    "cls.predictions.decoder.weight",
)
"""The tensors with one row for each token."""

BUFFERS = r"embeddings\.(position_ids|token_type_ids)"
"""Constants, which early versions saved with the weights."""

EXPECTED = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "pad_token_id": (PAD_ID, None),
}

ARCHITECTURES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertForTokenClassification",
)


def model_from(config, tensors):
    """Returns the built model that the tensors make up.

    `BertModel` becomes a `Bert`; `BertForMaskedLM` and `BertForPreTraining` a `BertPretraining`,
    with a next-sentence head if the file has one, whichever of the two config.json names (that of
    bert-base-uncased names the one and has the tensors of the other); the classifiers become a
    `BertClassifier` and a `BertTokenClassifier`. The `Bert` has a pooler if the file has one.

    In training, there is no dropout on the attention weights; without training, the outputs are the
    same.

    Args:
        config: dict of config.json.
        tensors: dict from name to array.
    Raises:
        InputError: settings without a counterpart in `Bert`, or tensors that are missing, left over
            or of another shape.
    """
    check_settings(config, EXPECTED)
    (architecture, *others) = config.get("architectures") or [None]
    if architecture not in ARCHITECTURES or others:
        raise InputError(
            f"Expected architectures in config.json to be one of {', '.join(ARCHITECTURES)}. "
            f"Received: architectures={config.get('architectures')!r}."
        )
    weights = Weights(_todays_names(tensors), prefix="bert.", ignored=BUFFERS)
    is_classifier_of_text = architecture == "BertForSequenceClassification"
    bert = Bert(
        size(config, "vocab_size"),
        num_layers=size(config, "num_hidden_layers"),
        d_model=size(config, "hidden_size"),
        ff_dim=size(config, "intermediate_size"),
        num_heads=size(config, "num_attention_heads"),
        dropout=number(config, "hidden_dropout_prob", 0.1),
        activation=activation_name(config, "hidden_act"),
        max_length=size(config, "max_position_embeddings"),
        num_segments=size(config, "type_vocab_size"),
        pooler="pooler.dense.weight" in weights or is_classifier_of_text,
        layer_norm_epsilon=number(config, "layer_norm_eps", 1e-12),
        name="bert",
    )
    bert.build()
    _copy_encoder(weights, bert)
    model = bert
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        check_settings(config, {"tie_word_embeddings": (True,)})
        model = _pretraining(weights, bert)
    elif architecture != "BertModel":
        model = _classifier(weights, bert, architecture, config)
    weights.check_none_left()
    return model


def _todays_names(tensors):
    """Returns the tensors with the names of today: early files have gamma and beta."""
    endings = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in endings.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        renamed[name] = tensor
    return renamed


def _copy_encoder(weights, bert):
    embedding = bert.encoder.embedding
    for name, layer in (
        ("word", embedding.token_embedding),
        ("position", embedding.position_layer),
        ("token_type", embedding.segment_embedding),
    ):
        weights.copy(f"embeddings.{name}_embeddings.weight", layer.embeddings)
    weights.copy_normalization("embeddings.LayerNorm", embedding.norm)
    for i, block in enumerate(bert.encoder.blocks):
        _copy_block(weights, f"encoder.layer.{i}", block)
    if bert.pooler:
        weights.copy_dense("pooler.dense", bert.pooler_layer)


def _copy_block(weights, name, block):
    attention, feed_forward = block.self_attention, block.feed_forward
    for part, layer in (
        ("attention.self.query", attention.query_projection),
        ("attention.self.key", attention.key_projection),
        ("attention.self.value", attention.value_projection),
        ("attention.output.dense", attention.output_projection),
        ("intermediate.dense", feed_forward.inner),
        ("output.dense", feed_forward.outer),
    ):
        weights.copy_dense(f"{name}.{part}", layer)
    for part, residual in (
        ("attention.output.LayerNorm", block.self_attention_residual),
        ("output.LayerNorm", block.feed_forward_residual),
    ):
        weights.copy_normalization(f"{name}.{part}", residual.normalization)


def _pretraining(weights, bert):
    next_sentence = "cls.seq_relationship.weight" in weights
    model = BertPretraining(bert, next_sentence, name="bert_pretraining")
    model.build()
    weights.copy_dense("cls.predictions.transform.dense", model.dense)
    weights.copy_normalization("cls.predictions.transform.LayerNorm", model.norm)
    weights.copy("cls.predictions.bias", model.output_bias)
    for name, of, variable in (
        ("decoder.weight", "the token embedding", bert.token_embedding.embeddings),
        ("decoder.bias", "cls.predictions.bias", model.output_bias),
    ):
        weights.take_copy(f"cls.predictions.{name}", of, ops.convert_to_numpy(variable))
    if next_sentence:
        weights.copy_dense("cls.seq_relationship", model.next_sentence_layer)
    return model


def _classifier(weights, bert, architecture, config):
    whole_text = architecture == "BertForSequenceClassification"
    model_class = BertClassifier if whole_text else BertTokenClassifier
    rate = (
        "hidden_dropout_prob" if config.get("classifier_dropout") is None else "classifier_dropout"
    )
    model = model_class(
        bert,
        num_classes=len(config.get("id2label") or (0, 1)),  # two if config.json has no labels
        dropout=number(config, rate, 0.1),
        name="bert_classifier" if whole_text else "bert_token_classifier",
    )
    model.build()
    weights.copy_dense("classifier", model.output_layer)
    return model
