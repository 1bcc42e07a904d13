"""The command in this process, the library behind it replaced, and as a process of its own."""

import configparser
import gzip
import io
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import types
import warnings

import pytest

from keras_transformer import cli, console
from keras_transformer.config import Config, DecodingConfig


class FakeTranslator:
    """Translates into capitals; hypothesis n ends in n exclamation marks and scores -n."""

    loaded = None
    chunks = None

    def __init__(self, model, tokenizer, target_tokenizer, decoding):
        self.model, self.tokenizer, self.target_tokenizer = model, tokenizer, target_tokenizer
        self.decoding = decoding

    @classmethod
    def load(cls, path, checkpoint=None):
        cls.loaded, cls.chunks = (path, checkpoint), []
        if path.endswith("export"):
            return FakeExport()
        return cls("model", "source", "target", DecodingConfig(beam_size=2, max_length=99))

    def translate(self, texts, n_best=1):
        self.chunks.append(list(texts))
        return [
            [
                types.SimpleNamespace(
                    text=text.upper() + "!" * n, score=-float(n), truncated="cut" in text
                )
                for n in range(n_best)
            ]
            for text in texts
        ]

    def attention(self, text):
        return f"attention of {text} with {self.decoding.beam_size} beams"


class FakeExport:
    decoding = DecodingConfig(beam_size=2)
    chunks = []
    translate = FakeTranslator.translate


@pytest.fixture
def calls(monkeypatch):
    """Replaces what the subcommands call; returns the list of calls, also of Keras's start."""
    calls = []

    def replace(module, **functions):
        monkeypatch.setitem(
            sys.modules, f"keras_transformer.{module}", types.SimpleNamespace(**functions)
        )

    def recorded(name, answer=None):
        def function(*arguments, **keywords):
            calls.append((name, arguments, keywords))
            return answer

        return function

    monkeypatch.setattr(console, "start_keras", lambda: calls.append("keras"))
    replace("translator", Translator=FakeTranslator)
    replace("training.train", train=recorded("train"))
    replace("training", train=None)
    replace("export", export_saved_model=recorded("export", pathlib.Path("models/3")))
    replace("plots", attention_maps=recorded("plot"), check_format=lambda path: None)
    quickstart = types.SimpleNamespace(run=recorded("quickstart"))
    monkeypatch.setitem(sys.modules, "keras_transformer.quickstart", quickstart)
    monkeypatch.setattr("keras_transformer.quickstart", quickstart, raising=False)
    return calls


