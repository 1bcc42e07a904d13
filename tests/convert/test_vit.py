"""ViT against the independent implementation in `transformers`: outputs and gradients."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.convert import from_hugging_face
from keras_transformer.models import VisionTransformer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# no two sizes equal
SIZES = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=17,
             image_size=8, patch_size=4, num_channels=2, num_labels=5)  # fmt: skip
IMAGES = np.random.default_rng(5).normal(size=(3, 8, 8, 2)).astype("float32")


def theirs(model_class="ViTForImageClassification", **settings):
    """A ViT of `transformers` whose every weight is random: no bias 0, no scale 1."""
    torch.manual_seed(3)
    config = transformers.ViTConfig(**{**SIZES, **settings})
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "layernorm" in name and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.3)
    return model


@pytest.fixture
def directory(tmp_path):
    theirs().save_pretrained(tmp_path)
    return tmp_path


def channels_first(images):
    return torch.tensor(np.transpose(images, (0, 3, 1, 2)).copy())


def numbers(x):
    return ops.convert_to_numpy(x)


def close(found, expected):
    np.testing.assert_allclose(numbers(found), expected.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(qkv_bias=False, hidden_act="relu", layer_norm_eps=0.01, hidden_dropout_prob=0.3),
        dict(image_size=[8, 8], patch_size=[2, 2], hidden_act="gelu_new"),
    ],
    ids=str,
)
def test_logits_hidden_states_and_attention(settings, tmp_path):
    model = theirs(attn_implementation="eager", **settings)
    model.save_pretrained(tmp_path)
    ours, tokenizer = from_hugging_face(tmp_path)
    assert isinstance(ours, VisionTransformer) and tokenizer is None
    assert ours.dropout == settings.get("hidden_dropout_prob", 0.0)
    expected = model(channels_first(IMAGES), output_hidden_states=True, output_attentions=True)
    logits, weights = ours(IMAGES, return_attention_weights=True)
    close(logits, expected.logits)
    for found, attention in zip(weights, expected.attentions, strict=True):
        close(found, attention)
    embedding, first, _ = expected.hidden_states
    close(ours.encoder.embedding(IMAGES), embedding)
    close(ours.encoder.blocks[0](numbers(embedding.detach())), first)
    close(ours.encoder(IMAGES), model.vit(channels_first(IMAGES)).last_hidden_state)
    if "qkv_bias" not in settings:
        assert ours.count_params() == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("pooler", [True, False])
def test_a_model_without_its_head(pooler, tmp_path):
    """Files of `ViTModel` name their tensors without a prefix."""
    config = transformers.ViTConfig(**SIZES, pooler_output_size=10)
    model = transformers.ViTModel(config, add_pooling_layer=pooler).eval()
    model.save_pretrained(tmp_path)
    ours = from_hugging_face(tmp_path).model
    expected = model(channels_first(IMAGES))
    close(ours.encoder(IMAGES), expected.last_hidden_state)
    close(ours(IMAGES), expected.pooler_output if pooler else expected.last_hidden_state[:, 0])


def test_an_image_of_another_size(directory):
    ours = from_hugging_face(directory).model
    resizing = VisionTransformer.from_config({**ours.get_config(), "resize_positions": True})
    resizing.build()
    resizing.set_weights(ours.get_weights())
    images = np.random.default_rng(6).normal(size=(2, 12, 16, 2)).astype("float32")
    expected = theirs()(channels_first(images), interpolate_pos_encoding=True).logits
    close(resizing(images), expected)


def test_gradients(directory):
    """One step of gradient descent with a rate of 1 subtracts the gradients from the weights."""
    model, labels = theirs(), np.array([1, 4, 2])
    ours = from_hugging_face(directory).model
    logits = model(channels_first(IMAGES)).logits
    torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).backward()

    gradients = {name: p.grad.numpy() for name, p in model.named_parameters()}
    embedding, block = ours.encoder.embedding, ours.encoder.blocks[0]
    kernel = gradients["vit.embeddings.patch_embeddings.projection.weight"]
    pairs = [
        (embedding.projection.kernel, kernel.transpose(2, 3, 1, 0).reshape(32, 12)),
        (embedding.class_embedding, gradients["vit.embeddings.cls_token"][0, 0]),
        (embedding.class_position, gradients["vit.embeddings.position_embeddings"][0, 0]),
        (
            embedding.positions.embeddings,
            gradients["vit.embeddings.position_embeddings"][0, 1:].reshape(2, 2, 12),
        ),
        (block.feed_forward.inner.bias, gradients["vit.layers.0.mlp.fc1.bias"]),
        (block.self_attention_residual.normalization.gamma,
         gradients["vit.layers.0.layernorm_before.weight"]),
        (ours.head.kernel, gradients["classifier.weight"].T),
    ]  # fmt: skip
    before = [numbers(weight).copy() for weight, _ in pairs]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
    ours.train_on_batch(IMAGES, labels)
    for (weight, expected), old in zip(pairs, before, strict=True):
        found = old - numbers(weight)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=weight.path)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(hidden_act="quick_gelu"), "hidden_act='quick_gelu'"),
        (dict(head_dim=5), "head_dim=5"),
        (dict(pooler_act="relu"), "pooler_act='relu'"),
        (dict(patch_size=[4, 2]), r"patch_size=\[4, 2\]"),
        (dict(image_size=9), "must divide .* patch_size=4"),
        (dict(image_size=16), r"position_embeddings of shape \(1, 17, 12\)"),
        (dict(num_channels=3), r"projection.weight of shape \(12, 3, 4, 4\)"),
        (dict(num_hidden_layers=3), "Expected a tensor encoder.layer.2.intermediate"),
        (dict(num_hidden_layers=10**12), "Expected a tensor encoder.layer.9{12}.intermediate"),
        (dict(num_channels=10**12), "projection.weight of shape"),
        (dict(num_hidden_layers=1), "Received: encoder.layer.1.attention"),
        (dict(hidden_size=None), "hidden_size in config.json"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_named(directory, change, message):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ValueError, match=message):
        from_hugging_face(directory)


def test_a_classifier_needs_a_head(tmp_path):
    theirs("ViTModel").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["ViTForImageClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="Expected a tensor classifier.weight"):
        from_hugging_face(tmp_path)


def test_masked_image_modelling_is_refused(tmp_path):
    config = transformers.ViTConfig(**SIZES, encoder_stride=4)
    transformers.ViTForMaskedImageModeling(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="Received: decoder.0.bias, .*mask_token"):
        from_hugging_face(tmp_path)
