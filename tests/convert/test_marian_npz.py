"""Marian's own files, against Hugging Face's of the same numbers, and against CTranslate2."""

import io
import json
import zipfile

import numpy as np
import pytest
from keras import ops

from keras_transformer.config import DecodingConfig
from keras_transformer.convert import marian_model, read_marian
from keras_transformer.layers import sinusoidal_encoding
from tests.convert.conftest import cut, remove

pytest.importorskip("safetensors.numpy")


def test_the_weights_are_those_of_hugging_faces_files(marian, tmp_path):
    tensors = marian.hugging_face(tmp_path)
    of_hugging_face = read_marian(tmp_path)
    marian.npz(tmp_path, tensors=tensors)
    translator = read_marian(tmp_path)
    assert translator.tokenizer.pieces == of_hugging_face.tokenizer.pieces
    assert translator.tokenizer.serialized == of_hugging_face.tokenizer.serialized
    assert translator.target_tokenizer.serialized == of_hugging_face.target_tokenizer.serialized
    expected = of_hugging_face.model.get_weights()
    for weight, other in zip(translator.model.weights, expected, strict=True):
        values = ops.convert_to_numpy(weight)
        if weight.name == "output_biases":  # Marian has no padding
            assert values[0] == -100
            values, other = values[1:], other[1:]
        np.testing.assert_array_equal(values, other)
    assert translator.decoding == DecodingConfig(6, 1.0, "length", 511, 511)
    changed = "position_base", "layer_norm_epsilon", "dropout"
    ours, theirs = (each.model.get_config() for each in (translator, of_hugging_face))
    assert {name for name in ours if ours[name] != theirs[name]} == set(changed)
    assert (translator.model.dropout, translator.model.layer_norm_epsilon) == (0.1, 1e-6)