@pytest.fixture
def run_directory(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return str(path)


@pytest.fixture
def export_directory(tmp_path):
    path = tmp_path / "export"
    path.mkdir()
    return str(path)


@pytest.fixture
def type_in(monkeypatch):
    """Puts bytes on standard input."""

    def type_in(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return type_in


def write_files(directory, **contents):
    """Writes files `name.txt` and returns their paths."""
    paths = []
    for name, content in contents.items():
        path = directory / f"{name}.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(str(path))
    return paths


def error_of(capsys, expected_code, arguments):
    """Runs the command, which must fail with one line on standard error, and returns that line."""
    assert cli.main(arguments) == expected_code
    captured = capsys.readouterr()
    assert captured.out in ("", b"")
    error = captured.err if isinstance(captured.err, str) else captured.err.decode()
    assert error.startswith("keras-transformer: ")
    assert error.count("\n") == 1 and error.endswith("\n")
    return error


# === translate ===


def test_translate_gives_a_line_for_each_line_in_order(calls, run_directory, type_in, capsysbinary):
    type_in("ä dog\n\n  \nb\r\nno end".encode())
    assert cli.main(["translate", run_directory]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out.decode() == "Ä DOG\n\n  \nB\nNO END\n"
    assert captured.err == b""
    assert FakeTranslator.loaded == (run_directory, None)


def test_translate_reads_no_more_than_it_translates(
    calls, run_directory, monkeypatch, capsysbinary
):
    monkeypatch.setattr(cli, "CHUNK_LINES", 2)
    read = []

    def lines():
        for number in range(5):
            if read and number % 2 == 0:
                assert len(FakeTranslator.chunks) == number // 2
            read.append(number)
            yield b"line\n"

    stdin = types.SimpleNamespace(buffer=lines(), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main(["translate", run_directory]) == 0
    assert [len(chunk) for chunk in FakeTranslator.chunks] == [2, 2, 1]
    assert capsysbinary.readouterr().out == b"LINE\n" * 5


def test_translate_answers_each_line_of_a_dialogue(
    calls, run_directory, type_in, monkeypatch, capsysbinary
):
    type_in(b"a\nb\n")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert cli.main(["translate", run_directory]) == 0
    assert FakeTranslator.chunks == [["a"], ["b"]]


def test_translate_prints_scores_and_hypotheses(calls, run_directory, type_in, capsysbinary):
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--scores"]) == 0
    assert capsysbinary.readouterr().out == b"-0.0000\tA\n-0.0000\tB\n"
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--n-best", "2"]) == 0
    expected = b"1\t-0.0000\tA\n1\t-1.0000\tA!\n2\t-0.0000\tB\n2\t-1.0000\tB!\n"
    assert capsysbinary.readouterr().out == expected


def test_a_translation_stays_on_its_line(calls, run_directory, type_in, capsysbinary):
    type_in("one\u2028two\x0bthree\n".encode())
    assert cli.main(["translate", run_directory]) == 0
    assert capsysbinary.readouterr().out == b"ONE TWO THREE\n"


def test_translate_says_which_lines_were_too_long(calls, run_directory, type_in, capsysbinary):
    type_in(b"a\ncut\nb\ncut\n")
    assert cli.main(["translate", run_directory]) == 0
    error = capsysbinary.readouterr().err.decode()
    assert error.startswith("keras-transformer: warning: 2 of 4 lines")
    assert error.endswith("the first is line 2\n")


def test_translate_from_file_to_file(calls, run_directory, tmp_path, capsysbinary):
    (source,) = write_files(tmp_path, source="a\nb\n")
    output = tmp_path / "out.gz"
    assert cli.main(["translate", run_directory, "--input", source, "--output", str(output)]) == 0
    assert gzip.decompress(output.read_bytes()) == b"A\nB\n"
    assert capsysbinary.readouterr().out == b""


def test_bad_bytes_leave_the_output_as_it_was(calls, run_directory, tmp_path, capsys):
    source, output = write_files(tmp_path, source=b"a\n\xff\n", output="old\n")
    error = error_of(capsys, 2, ["translate", run_directory, "--input", source, "--output", output])
    assert f"{source}, line 2" in error
    assert pathlib.Path(output).read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 3  # the run, source and output


@pytest.mark.parametrize("flag", ["--input", "--output"])
def test_translate_looks_at_its_files_before_it_starts(calls, run_directory, flag, capsys):
    path = os.path.join(run_directory, "none", "file")
    assert path in error_of(capsys, 2, ["translate", run_directory, flag, path])
    assert calls == []


def test_flags_change_the_search_of_a_run(calls, run_directory, capsys, tmp_path):
    flags = ["--beam-size", "5", "--length-penalty", "1", "--checkpoint", "last"]
    output = str(tmp_path / "a.png")
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    translator = calls[1][1][0]
    expected = DecodingConfig(beam_size=5, length_penalty=1.0, max_length=99)
    assert translator.decoding == expected
    assert translator.target_tokenizer == "target"
    assert FakeTranslator.loaded == (run_directory, "last")
    assert cli.main(["plot", run_directory, "A dog.", "--output", output]) == 0
    assert calls[3] == ("plot", ("attention of A dog. with 2 beams", output), {})


def test_the_search_of_an_export_is_fixed(calls, export_directory, type_in, capsysbinary):
    type_in(b"a\n")
    assert cli.main(["translate", export_directory, "--beam-size", "2"]) == 0
    assert capsysbinary.readouterr().out == b"A\n"
    arguments = ["translate", export_directory, "--beam-size", "2", "--length-penalty", "0"]
    error = error_of(capsysbinary, 2, arguments)
    assert "Received: --length-penalty 0.0, exported with --length-penalty 0.6." in error


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--beam-size", "0"], "from 1 to 2147483647. Received: decoding.beam_size=0"),
        (["--length-penalty", "-1"], "at least 0. Received: decoding.length_penalty=-1.0"),
    ],
)
def test_a_bad_search_is_refused_before_keras_starts(
    calls, run_directory, arguments, message, capsys
):
    assert message in error_of(capsys, 2, ["translate", run_directory, *arguments])
    assert calls == []


def test_a_model_that_is_not_there_is_refused(calls, tmp_path, capsys):
    error = error_of(capsys, 2, ["translate", str(tmp_path / "none")])
    assert "Expected the directory of a run or of an export. Received:" in error
    assert calls == []


# === evaluate ===


def test_evaluate_scores_a_file(calls, tmp_path, capsys):
    files = write_files(tmp_path, hypothesis="a cat sat here .\n", target="a cat sat there .\n")
    assert cli.main(["evaluate", "--hypothesis", files[0], "--target", files[1]]) == 0
    bleu, chrf = capsys.readouterr().out.splitlines()
    assert bleu.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.startswith("chrF2|nrefs:1|case:mixed|")
    assert calls == []


def test_evaluate_prints_json(calls, run_directory, tmp_path, capsys):
    paths = write_files(
        tmp_path, source="a b c d\ne f g h\n", target="A B C X\nE F G H\n", other="a b c d\nx\n"
    )
    flags = ["--target", *paths[1:], "--lowercase", "--tokenize", "none", "--json"]
    assert cli.main(["evaluate", run_directory, "--source", paths[0], *flags]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["BLEU"]["score"] == pytest.approx(100)
    assert "nrefs:2|case:lc|eff:no|tok:none" in scores["BLEU"]["signature"]
    assert scores["chrF2"]["score"] == pytest.approx(100)


def test_evaluate_finds_the_model_behind_the_references(calls, run_directory, tmp_path, capsys):
    source, target, other = write_files(tmp_path, source="a b\n", target="A B\n", other="A X\n")
    flags = ["--source", source, "--target", target, other, run_directory]
    assert cli.main(["evaluate", *flags, "--tokenize", "none"]) == 0
    assert "nrefs:2" in capsys.readouterr().out
    assert FakeTranslator.loaded == (run_directory, None)


@pytest.mark.parametrize(
    "sides, message",
    [
        (dict(source="a\n", target="a\nb\n"), "source.txt: 1 lines, .*target.txt: 2 lines"),
        (dict(source="a\n", target=b"\xfe\n"), "target.txt, line 1: "),
        (dict(source="", target=""), "at least one hypothesis"),
    ],
)
def test_evaluate_refuses_files_that_do_not_match(
    calls, run_directory, tmp_path, capsys, sides, message
):
    source, target = write_files(tmp_path, **sides)
    arguments = ["evaluate", run_directory, "--source", source, "--target", target]
    assert re.search(message, error_of(capsys, 2, arguments))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run"], "Received: run without --source"),
        (
            ["--hypothesis", "TARGET", "--beam-size", "3"],
            "Expected a model for --source and the flags",
        ),
        (
            ["--hypothesis", "TARGET", "--checkpoint", "best"],
            "Expected a model for --source and the flags",
        ),
        (["--hypothesis", "TARGET", "--source", "TARGET"], "Expected a model for --source"),
        (["--hypothesis", "none"], "Received: none: No such file"),
        (["run", "--source", "TARGET", "--tokenize", "moses"], "Received: tokenize='moses'"),
        (["--hypothesis", "TARGET", "--tokenize", "moses"], "Received: tokenize='moses'"),
    ],
)
def test_evaluate_refuses_what_does_not_fit(calls, tmp_path, capsys, arguments, message):
    (target,) = write_files(tmp_path, target="a\n")
    arguments = [target if argument == "TARGET" else argument for argument in arguments]
    assert message in error_of(capsys, 2, ["evaluate", *arguments, "--target", target])
    assert calls == []


# === export, plot, quickstart ===


def test_export_prints_the_new_version(calls, run_directory, capsys):
    flags = ["--n-best", "2", "--version", "3", "--split-sentences"]
    assert cli.main(["export", run_directory, "models", *flags]) == 0
    name, (translator, directory), keywords = calls[1]
    assert (name, translator.model, directory) == ("export", "model", "models")
    assert keywords == {"n_best": 2, "version": 3, "split_sentences": True}
    assert capsys.readouterr().out == "models/3\n"


@pytest.mark.parametrize("command", [["export", "RUN", "x"], ["plot", "RUN", "A", "--output", "x"]])
def test_export_and_plot_want_a_run(calls, export_directory, command, capsys):
    command[1] = export_directory
    error = error_of(capsys, 2, command)
    assert f"Expected the directory of a run. Received: {export_directory}: an export." in error


def test_plot_says_what_the_library_warns_of(calls, run_directory, tmp_path, monkeypatch, capsys):
    def attention_maps(attention_map, path):
        warnings.warn("No installed font has the letters \u72ac.", stacklevel=1)

    plots = sys.modules["keras_transformer.plots"]
    monkeypatch.setattr(plots, "attention_maps", attention_maps)
    assert cli.main(["plot", run_directory, "A", "--output", str(tmp_path / "a.png")]) == 0
    expected = "keras-transformer: warning: No installed font has the letters \u72ac.\n"
    assert capsys.readouterr().err == expected


def test_plot_wants_a_sentence_in_utf8(calls, run_directory, tmp_path, capsys):
    arguments = ["plot", run_directory, "sch\udcf6n", "--output", str(tmp_path / "a.png")]
    assert "Expected UTF-8 text. Received: the sentence as b'sch\\xf6n'" in error_of(
        capsys, 2, arguments
    )
    assert calls == []


def test_quickstart_takes_its_directory(calls):
    assert cli.main(["quickstart"]) == 0
    assert cli.main(["quickstart", "--output", "there"]) == 0
    expected = [("quickstart", (directory,), {}) for directory in ("quickstart", "there")]
    assert [call for call in calls if call != "keras"] == expected


# === train ===


def trained_config(calls, arguments):
    """Runs `train` and returns the settings that the library was called with."""
    del calls[:]
    assert cli.main(["train", *arguments]) == 0
    (start, (name, (config, _), _)) = calls
    assert (start, name) == ("keras", "train")
    return config


@pytest.fixture
def pair(tmp_path):
    """The flags of two training files."""
    source, target = write_files(tmp_path, source="a\n", target="b\n")
    return ["--source-train", source, "--target-train", target]


def test_train_passes_flags_and_settings_on(calls, pair, tmp_path):
    output = str(tmp_path / "run")
    flags = ["--max-steps", "7", "--max-minutes", "1.5", "--seed", "3", "--deterministic"]
    sets = ["--set", "data.max_length=99", "training.patience=0", "--set", "decoding.beam_size=5"]
    devices = ["--strategy", "mirrored"]
    arguments = [*pair, "--output", output, "--init-from", "other", *devices, *flags, *sets]
    config = trained_config(calls, arguments)
    assert calls[1][1][1] == output
    assert calls[1][2] == {"init_from": "other", "strategy": "mirrored"}
    expected = [f"data.source_train={pair[1]}", f"data.target_train={pair[3]}"]
    expected += ["training.max_steps=7", "training.max_minutes=1.5", "training.seed=3"]
    expected += ["training.deterministic=true", *sets[1:3], sets[4]]
    assert config == Config.from_preset("tiny").override(expected)


def test_the_preset_is_tiny_unless_a_file_or_a_run_says_more(calls, pair, tmp_path):
    output = str(tmp_path / "run")
    arguments = [*pair, "--output", output]
    assert trained_config(calls, arguments).model["d_model"] == 128
    assert trained_config(calls, [*arguments, "--preset", "big"]).model["d_model"] == 1024
    (path,) = write_files(tmp_path, mine="model: {d_model: 60}\n")
    assert trained_config(calls, [*arguments, "--config", path]).model == {"d_model": 60}
    both = trained_config(calls, [*arguments, "--config", path, "--preset", "big"])
    assert both.model == {**Config.from_preset("big").model, "d_model": 60}
    os.mkdir(output)
    Config.from_preset("base").override(["training.seed=5"]).save(output + "/config.yaml")
    again = trained_config(calls, [*arguments, "--max-steps", "9"])
    assert (again.model["d_model"], again.training.seed, again.training.max_steps) == (512, 5, 9)


def test_train_takes_a_data_set(calls, tmp_path):
    config = trained_config(
        calls, ["--dataset", "tfds:ted_hrlr_translate/pt_to_en", "--output", str(tmp_path / "run")]
    )
    assert config.data.dataset == "tfds:ted_hrlr_translate/pt_to_en"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--source-train", "none"], "source_train and target_train together"),
        (["--source-train", "none", "--target-train", "none"], "Received: none: No such file"),
        (["--dataset", "ted"], "Expected tfds: and the name"),
        (["--max-steps", "0"], "Received: training.max_steps=0"),
        (["--max-minutes", "-1"], "Received: training.max_minutes=-1.0"),
        (["--init-from", "a", "--set", "model.dropout=0"], "--init-from a --set model.dropout=0"),
    ],
)
def test_train_refuses_bad_flags_before_keras_starts(calls, tmp_path, capsys, arguments, message):
    output = tmp_path / "run"
    assert message in error_of(capsys, 2, ["train", "--output", str(output), *arguments])
    assert calls == [] and not output.exists()


