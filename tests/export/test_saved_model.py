"""What an export writes, and when it writes nothing."""

import dataclasses
import json
import os
import pathlib
import shutil
import string
import subprocess
import sys
import threading

import keras
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import keras_transformer
from keras_transformer.config import Config, DecodingConfig
from keras_transformer.export import export_saved_model, saved_model, versions
from keras_transformer.export.exportable import exportable_translator
from keras_transformer.export.serving_session import xla_in
from keras_transformer.export.signatures import Signatures
from keras_transformer.export.verification import ExportError, Verification
from keras_transformer.models import Transformer
from keras_transformer.runs.run import Run
from keras_transformer.tokenizers import WordPieceTokenizer
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator


@pytest.fixture
def quick(monkeypatch):
    """Writes one file and proves nothing: for what has to do with directories alone."""
    monkeypatch.setattr(saved_model, "_write", lambda *_: (_[3] / "saved_model.pb").touch())
    monkeypatch.setattr(saved_model, "verify", lambda *_: Verification(1, 0))


def graph_of(path):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    return saved.meta_graphs[0].graph_def


def tree(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))


def test_export_is_one_version_with_its_settings(exported, translator):
    assert exported.name == "1" and os.listdir(exported.parent) == ["1"]
    settings = json.loads((exported / "assets.extra/keras_transformer.json").read_text())
    assert settings["decoding"] == vars(translator.decoding)
    assert settings["n_best"] == 2 and settings["model"]["d_model"] == 32
    assert settings["source_vocab_size"] == settings["target_vocab_size"] == 150
    assert settings["unknown_ids"] == translator.tokenizer.unknown_ids == [1]
    assert settings["keras_transformer"] == keras_transformer.__version__
    assert settings["verification"]["num_texts"] > 64


def test_variables_are_written_once_and_those_that_decoding_reads_in_its_form(exported, translator):
    written = tf.train.list_variables(str(exported / "variables" / "variables"))
    sizes = [tf.TensorShape(s).num_elements() for name, s in written if "OBJECT_GRAPH" not in name]
    in_its_form = tf.nest.flatten(translator.model.decoding_weights())
    assert sum(sizes) == translator.model.count_params() + sum(tf.size(x) for x in in_its_form)


def test_graph_needs_no_xla(exported):
    assert xla_in(graph_of(exported)) == []


def test_xla_in_finds_operations_and_compiled_functions():
    @tf.function(jit_compile=True)
    def compiled(x):
        return 2.0 * x

    @tf.function
    def updated(x):
        return keras.ops.slice_update(compiled(x), [1], [5.0])

    graph_def = updated.get_concrete_function(tf.zeros([3])).graph.as_graph_def()
    found = " ".join(xla_in(graph_def))
    assert "XlaDynamicUpdateSlice" in found and "inference_compiled" in found


def test_large_constants_stand_once(exported):
    functions = [
        f for f in graph_of(exported).library.function if "traced_" not in f.signature.name
    ]
    nodes = [*graph_of(exported).node, *(node for f in functions for node in f.node_def)]
    large = [node for node in nodes if node.op == "Const" and node.ByteSize() > 1000]
    found = [node.attr["value"].tensor.dtype for node in large]
    assert found == [tf.int32, tf.string]  # what tokens begin with which bytes, and the pieces


def test_nothing_of_this_machine_is_in_it(exported):
    places = {sys.prefix, str(pathlib.Path(keras_transformer.__file__).parent), os.getcwd()}
    places |= {str(exported.parent), os.path.expanduser("~"), "site-packages"} - {"/"}
    for path in exported.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not [place for place in places if place.encode() in content], path


@pytest.mark.filterwarnings("ignore:The text or its translation reached a limit:UserWarning")
def test_separate_tokenizers_of_both_types_and_other_attentions(
    tokenizer, randomize, tmp_path, unverified, eagerly
):
    """Local attention in the encoder, and a decoder with a recurrent unit in its place."""
    pieces = ["[UNK]", *string.ascii_letters, *(f"##{letter}" for letter in string.ascii_letters)]
    source_tokenizer = WordPieceTokenizer("\n".join(pieces).encode())
    sizes = dict(num_layers=1, d_model=12, ff_dim=17, num_heads=3, normalize_first=True)
    attentions = dict(attention={"name": "local", "window": 3}, decoder_attention="ssru")
    model = Transformer(source_tokenizer.vocab_size, tokenizer.vocab_size, **sizes, **attentions)
    model.build()
    randomize(model, seed=3)
    decoding = DecodingConfig(beam_size=3, max_length=6, max_source_length=10)
    translator = Translator(model, source_tokenizer, tokenizer, decoding)
    assert "attention" in Signatures(translator).functions()
    with unverified("serving_default"):
        path = export_saved_model(translator, tmp_path / "new")
    assert tree(tmp_path / "new")[0] == "1" and path == tmp_path / "new" / "1"
    texts = ["A dog runs in the park, and so on.", "zebra", "\u4e16", ""]
    found, expected = load(path).translate(texts), translator.translate(texts)
    assert [best.truncated for (best,) in expected] == [True, True, False, False]
    assert len({best.text for (best,) in expected}) == len(texts)
    for (ours,), (theirs,) in zip(found, expected, strict=True):
        assert ours == theirs._replace(score=pytest.approx(theirs.score, abs=1e-5))