def marians_positions(d_model, num_positions):
    """Its source code: `p * exp(-i log(10000) / (d_model / 2 - 1))`, sines, then cosines."""
    table = np.zeros((num_positions, d_model))
    for p in range(num_positions):
        for i in range(d_model // 2):
            angle = p * np.exp(-i * np.log(10000.0) / (d_model / 2 - 1))
            table[p, i], table[p, d_model // 2 + i] = np.sin(angle), np.cos(angle)
    return table


def test_positions_are_marians(marian, tmp_path):
    marian.npz(tmp_path)
    layer = read_marian(tmp_path).model.encoder.position_layer
    found = ops.convert_to_numpy(layer.encode(np.arange(40)))
    np.testing.assert_allclose(found, marians_positions(8, 40), atol=1e-5)
    papers = ops.convert_to_numpy(sinusoidal_encoding(np.arange(40), 8, "concatenated"))
    assert np.abs(found - papers).max() > 0.1


def test_a_vocabulary_of_keys_that_yaml_reads_otherwise(marian, tmp_path):
    """Each key is text: no number, truth value, merge or null, whatever the quotes."""
    ids = {"</s>": 0, "<unk>": 1}
    entries = {
        "no": "no",
        "yes": "yes",
        "010": "010",
        "10": "10",
        "1_0": "1_0",
        "1:30": "1:30",
        "~": "~",
        "<<": "<<",
        "=": "=",
        "2024-01-01": "2024-01-01",
        '"': '"\\""',
        "\\": '"\\\\"',
        "'": '"\'"',
        "it's": "'it''s'",
        "\x85": '"\\x85"',
        "\xa0": '"\\xA0"',
        ":": '":"',
        "#": '"#"',
        "▁#": "▁#",
        "👍": "👍",
        **{piece: piece for piece in ("▁A", "▁E", "E", "▁")},  # which the models know
        "▁" + "x" * 1200: None,  # longer than a simple key may be
    }
    lines = ['"</s>": 0', '"<unk>": 1']
    for piece, written in entries.items():
        ids[piece] = len(ids)
        key = f'? "{piece}"\n' if written is None else written
        lines.append(f"{key}: {ids[piece]}")
    marian.npz(tmp_path)
    table = np.random.default_rng(1).normal(size=(len(ids), 8)).astype("float32")
    with np.load(tmp_path / "opus.npz") as archive:
        arrays = dict(archive)
    arrays |= {"Wemb": table, "decoder_ff_logit_out_b": np.zeros((1, len(ids)), "float32")}
    np.savez(tmp_path / "opus.npz", **arrays)
    (tmp_path / "opus.vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    translator = read_marian(tmp_path)
    assert translator.tokenizer.pieces[4:] == list(ids)[2:]
    found = translator.model.source_embedding.get_weights()[0]
    np.testing.assert_array_equal(found[4:], table[2:])


def test_a_vocabulary_of_lines_or_of_sentencepiece(marian, tmp_path):
    marian.npz(tmp_path, decoder={"vocabs": ["opus.vocab", "opus.vocab"]})
    pieces = list(marian.ids)[:-1]
    (tmp_path / "opus.vocab").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    assert read_marian(tmp_path).tokenizer.pieces[4:] == pieces[2:]

    decoder = {"models": ["opus.npz"], "vocabs": ["source.spm", "source.spm"], "normalize": 0.6}
    (tmp_path / "decoder.yml").write_text(json.dumps(decoder))
    with pytest.raises(ValueError, match=r"Expected Wemb of shape \(110, 8\)"):
        read_marian(tmp_path)  # the vocabulary of another model


def untied(arrays):
    arrays["decoder_ff_logit_out_W"] = arrays["Wemb"].T[:, ::-1].copy()


def untied_as_rows(arrays):
    arrays["decoder_ff_logit_out_Wt"] = arrays["Wemb"][::-1].copy()


def two_tables(arrays):
    arrays["encoder_Wemb"], arrays["decoder_Wemb"] = arrays["Wemb"][::-1].copy(), arrays.pop("Wemb")


def without_bias(arrays):
    del arrays["decoder_ff_logit_out_b"]


def pre_norm(arrays):
    for name in [name for name in arrays if "_ln_" in name]:
        arrays[f"{name}_pre"] = arrays.pop(name)
    for side in ("encoder", "decoder"):
        arrays[f"{side}_top_ln_scale"] = np.linspace(0.5, 1.5, 8, dtype="float32")[None]
        arrays[f"{side}_top_ln_bias"] = np.linspace(-0.2, 0.3, 8, dtype="float32")[None]


PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}

KINDS = {
    "as OPUS-MT": (dict(), None),
    "relu, pre-norm": ({"transformer-ffn-activation": "relu", **PRE_NORM}, pre_norm),
    "gelu": ({"transformer-ffn-activation": "gelu"}, None),
    "untied": (dict(), untied),
    "untied, as rows": (dict(), untied_as_rows),
    "two tables": (dict(), two_tables),
    "without bias": (dict(), without_bias),
}


def change_arrays(directory, change):
    with np.load(directory / "opus.npz") as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(directory / "opus.npz", **arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_ctranslate2(
    marian, kind, tmp_path, monkeypatch, sentence_pairs, eagerly
):
    ctranslate2 = pytest.importorskip("ctranslate2")
    from ctranslate2.converters import OpusMTConverter
    from ctranslate2.converters import marian as their_marian

    settings, change = KINDS[kind]
    marian.npz(tmp_path, settings)
    if change:
        change_arrays(tmp_path, change)
    # it computes the paper's positions; Marian's are held to its source code above
    monkeypatch.setattr(
        their_marian,
        "_make_sinusoidal_position_encodings",
        lambda dim, num_positions=2048: marians_positions(dim, num_positions).astype("float32"),
    )
    OpusMTConverter(str(tmp_path)).convert(str(tmp_path / "converted"))
    theirs = ctranslate2.Translator(str(tmp_path / "converted"))
    translator = read_marian(tmp_path)
    sources, targets = map(list, zip(*sentence_pairs, strict=True))
    rows = [
        [tokenizer.to_pieces(row) for row in tokenizer.encode(texts).to_list()]
        for tokenizer, texts in (
            (translator.tokenizer, sources),
            (translator.target_tokenizer, targets),
        )
    ]
    expected = [sum(result.log_probs) for result in theirs.score_batch(*rows)]
    lengths = [len(row) + 1 for row in rows[1]]
    found = translator.score(sources, targets) * np.array(lengths)
    assert np.std(expected) > 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_what_a_search_here_does_not_do_is_named(marian, tmp_path):
    decoder = {"mini-batch": 64, "allow-unk": True, "n-best": False, "new": "x" * 999}
    decoder["skip-model-config-check"] = True
    marian.npz(tmp_path, decoder=decoder)
    lines = []
    read_marian(tmp_path, lines.append)
    assert [line[:30] for line in lines] == [
        "not applied allow-unk=True, wh",
        f"not applied new='{13 * 'x'}",
    ]
    assert len(lines[1]) < 300


def test_settings_of_the_model_that_are_not_known_are_named(marian, tmp_path):
    """Those that Marian writes, of training and of other types of models, are no reason to."""
    known = {"version": "v1.12", "special-vocab": None, "right-left": False, "enc-type": "x"}
    lines = []
    marian.npz(tmp_path, {**known, "transformer-brand-new": True, "dec-new": [1]})
    read_marian(tmp_path, lines.append)
    assert [line.partition(",")[0] for line in lines] == [
        "not applied dec-new=[1]",
        "not applied transformer-brand-new=True",
    ]


def test_a_model_without_output_biases_says_so(marian, tmp_path):
    marian.npz(tmp_path, {"output-omit-bias": True})
    with pytest.raises(ValueError, match="Received: output-omit-bias=True"):
        read_marian(tmp_path)
    change_arrays(tmp_path, without_bias)
    biases = read_marian(tmp_path, lambda line: pytest.fail(line)).model.output_biases
    assert set(ops.convert_to_numpy(biases).tolist()) == {0.0, -100.0}


def rename(name, other):
    return lambda directory: (directory / name).rename(directory / other)


def arrays(**changed):
    return lambda directory: change_arrays(directory, lambda old: old.update(changed))


def lose(name):
    return lambda directory: change_arrays(directory, lambda old: old.pop(name))


def of_format(version):
    """An array whose file says that it is of this format."""

    def change(directory):
        with zipfile.ZipFile(directory / "opus.npz", "a") as archive:
            archive.writestr("more.npy", b"\x93NUMPY" + bytes([version, 0]) + bytes(99))

    return change


def absurd_shape(directory):
    """An array whose header asks for 4 TB, of which the file has 16 bytes."""
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, fields)
    with zipfile.ZipFile(directory / "opus.npz", "a") as archive:
        archive.writestr("more.npy", header.getvalue() + bytes(16))


def lose_a_line(directory):
    path = directory / "opus.vocab.yml"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:9], *lines[10:]]), encoding="utf-8")