def test_train_refuses_bad_settings(calls, pair, tmp_path, capsys):
    arguments = ["train", *pair, "--output", str(tmp_path / "run")]
    error = error_of(capsys, 2, [*arguments, "--set", "training.max_stepz=3"])
    assert "Did you mean max_steps?" in error
    assert "none.yaml" in error_of(capsys, 2, [*arguments, "--config", "none.yaml"])
    (twice,) = write_files(tmp_path, twice="training: {seed: 1}\ntraining: {seed: 2}\n")
    assert "'training' a second time" in error_of(capsys, 2, [*arguments, "--config", twice])
    (data,) = write_files(tmp_path, data="data: {source_valid: none.en, target_valid: none.de}\n")
    assert "Received: none.en: No such" in error_of(capsys, 2, [*arguments, "--config", data])
    assert calls == [] and not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["train", "quickstart"])
def test_a_directory_that_cannot_be_is_refused_before_keras_starts(
    calls, tmp_path, command, capsys
):
    (file,) = write_files(tmp_path, file="mine\n")
    error = error_of(capsys, 2, [command, "--output", f"{file}/run"])
    assert f"Received: {file}/run, where {file} is a file." in error
    assert calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "LONG"],
        ["translate", "MODEL", "--input", "LONG"],
        ["translate", "MODEL", "--output", "LONG"],
        ["evaluate", "MODEL", "--source", "LONG", "--target", "LONG"],
        ["evaluate", "--hypothesis", "LONG", "--target", "LONG"],
        ["train", "--output", "LONG"],
        ["train", "--output", "new", "--config", "LONG"],
        ["train", "--output", "new", "--source-train", "LONG", "--target-train", "LONG"],
        ["quickstart", "--output", "LONG"],
        ["export", "LONG", "models"],
        ["plot", "MODEL", "A dog.", "--output", "LONG"],
        ["serve", "LONG"],
    ],
)
def test_a_path_that_is_too_long_is_refused_before_keras_starts(
    calls, run_directory, arguments, capsys
):
    paths = {"LONG": 5000 * "x", "MODEL": run_directory}
    arguments = [paths.get(argument, argument) for argument in arguments]
    error = error_of(capsys, 2, arguments)
    assert "File name too long" in error
    assert calls == []


