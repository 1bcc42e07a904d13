"""An export read back into Python translates as its translator does."""

import pickle
import shutil

import pytest

import keras_transformer
from keras_transformer import backend
from keras_transformer.translation import loading
from keras_transformer.translation.exported_translator import ExportedTranslator
from keras_transformer.translation.loading import load, load_export


def test_translates_as_the_translator_does(exported_translator, translator, texts):
    texts = [*texts, *texts[:7]]  # more than a batch
    expected = translator.translate(texts, 2)
    assert exported_translator(texts) == [best.text for best, *_ in expected]
    assert exported_translator("A dog runs.") == "Ein Hund läuft."
    assert exported_translator([]) == []
    for n_best in (1, 2):
        found = exported_translator.translate(texts, n_best)
        for ours, theirs in zip(found, expected, strict=True):
            assert len(ours) == len(theirs[:n_best])
            for one, other in zip(ours, theirs[:n_best], strict=True):
                assert one._replace(score=0.0) == other._replace(score=0.0)
                assert abs(one.score - other.score) < 1e-5


def test_any_number_of_threads_gives_the_same_translations(exported_translator, texts, monkeypatch):
    texts = [*texts[::3], "", *texts[:7]]
    found = []
    for num_threads in (1, 5):
        monkeypatch.setattr(backend, "num_search_threads", lambda count=num_threads: count)
        found.append(exported_translator(texts))
        chunks = exported_translator.translate_chunks([texts[:3], [], texts[3:]])
        found.append([best.text for answers in chunks for (best,) in answers])
        monkeypatch.setattr(exported_translator, "num_threads", num_threads)  # whatever cores
        assert exported_translator._batches(["a"] * 10)[0] == list(range(10 // num_threads))
    assert all(each == found[0] for each in found)


def test_an_export_is_loaded_for_some_threads(exported_ctranslate2, tmp_path):
    loaded = load_export(exported_ctranslate2.parent, num_threads=2)
    assert loaded._search._translator.num_translators == 2
    again = pickle.loads(pickle.dumps(loaded))
    assert (again.path, again.num_threads) == (exported_ctranslate2, 2)
    with pytest.raises(ValueError, match="num_threads must be a whole number of at least 1"):
        load_export(exported_ctranslate2, num_threads=0)
    with pytest.raises(ValueError, match="where there is none"):
        load_export(tmp_path)


def test_half_of_a_surrogate_pair_is_a_replacement_character(exported_translator):
    texts = ["A dog \ud83d runs.", "A dog runs."]
    assert exported_translator(texts) == exported_translator(["A dog \ufffd runs.", "A dog runs."])


def test_characters_that_the_tokenizer_does_not_know(
    translator, exported_translator, exported_ctranslate2
):
    texts = ["A \u4e16 dog \U0001f44d\u4e16 runs.", "", "A dog runs.", "\u4e16"]
    for each in (translator, exported_translator, load(exported_ctranslate2)):
        found = each.unknown_characters(texts)
        assert found == ["\u4e16\U0001f44d", "", "", "\u4e16"]
        assert each.unknown_characters([]) == []


def test_a_part_of_a_character_is_known_where_the_character_is(
    translator, exported_translator, exported_ctranslate2
):
    texts = ["u\u0308", "\u0308", "A dog runs."]  # two are normalized to one, alone it is unknown
    for each in (translator, exported_translator, load(exported_ctranslate2)):
        assert each.unknown_characters(texts) == ["", "\u0308", ""]


def test_carries_the_search_that_was_exported(exported_translator, translator):
    assert exported_translator.decoding == translator.decoding
    for n_best in (0, 3):
        with pytest.raises(ValueError, match=f"Received: n_best={n_best}"):
            exported_translator.translate(["A dog."], n_best)
    with pytest.raises(ValueError, match="Expected a list"):
        exported_translator.translate("A dog.")


def test_highest_version_is_loaded_wherever_the_export_lies(
    exported, exported_translator, tmp_path, monkeypatch
):
    assert isinstance(exported_translator, ExportedTranslator)
    assert exported_translator.path == exported  # `load` was given the directory of its versions
    for version in ("9", "10", ".export-12"):
        (tmp_path / version).symlink_to(exported)
    monkeypatch.setattr(loading, "_load_version", lambda path: path)
    assert keras_transformer.load(tmp_path / "9") == tmp_path / "9"
    assert load(tmp_path) == tmp_path / "10"


def test_the_search_of_an_export_is_fixed(exported, exported_translator, monkeypatch):
    monkeypatch.setattr(loading, "_load_version", lambda _: exported_translator)
    decoding = exported_translator.decoding
    assert keras_transformer.load(exported, beam_size=decoding.beam_size).path == exported
    with pytest.raises(ValueError, match="Received: length_penalty=0.0, exported with length_pen"):
        keras_transformer.load(exported, beam_size=decoding.beam_size, length_penalty=0.0)


def test_other_directories_are_refused(exported, tmp_path):
    with pytest.raises(ValueError, match="Expected a run directory"):
        load(tmp_path)
    shutil.copytree(exported, tmp_path / "1", ignore=shutil.ignore_patterns("assets.extra"))
    with pytest.raises(ValueError, match="Expected an export of this package"):
        load(tmp_path)
