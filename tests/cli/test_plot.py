"""`keras-transformer plot`."""

import sys
import warnings

from keras_transformer import cli


def test_plot_says_what_the_library_warns_of(calls, run_directory, tmp_path, monkeypatch, capsys):
    def attention_maps(attention_map, path):
        warnings.warn("No installed font has the letters \u72ac.", stacklevel=1)

    plots = sys.modules["keras_transformer.plots"]
    monkeypatch.setattr(plots, "attention_maps", attention_maps)
    assert cli.main(["plot", run_directory, "A", "--output", str(tmp_path / "a.png")]) == 0
    expected = "keras-transformer: warning: No installed font has the letters \u72ac.\n"
    assert capsys.readouterr().err == expected


def test_plot_wants_a_sentence_in_utf8(calls, run_directory, tmp_path, error_of):
    arguments = ["plot", run_directory, "sch\udcf6n", "--output", str(tmp_path / "a.png")]
    assert "Expected UTF-8 text. Received: the sentence as b'sch\\xf6n'" in error_of(2, arguments)
    assert calls == []


def test_plot_draws_the_translation_that_the_flags_ask_for(
    calls, run_directory, tmp_path, fake_translator
):
    arguments = ["plot", run_directory, "A dog.", "--output", str(tmp_path / "a.png")]
    assert cli.main(arguments) == 0
    assert cli.main([*arguments, "--beam-size", "5", "--checkpoint", "last"]) == 0
    assert fake_translator.loaded == (run_directory, "last")
    drawn = [call[1] for call in calls if call[0] == "plot"]
    expected = [f"attention of A dog. with {beams} beams" for beams in (2, 5)]
    assert drawn == [(attention_map, str(tmp_path / "a.png")) for attention_map in expected]


def test_the_attention_of_an_export_is_not_drawn(calls, export_directory, tmp_path, error_of):
    error = error_of(2, ["plot", export_directory, "A", "--output", str(tmp_path / "a.png")])
    assert f"Expected the directory of a run. Received: {export_directory}: an export." in error