def test_a_run_goes_on_without_its_text_being_named(calls, pair, tmp_path):
    output = str(tmp_path / "run")
    os.mkdir(output)
    config = Config.from_preset("tiny").merged({"data": dict(source_train="a", target_train="b")})
    config.save(output + "/config.yaml")  # of text that may be gone, as that of an ended run
    assert trained_config(calls, ["--output", output]).data == config.data


# === Usage ===


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "the following arguments are required: COMMAND"),
        (["serf"], "invalid choice: 'serf'"),
        (["train"], "the following arguments are required: --output"),
        (["train", "--output", "x", "--max-steps", "many"], "invalid int value: 'many'"),
        (["translate", "x", "--n-best", "0"], "expected a whole number from 1 to 2147483647"),
        (["export", "x", "y", "--n-best", 400 * "9"], "expected a whole number from 1 to"),
        (["serve", "x", "--port", "65536"], "expected a whole number from 0 to 65535"),
        (["serve", "x", "--versions", 400 * "9"], "expected latest, all, or versions"),
        (["train", "--output", "x", "--preset", "huge"], "invalid choice: 'huge'"),
        (["train", "--output", "x", "--sourc", "y"], "unrecognized arguments: --sourc y"),
        (["translate"], "the following arguments are required: MODEL"),
        (["translate", "x", "--checkpoint", "first"], "invalid choice: 'first'"),
        (["evaluate", "x"], "the following arguments are required: --target"),
        (["evaluate", "--target", "x"], "one of the arguments MODEL --hypothesis is required"),
        (["evaluate", "--target", "x", "no_model"], "follows --target is references: x no_model"),
        (["evaluate", "--target", "tests"], "follows --target is references: tests"),
        (["evaluate", "x", "--hypothesis", "y", "--target", "z"], "not allowed with argument"),
        (["export", "x"], "the following arguments are required: DIR"),
        (["plot", "x", "y"], "the following arguments are required: --output"),
    ],
)
def test_a_usage_error_is_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit, match="^2$"):
        cli.main(arguments)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "export", "plot"])
