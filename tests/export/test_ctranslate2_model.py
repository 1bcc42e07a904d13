"""An export for CTranslate2: what is written, when it is proved, and how it is read back."""

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import types

import pytest

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")

import keras_transformer
from keras_transformer.export import ctranslate2_model, export_ctranslate2, export_saved_model
from keras_transformer.export.quantized_weights import QuantizedWeights
from keras_transformer.export.verification import ExportError
from keras_transformer.translation.ctranslate2_search import CTranslate2Search
from keras_transformer.translation.exported_translator import CTranslate2Translator
from keras_transformer.translation.loading import load
from keras_transformer.translation.translator import Translator


@pytest.fixture(scope="session")
def read_back(exported_ctranslate2):
    return keras_transformer.load(exported_ctranslate2)


def test_export_is_one_version_with_its_settings(exported_ctranslate2, translator):
    assert os.listdir(exported_ctranslate2.parent) == ["1"]
    files = sorted(path.name for path in exported_ctranslate2.iterdir())
    expected = ["SHA256SUMS", "assets.extra", "config.json", "model.bin"]
    expected += ["model_card.json", "model_card.md", "shared_vocabulary.json"]
    assert files == [*expected, "source.spm", "target.spm"]
    settings = json.loads(
        (exported_ctranslate2 / "assets.extra/keras_transformer.json").read_text()
    )
    assert settings["decoding"] == vars(translator.decoding)
    assert (settings["format"], settings["weights"], settings["n_best"]) == (
        ("ctranslate2", "float32", 2)
    )
    assert settings["verification"] == {"num_texts": 64 + 7 + 8, "num_near_ties": 0}


def test_translates_as_the_translator_does(read_back, translator, texts):
    assert isinstance(read_back, CTranslate2Translator)
    texts = [*texts, *texts[:7]]  # more than a batch
    found, expected = read_back.translate(texts, 2), translator.translate(texts, 2)
    same = [ours[0].text == theirs[0].text for ours, theirs in zip(found, expected, strict=True)]
    assert sum(same) >= 0.9 * len(texts)  # the beams end by other rules
    for (ours, *others), (theirs, *_), is_same in zip(found, expected, same, strict=True):
        assert all(ours.score >= other.score and ours.text != other.text for other in others)
        if is_same:
            assert ours.truncated == theirs.truncated
            assert ours.score == pytest.approx(theirs.score, rel=0.02, abs=0.01)
    assert read_back("A dog runs.") == "Ein Hund läuft."
    assert read_back([]) == [] and read_back(["", " \t"]) == ["", ""]
    unknown = [
        "\u200d \xad",
        "\u4e16",
        "\u3000\u4e16 \u754c\u00a0",
        "\u4e16".encode(),
        "\u4e16" * 9_000,
    ]
    assert read_back.translate(unknown, 2) == translator.translate(unknown, 2)
    assert read_back._search.score(["\u4e16"], ["Hund"]) == [0.0]


def test_bytes_are_texts_as_for_other_translators(read_back, translator):
    texts = [b"A dog runs.", "A cat sleeps.", b"A \xff dog", "Straße".encode(), b" "]
    decoded = [text if isinstance(text, str) else text.decode("utf-8", "replace") for text in texts]
    assert read_back(texts) == read_back(decoded)
    assert read_back(texts)[0] == translator(texts)[0] == "Ein Hund läuft."
    assert read_back(["A dog \ud83d runs."]) == read_back(["A dog \ufffd runs."])
    for each in (read_back, translator):
        with pytest.raises(ValueError, match="Expected a list of texts, .* Received: b'A dog.'"):
            each.translate(b"A dog.")


@pytest.mark.parametrize("weights", ["float16", "bfloat16"])
def test_halves_are_loaded_in_silence(weights, translator, texts, tmp_path, capfd):
    """CTranslate2 would print that the processor has no fast product for them."""
    ctranslate2_model.write_ctranslate2(translator, tmp_path, weights)
    settings = ctranslate2_model.search_settings(translator, weights)
    decoding = dataclasses.asdict(translator.decoding)
    search = CTranslate2Search(tmp_path, {"decoding": decoding, **settings})
    assert search.translate(["A dog runs."])[0][0][0] == "Ein Hund läuft."
    assert capfd.readouterr().err == ""