@pytest.mark.parametrize(
    "settings, decoder, damage, message",
    [
        ({"type": "s2s"}, {}, None, "Expected type to be 'transformer' in special:model.yml"),
        ({"transformer-decoder-autoreg": "rnn"}, {}, None, "Received: .*autoreg='rnn'"),
        ({"transformer-postprocess-emb": "n"}, {}, None, "Received: .*postprocess-emb='n'"),
        ({"transformer-train-position-embeddings": True}, {}, None, "embeddings=True"),
        ({"transformer-tied-layers": [1, 1]}, {}, None, "Received: transformer-tied-layers"),
        ({"transformer-postprocess": "da"}, {}, None, r"Received: \('', 'da', ''\)"),
        ({"transformer-ffn-activation": "mish"}, {}, None, "Received: .*='mish'"),
        ({"right-left": True}, {}, None, "Received: right-left=True"),
        ({"factors-combine": "concat"}, {}, None, "Received: factors-combine='concat'"),
        ({"lemma-dependency": "re-embedding"}, {}, None, "Received: lemma-dependency='re-emb"),
        ({"dim-emb": None}, {}, None, "Expected dim-emb in special:model.yml to be an integer"),
        ({"enc-depth": 3}, {}, None, "Expected a tensor encoder_l3_self_Wq in opus.npz"),
        ({"enc-depth": 1}, {}, None, "and no others. Received: encoder_l2_ffn_W1"),
        ({"transformer-dim-ffn": 13}, {}, None, "which follows from special:model.yml"),
        ({}, {"models": ["opus.npz", "opus.npz"]}, None, "Ensembles of models"),
        ({}, {"vocabs": ["opus.vocab.yml"]}, None, "Expected 2 of vocabs"),
        ({}, {"models": ["none.npz"]}, None, "none.npz: No such file"),
        ({}, {"models": ["../opus.npz"]}, None, "No such file"),
        ({}, {"models": ["/dev/zero"]}, None, "/dev/zero: a file outside of the directory"),
        ({}, {"vocabs": ["none.yml", "none.yml"]}, None, "none.yml: No such file"),
        ({}, {"vocabs": ["/etc/passwd"] * 2}, None, "/etc/passwd: a file outside"),
        ({}, {"word-penalty": 0.5}, None, "Received: word-penalty=0.5"),
        ({}, {"beam-size": 10**9}, None, "beam_size to be .*from 1 to 1,000. .* decoder.yml"),
        ({}, {"normalize": "x"}, None, "Received: decoding.length_penalty='x'.* decoder.yml"),
        ({}, {"beam-size": 0}, None, "Received: decoding.beam_size=0.* decoder.yml"),
        ({}, {}, cut("opus.npz"), "Received: .*opus.npz"),
        ({}, {}, absurd_shape, r"more.npy has another size than its shape \(1000000, 1000000\)"),
        ({}, {}, of_format(3), r"opus.npz: more.npy is in NumPy's format 3.0, not 1 or 2. Copy it"),
        ({}, {}, remove("target.spm"), "target.spm: No such file"),
        ({}, {}, rename("source.spm", "source.bpe"), "Moses and subword-nmt have split"),
        ({}, {}, lose("special:model.yml"), "Expected Marian's settings in the array"),
        ({}, {}, lose("decoder_l1_context_Wq"), "Expected a tensor decoder_l1_context_Wq"),
        ({}, {}, arrays(encoder_l1_self_Wq=np.ones((8, 8), "int8")), "before quantization"),
        ({}, {}, arrays(more=np.ones((8, 8), "float32")), "and no others. Received: more"),
        ({}, {}, lose_a_line, "opus.vocab.yml, which has something else, or has lost entries"),
    ],
)
def test_what_cannot_be_read_is_refused(marian, settings, decoder, damage, message, tmp_path):
    marian.npz(tmp_path, settings, decoder)
    if damage:
        damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        read_marian(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"dim-emb": 2**20}, {"dec-depth": 10**9}, {"transformer-dim-ffn": 10**9}], ids=str
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_a_model_is_built(
    marian, settings, tmp_path, monkeypatch
):
    marian.npz(tmp_path, settings)
    monkeypatch.setattr(marian_model, "Transformer", lambda *_, **__: pytest.fail("built"))
    with pytest.raises(ValueError, match="decoder_l2_self_Wq in opus.npz|which follows from"):
        read_marian(tmp_path)