def test_help_comes_from_the_settings(command, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        cli.main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    if command == "train":
        assert "--max-steps N most optimizer steps" in text
        assert "decoding.length_penalty: 0.6" in text
    elif command != "plot":
        assert "--beam-size N hypotheses of the beam search; 1 is greedy search" in text


# === The process ===


def raises(error):
    def command():
        raise error

    return command


def test_what_the_package_refuses_is_an_input_error(capsys):
    assert console.run(lambda: Config().override(["training.max_steps=0"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("keras-transformer: error: Expected max_steps to be")
    assert error.count("\n") == 1


def test_a_system_that_refuses_a_path_is_an_input_error(tmp_path, capsys):
    assert console.run(lambda: open(tmp_path / "none")) == 2
    assert f"No such file or directory: '{tmp_path}/none'" in capsys.readouterr().err


def slip_in_the_package():
    """A `ValueError` that nobody raised on purpose, out of a file of the package."""
    code = compile("int('x')", str(console.PACKAGE / "cli.py"), "exec")
    exec(code)


@pytest.mark.parametrize(
    "command, message",
    [
        (raises(ValueError("of another library\nsecond line")), "ValueError: of another library ("),
        (slip_in_the_package, "ValueError: invalid literal for int() with base 10: 'x' ("),
        (raises(RuntimeError()), "RuntimeError: no message ("),
        (raises(OSError(28, "No space left on device")), "OSError: [Errno 28] No space left"),
    ],
)
def test_anything_else_is_a_failure(command, message, capsys, monkeypatch):
    monkeypatch.delenv(console.TRACEBACK, raising=False)
    assert console.run(command) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"keras-transformer: failed: {message}")
    assert error.endswith("(KERAS_TRANSFORMER_TRACEBACK=1 shows where)\n")
    assert error.count("\n") == 1


def test_the_traceback_is_shown_on_request(capsys, monkeypatch):
    monkeypatch.setenv(console.TRACEBACK, "1")
    assert console.run(raises(RuntimeError("why"))) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last):")
    assert "raise error" in error


def test_a_platform_without_tensorflow_text_is_told_where_there_is_one(capsys):
    missing = ModuleNotFoundError("No module named 'tensorflow_text'", name="tensorflow_text")
    assert console.run(raises(missing)) == 1
    error = capsys.readouterr().err
    assert "Linux (x86-64 and ARM) and on macOS (Apple processors)" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "environment, message",
    [
        ("KERAS_BACKEND=nonsense", "Expected a backend of Keras: tensorflow, jax, torch. Received"),
        ("KERAS_BACKEND=numpy", "Expected a backend of Keras: tensorflow, jax, torch. Received"),
        ("KERAS_BACKEND=jax", 'Install it (pip install "jax'),
        ("KERAS_HOME", 'keras.json: backend=jax. Install it (pip install "jax'),
    ],
)
def test_a_backend_that_is_not_there_is_refused_at_once(
    environment, message, capsys, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "jax", None)  # as if it were not installed
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    name, _, value = environment.partition("=")
    monkeypatch.setenv(name, value or str(tmp_path))
    assert console.run(console.start_keras) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["quickstart"], ["export", "RUN", "models"]])
