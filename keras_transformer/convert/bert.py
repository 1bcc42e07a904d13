"""BERT as `transformers` saves it, as a `models.Bert` or one of the models on top of it."""

from keras import ops

from keras_transformer.convert.weights import Weights
from keras_transformer.errors import InputError
from keras_transformer.models import Bert, BertClassifier, BertPretraining, BertTokenClassifier
from keras_transformer.special_ids import PAD_ID

BUFFERS = r"embeddings\.(position_ids|token_type_ids)"
"""Constants, which early versions saved with the weights."""

NAMES = {
    "self.query": "attention.self.query",
    "self.key": "attention.self.key",
    "self.value": "attention.self.value",
    "self.output": "attention.output.dense",
    "self.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward.norm": "output.LayerNorm",
}

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
    """
    config.check(EXPECTED)
    (architecture, *others) = config.get("architectures") or [None]
    if architecture not in ARCHITECTURES or others:
        raise InputError(
            f"Expected architectures in config.json to be one of {', '.join(ARCHITECTURES)}. "
            f"Received: architectures={config.get('architectures')!r}."
        )
    for early, name in (("gamma", "weight"), ("beta", "bias")):  # of early files
        tensors = {
            key.replace(f"LayerNorm.{early}", f"LayerNorm.{name}"): tensor
            for key, tensor in tensors.items()
        }
    weights = Weights(tensors, prefix="bert.", ignored=BUFFERS)
    is_classifier_of_text = architecture == "BertForSequenceClassification"
    d_model, ff_dim = config.size("hidden_size"), config.size("intermediate_size")
    num_layers = config.size("num_hidden_layers")
    tables = {
        "word": config.size("vocab_size"),
        "position": config.size("max_position_embeddings"),
        "token_type": config.size("type_vocab_size"),
    }
    weights.check_all(
        {
            **{f"embeddings.{name}_embeddings.weight": (n, d_model) for name, n in tables.items()},
            f"encoder.layer.{num_layers - 1}.intermediate.dense.weight": (ff_dim, d_model),
        }.items()
    )
    bert = Bert(
        tables["word"],
        num_layers=num_layers,
        d_model=d_model,
        ff_dim=ff_dim,
        num_heads=config.size("num_attention_heads"),
        dropout=config.number("hidden_dropout_prob", 0.1),
        activation=config.activation("hidden_act"),
        max_length=tables["position"],
        num_segments=tables["token_type"],
        pooler="pooler.dense.weight" in weights or is_classifier_of_text,
        layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
        name="bert",
    )
    embedding = bert.encoder.embedding
    for name, layer in (
        ("word", embedding.token_embedding),
        ("position", embedding.position_layer),
        ("token_type", embedding.segment_embedding),
    ):
        weights.copy(f"embeddings.{name}_embeddings.weight", layer.embeddings)
    weights.copy_normalization("embeddings.LayerNorm", embedding.norm)
    for i, block in enumerate(bert.encoder.blocks):
        weights.copy_block(f"encoder.layer.{i}", block, NAMES)
    if bert.pooler:
        weights.copy_dense("pooler.dense", bert.pooler_layer)
    model = bert
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        config.check({"tie_word_embeddings": (True,)})
        model = _pretraining(weights, bert)
    elif architecture != "BertModel":
        model = _classifier(weights, bert, architecture, config)
    weights.check_none_left()
    return model


def _pretraining(weights, bert):
    next_sentence = "cls.seq_relationship.weight" in weights
    model = BertPretraining(bert, next_sentence, name="bert_pretraining")
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
    has_own_rate = config.get("classifier_dropout") is not None
    rate = "classifier_dropout" if has_own_rate else "hidden_dropout_prob"
    model = model_class(
        bert,
        num_classes=len(config.get("id2label") or (0, 1)),  # two if config.json has no labels
        dropout=config.number(rate, 0.1),
        name="bert_classifier" if whole_text else "bert_token_classifier",
    )
    weights.copy_dense("classifier", model.output_layer)
    return model
