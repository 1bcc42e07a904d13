"""`keras-transformer plot`."""

import pathlib
import sys
import warnings

import pytest

from keras_transformer import cli, plots
from keras_transformer.cli import console


def test_plot_repeats_warnings_of_the_library(calls, run_directory, tmp_path, monkeypatch, capsys):
    def attention_maps(attention_map, path):
        warnings.warn("No installed font has the letters \u72ac.", stacklevel=1)

    drawing = sys.modules["keras_transformer.plots"]
    monkeypatch.setattr(drawing, "attention_maps", attention_maps)
    # the start of Keras silences the warnings of libraries
    monkeypatch.setattr(console, "start_keras", lambda **_: warnings.simplefilter("ignore"))
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
    drawn = [call[1] for call in calls if call[0] == "attention_maps"]
    expected = [f"attention of A dog. with {beams} beams" for beams in (2, 5)]
    assert drawn == [(attention_map, str(tmp_path / "a.png")) for attention_map in expected]


def test_the_attention_of_an_export_is_not_drawn(calls, export_directory, tmp_path, error_of):
    error = error_of(2, ["plot", export_directory, "A", "--output", str(tmp_path / "a.png")])
    assert f"Expected the directory of a run. Received: {export_directory}: an export." in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["RUN", "A dog.", "--layer", "0", "--kind", "encoder"],
            (
                "attention_maps",
                ("attention of A dog. with 2 beams", "F"),
                {"layer": 0, "kind": "encoder"},
            ),
        ),
        (
            ["attention", "RUN", "A dog.", "--target", "Ein Hund."],
            ("attention_maps", ("attention of A dog. and Ein Hund. with 2 beams", "F"), {}),
        ),
        (
            ["alignment", "RUN", "A dog.", "--beam-size", "3", "--layer", "1"],
            ("alignment", ("attention of A dog. with 3 beams", "F"), {"layer": 1}),
        ),
        (
            ["alignment", "RUN", "A dog.", "--alignment-head", "1", "2"],
            ("alignment", ("attention of A dog. with 2 beams", "F"), {"layer": 1, "head": 2}),
        ),
        (
            ["beam", "RUN", "A dog.", "--beam-size", "3"],
            ("beam_tree", ("tree of A dog. with 3 beams", "F"), {}),
        ),
        (["curves", "RUN"], ("learning_curves", (pathlib.Path("RUN/metrics.jsonl"), "F"), {})),
        (
            ["curves", "RUN", "other/RUN"],
            (
                "learning_curves",
                (
                    {
                        "RUN": pathlib.Path("RUN/metrics.jsonl"),
                        "other/RUN": pathlib.Path("other/RUN/metrics.jsonl"),
                    },
                    "F",
                ),
                {},
            ),
        ),
        (["positions"], ("position_encoding", (100, 128), {"path": "F"})),
        (
            "positions --num-positions 9 --d-model 6 --layout concatenated".split(),
            ("position_encoding", (9, 6), {"path": "F", "layout": "concatenated"}),
        ),
    ],
)
def test_each_picture_is_drawn_as_the_flags_ask(calls, tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    for run in ("RUN", "other/RUN"):
        pathlib.Path(run).mkdir(parents=True)
        pathlib.Path(run, "metrics.jsonl").touch()
    assert cli.main(["plot", *arguments, "--output", "F"]) == 0
    assert [call for call in calls if call != "keras"] == [expected]


def test_an_alignment_is_of_a_layer_or_of_a_head(calls, run_directory, tmp_path, error_of):
    arguments = ["plot", "alignment", run_directory, "A", "--output", str(tmp_path / "a.png")]
    error = error_of(2, [*arguments, "--layer", "0", "--alignment-head", "0", "1"])
    assert "Received: layer=0, alignment_head=[0, 1]. Leave out one." in error and calls == []


def test_html_is_an_interactive_view_of_everything(calls, run_directory, tmp_path, error_of):
    arguments = ["plot", run_directory, "A dog.", "--output", str(tmp_path / "a.HTML")]
    assert cli.main(arguments) == 0
    drawn = ("attention of A dog. with 2 beams", str(tmp_path / "a.HTML"))
    assert calls[-1] == ("attention_view", drawn, {})
    calls.clear()
    assert "Received: --layer with --output" in error_of(2, [*arguments, "--layer", "0"])
    assert calls == []


def test_lengths_draws_the_translations_of_each_run(calls, tmp_path, write_files, monkeypatch):
    source, target, short = write_files(source="a\nb\n", target="x\ny\n", short="x\n")
    runs = [tmp_path / "first", tmp_path / "second"]
    for run in runs:
        run.mkdir()
    files = ["--source", source, "--target", target, "--output", "F"]
    assert cli.main(["plot", "lengths", *map(str, runs), *files]) == 0
    translations = {"first": ["A", "B"], "second": ["A", "B"]}
    assert calls[-1] == ("bleu_by_length", (["a", "b"], ["x", "y"], translations, "F"), {})


def test_lengths_of_files_that_do_not_fit_are_refused_before_keras_starts(
    calls, run_directory, write_files, error_of
):
    source, short = write_files(source="a\nb\n", short="x\n")
    files = ["--source", source, "--target", short, "--output", "F"]
    error = error_of(2, ["plot", "lengths", run_directory, *files])
    assert f"{source}: 2 lines, {short}: 1 lines" in error
    assert calls == []


def test_a_run_that_is_named_twice_is_refused(calls, run_directory, error_of):
    error = error_of(2, ["plot", "curves", run_directory, run_directory, "--output", "F"])
    assert "Expected each run once." in error
    assert calls == []


def test_a_schedule_is_that_of_the_settings(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(console, "start_keras", lambda: None)
    monkeypatch.setattr(plots, "learning_rates", lambda *arguments: calls.append(arguments))
    output = str(tmp_path / "schedule.png")
    arguments = ["plot", "schedule", "--output", output, "--set", "training.warmup_steps=7"]
    assert cli.main([*arguments, "--preset", "base"]) == 0
    schedule, num_steps, path = calls[-1]
    assert (schedule.d_model, schedule.warmup_steps, path) == (512, 7, output)
    assert cli.main([*arguments, "training.max_steps=9", "training.peak_learning_rate=0.5"]) == 0
    schedule, num_steps, _ = calls[-1]
    assert (schedule.peak_learning_rate, num_steps) == (0.5, 9)
    assert cli.main([*arguments, "--max-steps", "11"]) == 0
    assert calls[-1][1] == 11