def test_what_exports_is_refused_at_once_on_another_backend(
    calls, run_directory, arguments, monkeypatch, capsys
):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # it is installed
    arguments = [run_directory if argument == "RUN" else argument for argument in arguments]
    error = error_of(capsys, 2, arguments)
    assert "Expected Keras on TensorFlow, which an export needs. Received: KERAS_BACK" in error
    assert calls == []


def test_interruptions_have_their_codes(capsys):
    assert console.run(raises(KeyboardInterrupt())) == 130

    class Interrupted(Exception):
        signal_number = signal.SIGTERM

    assert console.run(raises(Interrupted("the work is saved"))) == 143
    assert capsys.readouterr().err.endswith("keras-transformer: the work is saved\n")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_libraries_load_is_obeyed_after_it(number, code):
    process = start_python(
        f"""
        import signal, sys
        from keras_transformer import console

        # what a shell starts in the background has it ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def work():
            with console._signals_held():
                signal.raise_signal({int(number)})
                print("loaded")
            print("at work")

        sys.exit(console.run(work))
        """
    )
    output, _ = process.communicate(timeout=30)
    assert (process.returncode, output) == (code, b"loaded\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_empty_ones(closed):
    program = "import sys; from keras_transformer import console; sys.exit(console.run(lambda: "
    program += "(console.say(sys.stdin.read()), print(1), console.start_keras())))"
    arguments = [sys.executable, "-c", program]
    command = " ".join(shlex.quote(argument) for argument in arguments)
    process = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout == ("" if ">&- " in f"{closed} ".replace("2>&-", "") else "1\n")


def start_python(program):
    """Starts a process that runs `program` with pipes for its streams."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_terminated_process_undoes_what_is_half_done(tmp_path):
    process = start_python(
        f"""
        import sys, time
        from keras_transformer import console
        from keras_transformer.text_files import writing_lines

        def work():
            with writing_lines({str(tmp_path / "out")!r}) as write:
                write("half")
                print("started", flush=True)
                time.sleep(60)

        sys.exit(console.run(work))
        """
    )
    assert process.stdout.readline() == b"started\n"
    assert len(list(tmp_path.iterdir())) == 1
    process.terminate()
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (143, b"")
    assert list(tmp_path.iterdir()) == []


def test_the_installed_script_is_the_module_that_answers_interruptions():
    setup = configparser.ConfigParser()
    setup.read(pathlib.Path(__file__).parents[1] / "setup.cfg")
    script = setup["options.entry_points"]["console_scripts"].strip()
    assert script == "keras-transformer = keras_transformer.__main__:main"


@pytest.mark.parametrize(
    "module",
    [
        "keras_transformer.cli",
        "argparse",
        "yaml",
        "keras_transformer.config",
        "keras_transformer.text_files",
        None,
    ],
)
def test_an_interruption_of_the_start_leaves_no_traceback(module):
    """SIGINT when the installed script imports a module; None: when the parser is made."""
    process = start_python(
        f"""
        import importlib.abc, signal, sys

        signal.signal(signal.SIGINT, signal.default_int_handler)

        class Interrupt(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name == {module!r}:
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Interrupt())
        sys.modules.pop({module!r}, None)
        from keras_transformer.__main__ import main
        if {module is None}:
            import argparse

            argparse.ArgumentParser.add_subparsers = lambda *_, **__: signal.raise_signal(2)
        sys.argv[1:] = ["--help"]
        sys.exit(main())
        """
    )
    output, error = process.communicate(timeout=30)
    assert (process.returncode, output) == (130, b"")
    assert error == b"keras-transformer: interrupted\n"


@pytest.mark.parametrize("flag", ["-u", "-B"], ids=["unbuffered", "buffered"])
def test_help_that_cannot_be_written_fails(flag):
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, flag, "-m", "keras_transformer", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 1
    assert "No space left on device" in process.stderr and process.stderr.count("\n") == 1


def test_a_log_that_nobody_reads_ends_no_process():
    process = start_python(
        """
        import sys
        from keras_transformer import console

        def work():
            for number in range(10_000):
                console.say("a line of the report")
            print("the work is done")

        sys.exit(console.run(work))
        """
    )
    assert process.stderr.readline() == b"keras-transformer: a line of the report\n"
    process.stderr.close()
    assert process.stdout.read() == b"the work is done\n"
    assert process.wait(timeout=60) == 0


def test_a_reader_that_has_gone_ends_the_process_quietly():
    process = start_python(
        """
        import sys
        from keras_transformer import console
        from keras_transformer.text_files import writing_lines

        def work():
            with writing_lines() as write:
                for number in range(1_000_000):
                    write(str(number))

        sys.exit(console.run(work))
        """
    )
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141


def run_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *arguments], capture_output=True, text=True
    )


def test_help_lists_the_commands():
    process = run_command("--help")
    assert (process.returncode, process.stderr) == (0, "")
    for command in ("quickstart", "train", "translate", "evaluate", "export", "plot"):
        assert f"\n    {command}" in process.stdout


def test_a_missing_file_and_a_usage_error_end_with_2(tmp_path):
    missing = str(tmp_path / "none.en")
    process = run_command(
        "train", "--source-train", missing, "--target-train", missing, "--output", missing + ".run"
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("keras-transformer: error: Expected a file to read.")
    assert missing in process.stderr and process.stderr.count("\n") == 1
    assert run_command("train", "--seed").returncode == 2
    assert list(tmp_path.iterdir()) == []


# === serve ===


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "stable"], "Received: --label stable. Write it as stable=2."),
        (["--label", "=2"], "Expected a label and a version"),
        (["--label", f"stable={5000 * '9'}"], "Expected a label and a version"),
        (["--max-batch-size", "0"], "Expected max_batch_size to be a whole number from 1"),
        (["--request-timeout", "nan"], "Expected request_timeout to be a number above 0"),
        (["--max-rows", "1000"], "Received: max_rows=1000, max_queued=512"),
        ([], "no such directory"),
    ],
)
def test_serve_refuses_bad_flags_before_anything_is_loaded(capsys, flags, message):
    assert message in error_of(capsys, 2, ["serve", "no_directory", *flags])


@pytest.mark.parametrize("versions", ["newest", "1,", "-1"])
def test_serve_knows_versions_by_numbers(capsys, versions):
    with pytest.raises(SystemExit) as exit:
        cli.main(["serve", "no_directory", f"--versions={versions}"])
    assert exit.value.code == 2
    assert "expected latest, all, or versions such as 1,2" in capsys.readouterr().err


def test_serve_says_which_libraries_it_wants(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h11", None)
    for name in [name for name in sys.modules if name.startswith("keras_transformer.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    error = error_of(capsys, 2, ["serve", str(tmp_path)])
    assert "h11" in error and 'in the clone of this package: pip install ".[serving]"' in error
    assert "keras-transformer[" not in error  # which another project has on the package index
