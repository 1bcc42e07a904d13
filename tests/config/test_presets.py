"""The recipes of the presets, whole: a default that moves must not move them unseen."""

import dataclasses

import pytest

from keras_transformer.config import Config
from keras_transformer.config.presets import MODEL_PRESETS

# Section 5.1: byte-pair encoding with a vocabulary of 37,000 shared by source and target, steps of
# about 25,000 tokens a side. 5.3: the schedule of equation 3 with 4,000 steps of warm-up; Adam's
# numbers are no settings (tests/training/test_settings_reach_training.py). 5.4: label smoothing
# 0.1. Section 6.1: a beam of 4 and a length penalty of 0.6.
PAPER = {
    "data": {
        "train": (),
        "valid": (),
        "temperature": 1.0,
        "dataset": None,
        "prepared": None,
        "max_length": 128,
        "validation_share": 0.01,
        "validation_limit": 2000,
    },
    "tokenizer": {
        "kind": "sentencepiece",
        "model_type": "bpe",
        "vocab_size": 37_000,
        "shared": True,
        "model": None,
        "sampling": 0.0,
        "normalization": "nmt_nfkc",
        "byte_fallback": False,
        "user_symbols": None,
    },
    "training": {
        "batch_tokens": 25_000,
        "max_steps": 100_000,
        "max_minutes": None,
        "schedule": "noam",
        "peak_learning_rate": 0.005,  # which this schedule does not have
        "warmup_steps": 4000,
        "label_smoothing": 0.1,
        "r_drop": 0.0,
        "distill_from": None,
        "distill_share": 0.5,
        "freeze": None,
        "lora_rank": 0,
        "guided_alignment": None,
        "guided_alignment_weight": 0.05,
        "clip_norm": None,
        "ema": None,
        "checkpoint_every": 1000,
        "keep_checkpoints": 10,
        "patience": 10,
        "bleu_tokenizer": "13a",
        "samples": 0,
        "seed": 1,
        "deterministic": False,
        "gradient_accumulation_steps": 1,
        "rematerialize": False,
        "mixed_precision": None,
        "jit_compile": None,
        "static_shapes": None,
    },
    "decoding": {
        "beam_size": 4,
        "length_penalty": 0.6,
        "length_normalization": "gnmt",
        "max_length": 256,
        "max_source_length": 256,
        "min_length": 0,
        "no_repeat_ngram": 0,
        "repetition_penalty": 1.0,
        "shortlist": 0,
        "keep_beam_full": False,
    },
}

RNN = {
    **PAPER,
    "model": {
        "name": "rnn_seq2seq",
        "num_layers": 1,
        "d_model": 256,
        "units": 256,
        "cell": "gru",
        "bidirectional": True,
        "attention": "bahdanau",
        "score": "additive",
        "dropout": 0.3,
    },
    "tokenizer": {**PAPER["tokenizer"], "vocab_size": 10_000},
    "training": {
        **PAPER["training"],
        "batch_tokens": 4096,
        "max_steps": 20_000,
        "schedule": "inverse_square_root",
        "peak_learning_rate": 0.002,
        "warmup_steps": 500,
        "clip_norm": 1.0,
        "checkpoint_every": 250,
    },
}

# Wu et al., 2021, with the normalization first, and the schedule that served Multi30k best
TINY = {
    **PAPER,
    "model": {
        "num_layers": 4,
        "d_model": 128,
        "ff_dim": 256,
        "num_heads": 4,
        "dropout": 0.3,
        "normalize_first": True,
    },
    "tokenizer": {**PAPER["tokenizer"], "vocab_size": 10_000},
    "training": {
        **PAPER["training"],
        "batch_tokens": 4096,
        "max_steps": 20_000,
        "schedule": "inverse_square_root",
        "peak_learning_rate": 0.004,
        "warmup_steps": 1500,
        "checkpoint_every": 250,
    },
}

RECIPES = {
    # Bahdanau et al., 2015, and Cho et al., 2014, in a width for a CPU
    "rnn": RNN,
    "rnn_plain": {
        **RNN,
        "model": {
            **{name: value for name, value in RNN["model"].items() if name != "score"},
            "attention": None,
        },
    },
    # table 3
    "base": {
        **PAPER,
        "model": {
            "num_layers": 6,
            "d_model": 512,
            "ff_dim": 2048,
            "num_heads": 8,
            "dropout": 0.1,
            "normalize_first": False,
        },
    },
    "big": {
        **PAPER,
        "model": {
            "num_layers": 6,
            "d_model": 1024,
            "ff_dim": 4096,
            "num_heads": 16,
            "dropout": 0.3,
            "normalize_first": False,
        },
        "training": {**PAPER["training"], "max_steps": 300_000},
    },
    "tiny": TINY,
    # `tiny` with one decoder layer, the SSRU of Kim et al., 2019, and a fast search
    "fast": {
        **TINY,
        "model": {
            **TINY["model"],
            "num_decoder_layers": 1,
            "dropout": 0.1,
            "decoder_attention": "ssru",
        },
        "decoding": {**PAPER["decoding"], "beam_size": 1, "shortlist": 20},
    },
}


@pytest.mark.parametrize("name", MODEL_PRESETS["transformer"] + MODEL_PRESETS["rnn_seq2seq"])
def test_the_recipe_of_a_preset(name):
    assert dataclasses.asdict(Config.from_preset(name)) == RECIPES[name]


@pytest.mark.parametrize("name", MODEL_PRESETS["transformer"])
def test_what_the_model_of_a_preset_leaves_to_the_constructor(name):
    """The paper's model but for its sizes: sinusoids, ReLU, one table for three uses."""
    from keras_transformer.models import Transformer

    shape = {"num_layers": 1, "d_model": 8, "ff_dim": 8, "num_heads": 2}
    config = Transformer.from_preset(name, 50, **shape).get_config()
    rest = {
        key: config[key]
        for key in config.keys() - RECIPES[name]["model"].keys() - {"name", "trainable", "dtype"}
    }
    expected = {
        "source_vocab_size": 50,
        "target_vocab_size": None,
        "num_decoder_layers": None,
        "activation": "relu",
        "positions": "sinusoidal",
        "position_layout": "interleaved",
        "position_base": 10000.0,
        "max_length": 1024,
        "share_embeddings": True,
        "scale_embeddings": True,
        "tie_output": True,
        "output_bias": False,
        "layer_norm_epsilon": 1e-6,
        "attention_dropout": 0.0,
        "ff_dropout": 0.0,
        "word_dropout": 0.0,
        "attention": "dense",
        "decoder_attention": None,
        "cross_attention": "dense",
    }
    assert rest == {key: expected[key] for key in expected.keys() - RECIPES[name]["model"].keys()}
