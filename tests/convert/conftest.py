"""Small random models in the files of other libraries: GPT-2 of `transformers`, and Marian's."""

import io
import json
import re

import numpy as np
import pytest

from keras_transformer.quickstart.phrases import phrase_corpus


def remove(name):
    """Returns a function of a directory that removes a file in it."""
    return lambda directory: (directory / name).unlink()


def cut(name):
    """Returns a function of a directory that cuts a file in it in half."""

    def cut(directory):
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[: len(content) // 2])

    return cut


@pytest.fixture(scope="session")
def theirs():
    """Makes a GPT-2 of `transformers` whose every weight is random: no bias 0, no scale 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(model_class="GPT2LMHeadModel", **settings):
        sizes = dict(vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3, n_inner=40)
        config = transformers.GPT2Config(
            **{**sizes, "bos_token_id": 60, "eos_token_id": 60, **settings}
        )
        torch.manual_seed(3)
        model = getattr(transformers, model_class)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
                parameter.normal_(centre, 0.3)
        return model

    return make


@pytest.fixture
def directory(theirs, tmp_path):
    """The directory of such a model."""
    theirs().save_pretrained(tmp_path)
    return tmp_path


class MarianFiles:
    """A small random model of Marian, and the files in which it is published.

    The names and the layout are those of the programs that write such files; the tests with
    `transformers` and `ctranslate2` show that these programs read them.
    """

    SIZES = dict(enc=2, dec=1, d_model=8, ff_dim=12, heads=2)

    def __init__(self, sentence_pairs, num_pieces=110, missing="▁dog"):
        sides = zip(*sentence_pairs, strict=True)
        self.models = [_sentence_piece_model(side, num_pieces) for side in sides]
        pieces = dict.fromkeys(piece for model in self.models for piece in _pieces_of(model))
        pieces = [piece for piece in pieces if piece != missing]  # unknown to the vocabulary
        pieces[7:7] = [">>deu<<", "世"]  # which no model produces from known text
        self.ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
        self.vocab_size = len(self.ids)

    def random(self, *shape, scale=0.3):
        return self.rng.normal(scale=scale, size=shape).astype("float32")

    def hugging_face(self, directory, config=(), generation=(), tokenizer=()):
        """Writes the files of `MarianMTModel`; the dicts change its settings. Returns its tensors.

        With a `decoder_vocab_size` there are two tables.
        """
        vocab_size, pad = self.vocab_size, self.vocab_size - 1
        config = {
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "vocab_size": vocab_size,
            "d_model": self.SIZES["d_model"],
            "encoder_layers": self.SIZES["enc"],
            "decoder_layers": self.SIZES["dec"],
            "encoder_ffn_dim": self.SIZES["ff_dim"],
            "decoder_ffn_dim": self.SIZES["ff_dim"],
            "encoder_attention_heads": self.SIZES["heads"],
            "decoder_attention_heads": self.SIZES["heads"],
            "activation_function": "swish",
            "dropout": 0.2,
            "scale_embedding": True,
            "max_position_embeddings": 64,
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            **dict(config),
        }
        generation = {
            "num_beams": 3,
            "max_length": 64,
            "bad_words_ids": [[pad]],
            **dict(generation),
        }
        tokenizer = {"model_max_length": 64, "separate_vocabs": False, **dict(tokenizer)}
        self.rng = np.random.default_rng(5)
        tensors = {"model.shared.weight": self.random(vocab_size, 8)}
        tensors["model.shared.weight"][pad] = 0.0
        tensors["final_logits_bias"] = self.random(1, vocab_size)
        for side, attentions in (("enc", ["self"]), ("dec", ["self", "encoder"])):
            for i in range(self.SIZES[side]):
                name = f"model.{side}oder.layers.{i}"
                for attention in attentions:
                    for part in "qkv":
                        self._dense(tensors, f"{name}.{attention}_attn.{part}_proj", 8, 8)
                    self._dense(tensors, f"{name}.{attention}_attn.out_proj", 8, 8)
                    self._norm(tensors, f"{name}.{attention}_attn_layer_norm")
                self._dense(tensors, f"{name}.fc1", 8, 12)
                self._dense(tensors, f"{name}.fc2", 12, 8)
                self._norm(tensors, f"{name}.final_layer_norm")
        contents = {
            "config": config,
            "generation_config": generation,
            "tokenizer_config": tokenizer,
            "vocab": self.ids,
        }
        for name, content in contents.items():
            (directory / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
        self._write_models(directory)
        safetensors_numpy().save_file(tensors, directory / "model.safetensors")
        return tensors

    def npz(self, directory, settings=(), decoder=(), tensors=None):
        """Writes Marian's own files, of the numbers of `hugging_face`. Returns the arrays."""
        tensors = tensors or self.hugging_face(directory)
        for name in ("config", "generation_config", "tokenizer_config", "vocab"):
            (directory / f"{name}.json").unlink()
        (directory / "model.safetensors").unlink()
        arrays = {
            "Wemb": tensors["model.shared.weight"][:-1],
            "decoder_ff_logit_out_b": tensors["final_logits_bias"][:, :-1],
        }
        names = {
            "self_attn": "self",
            "encoder_attn": "context",
            "self_attn_layer_norm": "self_Wo",
            "encoder_attn_layer_norm": "context_Wo",
            "final_layer_norm": "ffn_ffn",
            "fc1": "ffn_{}1",
            "fc2": "ffn_{}2",
        }
        for name, tensor in tensors.items():
            if ".layers." not in name:
                continue
            _, side, _, i, part, *projection, kind = name.split(".")
            place = f"{side}_l{int(i) + 1}_{names[part]}"
            if part.endswith("layer_norm"):
                place += {"weight": "_ln_scale", "bias": "_ln_bias"}[kind]
            elif projection:
                place += f"_{{}}{projection[0][0]}"
            place = place.format({"weight": "W", "bias": "b"}[kind])
            arrays[place] = tensor.T if tensor.ndim == 2 else tensor[None]
        yml = {
            "type": "transformer",
            "dim-emb": 8,
            "enc-depth": self.SIZES["enc"],
            "dec-depth": self.SIZES["dec"],
            "transformer-heads": self.SIZES["heads"],
            "transformer-dim-ffn": self.SIZES["ff_dim"],
            "transformer-ffn-activation": "swish",
            "transformer-preprocess": "",
            "transformer-postprocess": "dan",
            "transformer-postprocess-emb": "d",
            "transformer-postprocess-top": "",
            "transformer-decoder-autoreg": "self-attention",
            "transformer-no-projection": False,
            "transformer-guided-alignment-layer": "last",
            "transformer-dropout": 0.1,
            "tied-embeddings-all": True,
            **dict(settings),
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in yml.items())
        arrays["special:model.yml"] = np.frombuffer(text.encode() + b"\0", "int8")
        np.savez(directory / "opus.npz", **arrays)
        ids = sorted(self.ids.items(), key=lambda item: item[1])[:-1]  # Marian has no padding
        vocabulary = "".join(f"{_as_yaml_cpp(piece)}: {i}\n" for piece, i in ids)
        (directory / "opus.vocab.yml").write_text(vocabulary, encoding="utf-8")
        decoder = {
            "models": ["opus.npz"],
            "vocabs": ["opus.vocab.yml", "opus.vocab.yml"],
            "beam-size": 6,
            "normalize": 1,
            **dict(decoder),
        }
        (directory / "decoder.yml").write_text(json.dumps(decoder))
        return arrays

    def _write_models(self, directory):
        for side, model in zip(("source", "target"), self.models, strict=True):
            (directory / f"{side}.spm").write_bytes(model)

    def _dense(self, tensors, name, inputs, outputs):
        tensors[f"{name}.weight"] = self.random(outputs, inputs)
        tensors[f"{name}.bias"] = self.random(outputs)

    def _norm(self, tensors, name):
        tensors[f"{name}.weight"] = 1 + self.random(8)
        tensors[f"{name}.bias"] = self.random(8)


def _sentence_piece_model(sentences, num_pieces):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=num_pieces, minloglevel=2
    )
    return model.getvalue()


def _pieces_of(model):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
    return [piece for piece in pieces if piece not in ("<unk>", "<s>", "</s>")]


def _as_yaml_cpp(piece):
    """Returns a key as Marian's YAML library writes it: plain where it may, else in quotes."""
    is_plain = re.fullmatch(r"[\w▁>][\w▁>]*", piece)
    return piece if is_plain else '"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"'


def safetensors_numpy():
    return pytest.importorskip("safetensors.numpy")


@pytest.fixture(scope="session")
def marian(sentence_pairs):
    return MarianFiles(sentence_pairs)


@pytest.fixture(scope="session")
def marian_of_phrases():
    """The files for the generated phrases, which need a larger vocabulary, without gaps."""
    return MarianFiles(phrase_corpus(1200).train, num_pieces=390, missing=None)