def test_a_run_is_exported_with_the_weights_and_the_search_that_are_named(
    tokenizer, tmp_path, quick, monkeypatch
):
    config = Config(model=dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2))
    run = Run(tmp_path / "run")
    run.path.mkdir()
    run.create(config, tokenizer, tokenizer)
    model = Transformer(tokenizer.vocab_size, **config.model)
    model.build()
    model.save_weights(run.averaged_path)
    written = []

    def write(translator, *_):
        written.append(translator)

    monkeypatch.setattr(saved_model, "_write", write)
    translator = keras_transformer.load(run.path, "averaged", beam_size=2)
    export_saved_model(translator, tmp_path / "out", n_best=2)
    assert written == [translator]  # no second one is built
    assert translator.decoding == dataclasses.replace(config.decoding, beam_size=2)
    for ours, theirs in zip(translator.model.get_weights(), model.get_weights(), strict=True):
        assert (ours == theirs).all()


def test_half_precision_is_exported_in_float32(tokenizer):
    sizes = dict(num_layers=1, d_model=8, ff_dim=12, num_heads=2)
    model = Transformer(tokenizer.vocab_size, **sizes, dtype="mixed_bfloat16")
    half = Translator(model, tokenizer, decoding=DecodingConfig(beam_size=2), batch_size=3)
    full = exportable_translator(half, 1)
    assert full.model.compute_dtype == "float32" and exportable_translator(full, 1) is full
    assert (full.tokenizer, full.target_tokenizer) == (tokenizer, tokenizer)
    assert (full.decoding, full.batch_size) == (half.decoding, 3)
    for ours, theirs in zip(full.model.get_weights(), model.get_weights(), strict=True):
        assert (ours == theirs).all()


def test_next_free_version_follows_the_highest(translator, tmp_path, quick):
    (tmp_path / "notes.txt").touch()
    numbers = [None, 7, None, 3, None]
    paths = [export_saved_model(translator, tmp_path, version=number) for number in numbers]
    assert [path.name for path in paths] == ["1", "7", "8", "3", "9"]
    assert sorted(os.listdir(tmp_path)) == ["1", "3", "7", "8", "9", "notes.txt"]


def test_version_that_another_export_took_is_not_overwritten(
    translator, tmp_path, monkeypatch, quick
):
    (tmp_path / "1").mkdir()
    numbers = iter([1, 2])  # 1: read before the other export was there
    monkeypatch.setattr(versions, "_next_version", lambda _: next(numbers))
    assert export_saved_model(translator, tmp_path).name == "2"
    assert os.listdir(tmp_path / "1") == []


def test_concurrent_exports_get_a_version_each(translator, tmp_path, quick):
    exports = [
        threading.Thread(target=export_saved_model, args=(translator, tmp_path)) for _ in range(5)
    ]
    for thread in exports:
        thread.start()
    for thread in exports:
        thread.join()
    assert sorted(os.listdir(tmp_path)) == ["1", "2", "3", "4", "5"]
    assert all(len(tree(tmp_path / version)) == 6 for version in "12345")


def test_what_a_killed_export_has_left_goes_and_what_another_writes_stays(
    translator, tmp_path, monkeypatch, quick
):
    (tmp_path / ".partial-killed" / "variables").mkdir(parents=True)
    (tmp_path / ".partially").mkdir()

    def verify(temporary, *_):
        monkeypatch.setattr(saved_model, "verify", lambda *_: Verification(1, 0))
        assert export_saved_model(translator, tmp_path).name == "1"  # while this one is at work
        assert temporary.is_dir()
        return Verification(1, 0)

    monkeypatch.setattr(saved_model, "verify", verify)
    assert export_saved_model(translator, tmp_path).name == "2"
    assert sorted(os.listdir(tmp_path)) == [".partially", "1", "2"]


def test_a_version_above_the_highest_is_never_made(translator, tmp_path, quick):
    highest = 2**63 - 1
    with pytest.raises(ValueError, match=f"from 1 to {highest}.*Received: version={highest + 1}"):
        export_saved_model(translator, tmp_path, version=highest + 1)
    (tmp_path / str(highest + 1)).mkdir()  # which no server takes for a version
    assert export_saved_model(translator, tmp_path).name == "1"
    assert export_saved_model(translator, tmp_path, version=highest).name == str(highest)
    with pytest.raises(ValueError, match="a directory with a free version"):
        export_saved_model(translator, tmp_path)


