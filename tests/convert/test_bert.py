"""BERT against the independent implementation in `transformers`: every output, and gradients."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.convert import from_hugging_face
from keras_transformer.data import MaskedTokenBatches, bert_inputs
from keras_transformer.models import Bert, BertClassifier, BertPretraining, BertTokenClassifier

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")

SIZES = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
             intermediate_size=40, max_position_embeddings=16, type_vocab_size=3)  # fmt: skip
RNG = np.random.default_rng(5)
IDS = RNG.integers(1, 61, size=(3, 11)).astype("int32")
IDS[1, 7:] = IDS[2, 4:] = 0
SEGMENT_IDS = RNG.integers(0, 3, size=(3, 11)).astype("int32")
REAL = IDS != 0

CLASSES = {
    "BertModel": Bert,
    "BertForPreTraining": BertPretraining,
    "BertForMaskedLM": BertPretraining,
    "BertForSequenceClassification": BertClassifier,
    "BertForTokenClassification": BertTokenClassifier,
}


DROPOUTS = dict(hidden_dropout_prob=0.3, classifier_dropout=0.4)


def theirs(name, **settings):
    """Returns a BERT of `transformers` whose every weight is random: no bias 0, no scale 1."""
    torch.manual_seed(3)
    model = getattr(transformers, name)(transformers.BertConfig(**{**SIZES, **settings})).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            centre = 1.0 if path.endswith("LayerNorm.weight") else 0.0
            parameter.normal_(centre, 0.3)
    return model


def their_outputs(model):
    return model(
        torch.tensor(IDS, dtype=torch.long),
        attention_mask=torch.tensor(REAL),
        token_type_ids=torch.tensor(SEGMENT_IDS, dtype=torch.long),
    )


def our_outputs(model):
    outputs = model({"ids": IDS, "segment_ids": SEGMENT_IDS})
    return keras.tree.map_structure(ops.convert_to_numpy, outputs)


@pytest.fixture
def directory(tmp_path):
    theirs("BertForPreTraining").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name, settings",
    [
        *((name, dict()) for name in CLASSES),
        ("BertForMaskedLM", dict(hidden_act="gelu_new", layer_norm_eps=0.01)),
        ("BertForTokenClassification", dict(hidden_act="relu", num_labels=5, **DROPOUTS)),
        ("BertForSequenceClassification", dict(hidden_dropout_prob=0.3)),
    ],
    ids=str,
)
def test_every_output(name, settings, tmp_path):
    model = theirs(name, **settings)
    model.save_pretrained(tmp_path)
    ours, tokenizer = from_hugging_face(tmp_path)
    assert type(ours) is CLASSES[name] and tokenizer is None
    assert ours.count_params() == sum(p.numel() for p in model.parameters())
    hidden = settings.get("hidden_dropout_prob", 0.1)
    assert getattr(ours, "bert", ours).dropout == hidden
    if "Classif" in name:
        assert ours.dropout == settings.get("classifier_dropout", hidden)
    with torch.no_grad():
        outputs = {key: value.numpy() for key, value in their_outputs(model).items()}
    found = our_outputs(ours)
    if name == "BertModel":
        pairs = [
            (found["sequence_output"][REAL], outputs["last_hidden_state"][REAL]),
            (found["pooled_output"], outputs["pooler_output"]),
        ]
    elif name == "BertForPreTraining":
        pairs = [
            (found["masked_tokens"][REAL], outputs["prediction_logits"][REAL]),
            (found["next_sentence"], outputs["seq_relationship_logits"]),
        ]
    elif name == "BertForSequenceClassification":
        pairs = [(found, outputs["logits"])]
    else:
        pairs = [(found[REAL], outputs["logits"][REAL])]
    for ours, expected in pairs:
        assert expected.std() > 0.1
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_gradients(directory):
    """One step of gradient descent with a rate of 1 subtracts the gradients from the weights."""
    no_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = theirs("BertForPreTraining", **no_dropout)
    model.save_pretrained(directory)
    ours = from_hugging_face(directory).model
    positions = np.array([[1, 4], [2, 6], [3, 0]])
    labels = np.array([[8, 9], [60, 7], [1, 2]])
    is_random = np.array([0, 1, 1])
    outputs = their_outputs(model)
    chosen = outputs.prediction_logits[torch.arange(3)[:, None], torch.tensor(positions)]
    cross_entropy = torch.nn.functional.cross_entropy
    loss = cross_entropy(chosen.reshape(-1, 61), torch.tensor(labels.reshape(-1)))
    loss = loss + cross_entropy(outputs.seq_relationship_logits, torch.tensor(is_random))
    loss.backward()

    bert = ours.bert
    block = bert.encoder.blocks[0]
    pairs = {
        "bert.embeddings.word_embeddings.weight": bert.token_embedding.embeddings,
        "bert.embeddings.position_embeddings.weight": bert.encoder.embedding.position_layer,
        "bert.embeddings.token_type_embeddings.weight": bert.encoder.embedding.segment_embedding,
        "bert.encoder.layer.0.attention.output.LayerNorm.weight": (
            block.self_attention_residual.normalization.gamma
        ),
        "bert.encoder.layer.0.intermediate.dense.bias": block.feed_forward.inner.bias,
        "bert.pooler.dense.bias": bert.pooler_layer.bias,
        "cls.predictions.bias": ours.output_bias,
        "cls.predictions.transform.dense.bias": ours.dense.bias,
    }
    pairs = {name: getattr(weight, "embeddings", weight) for name, weight in pairs.items()}
    before = {name: ops.convert_to_numpy(weight).copy() for name, weight in pairs.items()}
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours.compile(keras.optimizers.SGD(1.0), cross_entropy, run_eagerly=True)
    ours.train_on_batch(
        {"ids": IDS, "segment_ids": SEGMENT_IDS, "masked_positions": positions},
        {"masked_tokens": labels, "next_sentence": is_random},
    )
    for name, weight in pairs.items():
        expected = model.get_parameter(name).grad.numpy()
        found = before[name] - ops.convert_to_numpy(weight)
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-3, err_msg=name)


def tensors_of(directory):
    return safetensors.load_file(directory / "model.safetensors")


def change_config(directory, change):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **change}))


def test_an_early_file(directory):
    """As that of bert-base-uncased: other names, repeated tensors, and heads config.json omits."""
    expected = our_outputs(from_hugging_face(directory).model)
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors_of(directory).items()
    }
    tensors["bert.embeddings.position_ids"] = np.arange(16)[None]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    safetensors.save_file(tensors, directory / "model.safetensors")
    change_config(directory, {"architectures": ["BertForMaskedLM"]})
    found = our_outputs(from_hugging_face(directory).model)
    keras.tree.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("name", ["decoder.weight", "decoder.bias"])
def test_an_output_of_other_numbers_is_refused(directory, name):
    tensors = tensors_of(directory)
    tied = {"decoder.weight": "bert.embeddings.word_embeddings.weight"}
    tensor = tensors[tied.get(name, "cls.predictions.bias")]
    tensors[f"cls.predictions.{name}"] = tensor + 1
    safetensors.save_file(tensors, directory / "model.safetensors")
    with pytest.raises(ValueError, match=f"Expected cls.predictions.{name} to be a copy of "):
        from_hugging_face(directory)


def test_a_model_without_an_output_has_none_to_tie(tmp_path):
    theirs("BertModel", tie_word_embeddings=False).save_pretrained(tmp_path)
    from_hugging_face(tmp_path)


def test_a_classifier_needs_a_pooler(tmp_path):
    theirs("BertForTokenClassification").save_pretrained(tmp_path)
    change_config(tmp_path, {"architectures": ["BertForSequenceClassification"]})
    with pytest.raises(ValueError, match="Expected a tensor pooler.dense.weight"):
        from_hugging_face(tmp_path)


def test_ids_are_those_of_its_vocabulary(directory):
    """Whatever ids the special tokens have: nothing is moved."""
    expected = our_outputs(from_hugging_face(directory).model)
    pieces = ["[PAD]", *(f"w{i}" for i in range(50)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog"]
    (directory / "vocab.txt").write_text("\n".join(pieces))
    ours, tokenizer = from_hugging_face(directory)
    assert tokenizer.encode("dog w1").ids == [52, 55, 2, 53]
    for name, found in our_outputs(ours).items():
        np.testing.assert_array_equal(found, expected[name])
    with pytest.raises(ValueError, match="Expected a tokenizer of this package. Received: "):
        bert_inputs(tokenizer, ["dog"])
    with pytest.raises(ValueError, match="Expected a tokenizer of this package. Received: "):
        MaskedTokenBatches([["dog"]], tokenizer, max_length=8)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(hidden_act="quick_gelu"), "hidden_act='quick_gelu'"),
        (dict(position_embedding_type="relative_key"), "position_embedding_type='relative_key'"),
        (dict(is_decoder=True), "is_decoder=True"),
        (dict(add_cross_attention=True), "add_cross_attention=True"),
        (dict(tie_word_embeddings=False), "tie_word_embeddings=False"),
        (dict(pad_token_id=3), "pad_token_id=3"),
        (dict(architectures=["BertForQuestionAnswering"]), r"\['BertForQuestionAnswering'\]"),
        (dict(architectures=None), "architectures=None"),
        (dict(architectures=["BertModel"]), "Received: cls.predictions.bias, .* and 2 more"),
        (dict(architectures=["BertForTokenClassification"]), "a tensor classifier.weight"),
        (dict(vocab_size=None), "vocab_size in config.json"),
        (dict(num_attention_heads=5), "d_model=24, num_heads=5"),
        (dict(intermediate_size=41), r"intermediate.dense.weight of shape \(41, 24\)"),
        (dict(num_hidden_layers=3), "a tensor encoder.layer.2.intermediate.dense.weight"),
        (dict(num_hidden_layers=10**12), "a tensor encoder.layer.9{12}.intermediate"),
        (dict(type_vocab_size=10**12), "token_type_embeddings.weight of shape"),
        (dict(num_hidden_layers=1), "Received: encoder.layer.1.attention.output.LayerNorm.bias"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_named(directory, change, message):
    change_config(directory, change)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(directory)
