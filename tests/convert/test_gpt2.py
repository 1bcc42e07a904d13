"""GPT-2 against the independent implementation in `transformers`: logits, gradients, outputs."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.convert import from_hugging_face
from keras_transformer.models import Gpt

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")

IDS = np.random.default_rng(5).integers(0, 61, size=(3, 11)).astype("int32")


def logits_of(model):
    return ops.convert_to_numpy(model(IDS))


def their_logits(model):
    with torch.no_grad():
        return model(torch.tensor(IDS, dtype=torch.long)).logits.numpy()


@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(tie_word_embeddings=False),
        dict(activation_function="gelu", layer_norm_epsilon=0.01, n_inner=None, resid_pdrop=0.3),
        dict(activation_function="relu"),
    ],
    ids=str,
)
@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
def test_logits(theirs, settings, shard_size, tmp_path):
    model = theirs(**settings)
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size == "20KB")
    ours, tokenizer = from_hugging_face(tmp_path)
    assert isinstance(ours, Gpt) and tokenizer is None
    assert (ours.pad_id, ours.end_id) == (-1, 60)
    assert ours.dropout == settings.get("resid_pdrop", 0.1)
    assert ours.count_params() == sum(p.numel() for p in model.parameters())
    np.testing.assert_allclose(logits_of(ours), their_logits(model), rtol=1e-4, atol=1e-4)


def test_an_output_of_other_numbers_is_untied(theirs, directory):
    """Whatever config.json says: `transformers` 5 reads such a file so, too."""
    path = directory / "model.safetensors"
    tensors = {**safetensors.load_file(path)}
    head = np.random.default_rng(1).normal(size=tensors["transformer.wte.weight"].shape)
    tensors["lm_head.weight"] = head.astype("float32")
    safetensors.save_file(tensors, path)
    untied = theirs(tie_word_embeddings=False)
    untied.load_state_dict({name: torch.tensor(tensor) for name, tensor in tensors.items()})
    ours = from_hugging_face(directory).model
    assert not ours.tie_output
    np.testing.assert_allclose(logits_of(ours), their_logits(untied), rtol=1e-4, atol=1e-4)


def test_a_model_without_its_head(theirs, directory):
    """Files of `GPT2Model` name their tensors without a prefix; the output is the embedding."""
    expected = their_logits(theirs())
    headless = theirs("GPT2Model")
    headless.load_state_dict(theirs().transformer.state_dict())
    headless.save_pretrained(directory)
    np.testing.assert_allclose(
        logits_of(from_hugging_face(directory).model), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("dtype, tolerance", [("float16", 1e-2), ("bfloat16", 1e-1)])
def test_weights_of_16_bits(theirs, dtype, tolerance, tmp_path):
    model = theirs()
    expected = their_logits(model)
    rounded = model.to(getattr(torch, dtype))
    rounded.save_pretrained(tmp_path)
    ours = from_hugging_face(tmp_path).model
    assert ours.dtype_policy.name == "float32"
    table = rounded.transformer.wte.weight.detach().float().numpy()
    np.testing.assert_array_equal(ops.convert_to_numpy(ours.embedding.embeddings), table)
    assert np.abs(logits_of(ours) - expected).max() < tolerance * expected.std()


def test_gradients(theirs, directory):
    """One step of gradient descent with a rate of 1 subtracts the gradients from the weights."""
    model = theirs(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    model.save_pretrained(directory)
    ours = from_hugging_face(directory).model
    labels = np.roll(IDS, -1, axis=1)
    targets = torch.tensor(labels.reshape(-1), dtype=torch.long)
    logits = model(torch.tensor(IDS, dtype=torch.long)).logits.reshape(-1, 61)
    torch.nn.functional.cross_entropy(logits, targets).backward()

    block = ours.decoder.blocks[0]
    pairs = {
        "wte.weight": ours.embedding.embeddings,
        "wpe.weight": ours.decoder.position_layer.embeddings,
        "h.0.ln_1.weight": block.self_attention_residual.normalization.gamma,
        "h.0.attn.c_proj.weight": block.self_attention.output_projection.kernel,
        "h.0.mlp.c_fc.bias": block.feed_forward.inner.bias,
        "ln_f.bias": ours.decoder.norm.beta,
    }
    before = {name: ops.convert_to_numpy(weight).copy() for name, weight in pairs.items()}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
    ours.train_on_batch(IDS, labels)
    for name, weight in pairs.items():
        expected = model.transformer.get_parameter(name).grad.numpy()
        found = before[name] - ops.convert_to_numpy(weight)
        np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-3, err_msg=name)


def test_greedy_search(theirs, directory):
    """The prompt has id 0, which is a token like any other."""
    prompt = [0, 7, 59]
    expected = theirs().generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=9, pad_token_id=60
    )
    (found,) = from_hugging_face(directory).model.generate([prompt], 9)
    assert found.tolist() == expected[0].tolist()


def test_saved_and_loaded(directory, tmp_path):
    model = from_hugging_face(directory).model
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(logits_of(loaded), logits_of(model), rtol=1e-6, atol=1e-6)
    assert loaded.activation == "gelu_tanh"


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(activation_function="quick_gelu"), "activation_function='quick_gelu'"),
        (dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx=True"),
        (dict(add_cross_attention=True), "add_cross_attention=True"),
        (dict(n_embd=None), "n_embd in config.json"),
        (dict(n_head=5), "d_model=24, num_heads=5"),
        (dict(n_layer=10**12), "a tensor h.9{12}.attn.c_attn.weight"),  # 10^12 blocks take ages
        (dict(n_inner=10**12), "c_fc.weight of shape"),
        (dict(n_positions=10**12), "wpe.weight of shape"),
        (dict(n_embd=27), r"wte.weight of shape \(61, 27\).* Received: .*\(61, 24\)"),
        (dict(n_inner=41), r"c_fc.weight of shape \(24, 41\)"),
        (dict(n_layer=3), "Expected a tensor h.2.attn.c_attn.weight"),
        (dict(n_layer=1), "Received: h.1.attn.c_attn.bias, .* and 7 more"),
        (dict(tie_word_embeddings=False), "Expected a tensor lm_head.weight"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_named(directory, change, message):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ValueError, match=message):
        from_hugging_face(directory)