def test_a_damaged_export_is_refused(exported, tmp_path):
    copy = shutil.copytree(exported, tmp_path / "1")
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=copy, check=True)
    for file in ("variables/variables.data-00000-of-00001", "saved_model.pb"):
        whole = (copy / file).read_bytes()
        middle = len(whole) // 2
        damaged = bytes([whole[middle] ^ 0xFF])  # a fixed value may stand there already
        (copy / file).write_bytes(whole[:middle] + damaged + whole[middle + 1 :])
        with pytest.raises(ValueError, match=f"which is damaged .{file} is not.*Export it again"):
            load(tmp_path)
        (copy / file).write_bytes(whole)
    (copy / "variables/variables.index").unlink()
    with pytest.raises(ValueError, match="variables.index: No such file"):
        load(tmp_path)
    (copy / "SHA256SUMS").write_text("")
    with pytest.raises(ValueError, match="SHA256SUMS is empty"):
        load(tmp_path)
    (copy / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="SHA256SUMS is missing"):
        load(tmp_path)
    (copy / "assets.extra/keras_transformer.json").write_text('{"n_be')
    with pytest.raises(ValueError, match="which is damaged .Unterminated string.*Export it again"):
        load(tmp_path)


@pytest.mark.parametrize("content", ["a directory", "an empty directory", "a file"])
def test_existing_version_is_refused_and_kept(translator, tmp_path, quick, content):
    if content == "a file":
        (tmp_path / "2").write_text("kept")
    else:
        (tmp_path / "2").mkdir()
    if content == "a directory":
        (tmp_path / "2" / "file").write_text("kept")
    before = tree(tmp_path)
    with pytest.raises(ValueError, match="(?s)does not exist.*Received: version=2"):
        export_saved_model(translator, tmp_path, version=2)
    assert tree(tmp_path) == before


def test_version_that_appears_meanwhile_is_refused_and_kept(
    translator, tmp_path, monkeypatch, quick
):
    def verify(*_):
        (tmp_path / "2").mkdir()
        return Verification(1, 0)

    monkeypatch.setattr(saved_model, "verify", verify)
    with pytest.raises(ValueError, match="Received: version=2"):
        export_saved_model(translator, tmp_path, version=2)
    assert tree(tmp_path) == ["2"]


def test_bad_arguments_write_nothing(translator, tmp_path, quick):
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="Expected a directory.*file"):
            export_saved_model(translator, directory)
    with pytest.raises(ValueError, match="Received: n_best=4, beam_size=3"):
        export_saved_model(translator, tmp_path / "new", n_best=4)
    with pytest.raises(ValueError, match="Received: version=0"):
        export_saved_model(translator, tmp_path / "new", version=0)
    with pytest.raises(ValueError, match="Received: 'runs/a'. Load a run"):
        export_saved_model("runs/a", tmp_path / "new")
    assert tree(tmp_path) == ["file"]


def test_a_run_is_no_place_for_its_export(translator, tmp_path, quick):
    (tmp_path / "config.yaml").write_text("model: {}")
    with pytest.raises(ValueError, match="a run. With an export in it"):
        export_saved_model(translator, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_other_backends_of_keras_are_refused(translator, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="Received: backend=jax"):
        export_saved_model(translator, tmp_path / "new")
    assert tree(tmp_path) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_export_that_breaks_off_leaves_nothing(translator, tmp_path, monkeypatch, error):
    def save(tracked, path, signatures):
        (pathlib.Path(path) / "variables").mkdir()
        (pathlib.Path(path) / "variables" / "half").write_text("half")
        raise error

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(type(error)):
        export_saved_model(translator, tmp_path / "new" / "models")
    assert tree(tmp_path) == ["new"]
    (tmp_path / "old").mkdir()
    with pytest.raises(type(error)):
        export_saved_model(translator, tmp_path / "old")
    assert tree(tmp_path) == ["new", "old"]


def test_export_that_is_not_proven_leaves_nothing(translator, tmp_path, monkeypatch, quick):
    def verify(*_):
        raise ExportError("not the same")

    monkeypatch.setattr(saved_model, "verify", verify)
    with pytest.raises(ExportError):
        export_saved_model(translator, tmp_path)
    assert tree(tmp_path) == []


@pytest.mark.slow
def test_linear_cross_attention_is_exported_too(tmp_path, tokenizer, sentence_pairs, unverified):
    model = Transformer(
        tokenizer.vocab_size,
        num_layers=1,
        d_model=16,
        ff_dim=24,
        num_heads=2,
        attention={"name": "local", "window": 3},
        cross_attention="linear",
    )
    translator = Translator(model, tokenizer, decoding=DecodingConfig(beam_size=2, max_length=20))
    with unverified():
        exported = load(export_saved_model(translator, tmp_path).parent)
    source = [source for source, _ in sentence_pairs[:5]]
    assert exported(source) == translator(source)
    assert "attention" not in exported.signatures
