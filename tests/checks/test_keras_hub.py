"""What the checks say of KerasHub's models, small and with random weights.

It needs the package: `pip install keras-hub`, of which this was written for 0.32.
"""

import inspect

import keras
import pytest

from keras_transformer.checks import Subject, verdicts

pytestmark = pytest.mark.slow
keras_hub = pytest.importorskip("keras_hub", reason="it checks its models: pip install keras-hub")

SIZES = {"vocabulary_size": 60, "num_layers": 2, "hidden_dim": 32, "intermediate_dim": 48}
HEADS = {"num_heads": 4, "num_attention_heads": 4, "num_query_heads": 4, "num_key_value_heads": 2}
OTHERS = {"head_dim": 8, "num_experts": 3, "top_k": 2, "moe_intermediate_dim": 16}
OTHERS |= {"shared_expert_intermediate_dim": 16, "image_size": 16, "dropout": 0.0}
WINDOW = {"use_sliding_window_attention": True, "sliding_window_size": 4}
LINEAR = {f"linear_{name}": 2 for name in ("num_key_heads", "num_value_heads")}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
RWKV = {f"{name}_lora": 8 for name in ("gate", "mv", "aaa", "decay")}
SIDES = {**SIZES, **HEADS, **OTHERS, "layer_types": ["sliding_attention", "full_attention"]}

FAMILIES = {
    "GPT2CausalLM": {},
    "LlamaCausalLM": {},
    "Llama3CausalLM": {},
    "GemmaCausalLM": {},
    "Gemma3CausalLM": {"num_layers": 6, **WINDOW},
    "Gemma4CausalLM": {"num_layers": 6, **WINDOW},
    "MistralCausalLM": {"sliding_window": 4},
    "MixtralCausalLM": {"sliding_window": 4},
    "OPTCausalLM": {},
    "BloomCausalLM": {},
    "FalconCausalLM": {"num_key_value_heads": 4},
    "GPTNeoXCausalLM": {},
    "GptOssCausalLM": {"sliding_window": 4},
    "QwenCausalLM": {},
    "QwenMoeCausalLM": {},
    "Qwen3CausalLM": {},
    "Qwen3MoeCausalLM": {},
    "Qwen3_5CausalLM": {"layer_types": ["linear_attention", "full_attention"], **LINEAR},
    "Phi3CausalLM": {},
    "SmolLM3CausalLM": {
        **{"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False},
        **{"rope_layer_enabled_list": [True, False], "layer_types": ["full_attention"] * 2},
        **{"layer_norm_epsilon": 1e-6, "max_position_embeddings": 32, "rope_theta": 1e4},
        "partial_rotary_factor": 1.0,
    },
    "RWKV7CausalLM": {"hidden_size": 32, "head_size": 8, **RWKV},
    "BartSeq2SeqLM": {},
    "T5Seq2SeqLM": {},
    "T5GemmaSeq2SeqLM": {
        **{f"{side}_{name}": v for side in ("encoder", "decoder") for name, v in SIDES.items()},
        **{"sliding_window": 4, "cross_attention_hidden_size": 32, "query_pre_attn_scalar": 8},
    },
    "EdRecSeq2SeqLM": {"vocab_size": 60, "num_layers_enc": 2, "num_layers_dec": 2},
}
"""Arguments of the backbones beside those above, by name of the task."""

FOUND = {
    "GPTNeoXCausalLM": {"steps"},  # with a cache, each query is rotated as that of position 0
    "Qwen3_5CausalLM": {"steps"},  # a recurrent state reads the last token of the prompt twice
    "T5Seq2SeqLM": {"mixed precision"},  # embeddings start as 1 +- 0.05: TruncatedNormal(1.0)
    "T5GemmaSeq2SeqLM": {"mixed precision"},  # float16: its mask is 0 * -inf at real tokens
    "EdRecSeq2SeqLM": {"order"},  # the encoder has no positions
}
"""What is wrong with version 0.32, by task."""


def backbone(task):
    """Returns the backbone of a task, with those of the arguments above that it takes."""
    family = getattr(
        keras_hub.models, task.replace("CausalLM", "").replace("Seq2SeqLM", "") + "Backbone"
    )
    known = inspect.signature(family).parameters
    options = {**SIZES, **HEADS, **OTHERS, **FAMILIES[task]}
    return family(**{name: value for name, value in options.items() if name in known})


def stock_layers():
    """A translator of KerasHub's layers, as the example of keras.io builds it."""
    source, target = (keras.Input((None,), dtype="int32", name=n) for n in ("encoder", "decoder"))
    embed = [
        keras_hub.layers.TokenAndPositionEmbedding(60, 32, 32, mask_zero=True) for _ in range(2)
    ]
    read = keras_hub.layers.TransformerEncoder(48, 4)(embed[0](source))
    x = keras_hub.layers.TransformerDecoder(48, 4)(embed[1](target), read)
    return keras.Model([source, target], keras.layers.Dense(60)(x))


@pytest.mark.parametrize("task", [*FAMILIES, "layers"])
def test_what_is_found_is_what_is_wrong(task):
    keras.utils.set_random_seed(1)
    if task == "layers":
        model = stock_layers()
    else:
        model = getattr(keras_hub.models, task)(backbone=backbone(task), preprocessor=None)
    found = dict(verdicts(Subject(model, modules=["keras_hub"])))
    failed = {name for name, verdict in found.items() if verdict.status == "failed"}
    assert failed == FOUND.get(task, set())
    assert sum(verdict.status == "held" for verdict in found.values()) >= 10