def test_weights_beyond_float16_are_named(translator, tmp_path):
    model = QuantizedWeights(translator.model, "bfloat16").model  # a copy
    table = model.source_embedding.embeddings.numpy()
    table[9, 3] = -70_000
    model.source_embedding.embeddings.assign(table)
    other = Translator(model, translator.tokenizer, decoding=translator.decoding)
    for write in (export_ctranslate2, export_saved_model):
        message = "range of float16. Received: .*source_embedding/embeddings, with 70,000"
        with pytest.raises(ValueError, match=message):
            write(other, tmp_path / "models", weights="float16")
        steered = Translator(translator.model, translator.tokenizer, processors=[min])
    with pytest.raises(ValueError, match="Received: shortlist=0, processors=.*SavedModel"):
        export_ctranslate2(steered, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_translation_does_not_depend_on_its_neighbours(read_back, texts):
    """Nor on their limits: each text has its own, which is lower than that of a long one."""
    together = read_back.translate(texts)
    for text, (best,) in zip(texts, together, strict=True):
        ((alone,),) = read_back.translate([text])
        assert (alone.text, alone.truncated) == (best.text, best.truncated)
        assert alone.score == pytest.approx(best.score, abs=1e-4)


def test_a_short_text_has_its_own_limit(translator, exported_ctranslate2):
    """In one batch with a long text. The limits are those of `output_limits`."""
    decoding = {**dataclasses.asdict(translator.decoding), "beam_size": 1, "max_length": 5}
    limited = Translator(
        translator.model,
        translator.tokenizer,
        decoding=dataclasses.replace(translator.decoding, beam_size=1, max_length=5),
    )
    settings = {"decoding": decoding, **ctranslate2_model.search_settings(translator)}
    search = CTranslate2Search(exported_ctranslate2, settings)
    texts = ["A dog runs.", "A young woman with long hair is riding a horse along the beach."]
    found = [best for (best,) in search.translate(texts)]
    assert [(text, cut) for text, _, cut in found] == [
        (best.text, best.truncated) for (best,) in limited.translate(texts)
    ]
    assert [cut for _, _, cut in found] == [True, True]


def test_a_needed_limit_is_applied_alone(exported_ctranslate2, translator, monkeypatch):
    """A hypothesis that only the limit of its batch allows is searched for again."""
    decoding = {**dataclasses.asdict(translator.decoding), "beam_size": 1}
    settings = {"decoding": decoding, **ctranslate2_model.search_settings(translator)}
    search = CTranslate2Search(exported_ctranslate2, settings)
    texts = ["A dog runs.", "The woman in the green coat is waiting for the bus."]
    short = len(search.read(texts[0])[0])
    monkeypatch.setattr(search, "_limit", lambda row: 2 if len(row) == short else 60)
    (found,), (other,) = search.translate(texts)
    assert found[2] and found[0] and not other[2]
    assert found == pytest.approx(search.translate(texts[:1])[0][0])


def test_a_text_is_listed_once_with_its_best_score(read_back):
    """Also where another search score makes other tokens the best."""
    texts = [["\u2581", "E", "n", "</s>"], ["\u2581E", "n", "</s>"], ["\u2581E", "</s>"]]
    found = types.SimpleNamespace(hypotheses=texts, scores=[-2.0, -1.0, -3.0])
    first, second = read_back._search._answer(["a"] * 9, False, found, 3)
    assert (first[0], second[0]) == ("En", "E") and first[1] > second[1]
    assert read_back._search._answer(["a"] * 9, False, found, 1) == [first]


def test_the_search_is_fixed(read_back, exported_ctranslate2):
    with pytest.raises(ValueError, match="Received: n_best=3"):
        read_back.translate(["A dog."], n_best=3)
    with pytest.raises(ValueError, match="Received: beam_size=5, exported with beam_size=3"):
        keras_transformer.load(exported_ctranslate2, beam_size=5)
    assert pickle.loads(pickle.dumps(read_back)).path == exported_ctranslate2


def test_damage_is_noticed(exported_ctranslate2, tmp_path):
    for file in exported_ctranslate2.rglob("*"):
        copy = tmp_path / "7" / file.relative_to(exported_ctranslate2)
        if file.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    assert load(tmp_path).path == tmp_path / "7"
    weights = bytearray((tmp_path / "7/model.bin").read_bytes())
    weights[len(weights) // 2] ^= 1
    (tmp_path / "7/model.bin").write_bytes(weights)
    with pytest.raises(ValueError, match="damaged .model.bin is not what its checksum"):
        load(tmp_path)


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_rounded_weights_are_smaller_and_close(
    weights, translator, exported_ctranslate2, sentence_pairs, tmp_path
):
    path = export_ctranslate2(translator, tmp_path, weights=weights)
    sizes = [(p / "model.bin").stat().st_size for p in (path, exported_ctranslate2)]
    assert sizes[0] < (0.6 if weights == "bfloat16" else 0.45) * sizes[1]
    sources = [source for source, _ in sentence_pairs]
    found, expected = load(tmp_path)(sources), translator(sources)
    is_exact = ctranslate2_model._tolerance(weights) is not ctranslate2_model.INEXACT_INT8
    assert sum(map(str.__eq__, found, expected)) > (0.7 if is_exact else 0.4) * len(sources)


def test_a_wrong_export_does_not_appear(translator, tmp_path, monkeypatch):
    written = ctranslate2_model.transformer_spec

    def with_a_wrong_weight(translator):
        spec = written(translator)
        spec.decoder.layer[0].ffn.linear_1.weight[:] *= 1.5
        return spec

    monkeypatch.setattr(ctranslate2_model, "transformer_spec", with_a_wrong_weight)
    with pytest.raises(ExportError, match="must (answer|translate) as"):
        export_ctranslate2(translator, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_bad_arguments_are_refused_before_anything_is_written(translator, tmp_path):
    for arguments, message in (
        (dict(weights="int4"), "weights must be one of float32, .*Received: weights='int4'"),
        (dict(n_best=4), "Received: n_best=4, beam_size=3"),
        (dict(version=0), "version"),
    ):
        with pytest.raises(ValueError, match=message):
            export_ctranslate2(translator, tmp_path / "models", **arguments)
    assert not (tmp_path / "models").exists()


def test_the_directory_needs_no_tensorflow(exported_ctranslate2, translator):
    """The program that translates with it needs not even this package."""
    settings = {"decoding": vars(translator.decoding)}
    settings |= ctranslate2_model.search_settings(translator)
    request = {"settings": settings, "batches": [["A dog runs."]]}
    program = f"""
import runpy, sys, io
sys.argv[1:] = [{str(exported_ctranslate2)!r}]
sys.stdin = io.StringIO({json.dumps(request)!r})
runpy.run_path({str(ctranslate2_model.SEARCH_PROGRAM)!r}, run_name="__main__")
assert not {{"tensorflow", "keras", "keras_transformer"}} & set(sys.modules)
print()
for name in ("tensorflow", "keras"):
    sys.modules[name] = None  # an import of it fails
import keras_transformer
translator = keras_transformer.load({str(exported_ctranslate2)!r})
print([answers[0] for answers in translator.translate_chunks([["A dog runs."], [""]])])
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    found, answers = process.stdout.splitlines()
    assert "Ein Hund" in json.loads(found)[0][0][0], process.stderr
    assert "Ein Hund" in answers and "Translation(text='', score=0.0" in answers


def test_without_the_library_one_line_says_what_to_install(
    exported_ctranslate2, translator, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for call in (
        lambda: export_ctranslate2(translator, tmp_path / "models"),
        lambda: load(exported_ctranslate2),
    ):
        with pytest.raises(ValueError, match='pip install "ctranslate2>=4.8,<5"') as error:
            call()
        assert "\n" not in str(error.value)
