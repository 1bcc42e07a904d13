"""What the tests of the commands share: the library behind them is replaced."""

import io
import pathlib
import sys
import types

import pytest

import keras_transformer
from keras_transformer import cli
from keras_transformer.cli import console
from keras_transformer.config import DecodingConfig
from keras_transformer.translation.base_translator import Translation, prefetched
from keras_transformer.translation.explanation import Explanation, Word

PICTURES = (
    *("alignment", "attention_maps", "attention_view", "beam_tree", "bleu_by_length"),
    *("learning_curves", "learning_rates", "position_encoding"),
)


def capitals(text):
    """Returns the translation of a text: it lacks the unknown character, but in a copy."""
    return text if text == "\u2603" else text.upper().replace("\u2603", "")


class FakeTranslator:
    """Translates into capitals; hypothesis n ends in n exclamation marks and scores -n."""

    loaded = None
    chunks = prefixes = sampling = ensemble = adapter = None

    def __init__(self, model, tokenizer, target_tokenizer, decoding):
        self.model, self.tokenizer, self.target_tokenizer = model, tokenizer, target_tokenizer
        self.decoding = decoding

    @classmethod
    def load(
        cls,
        path,
        checkpoint=None,
        ensemble=None,
        adapter=None,
        alignment_head=None,
        **decoding,
    ):
        cls.loaded, cls.chunks = (path, checkpoint), []
        cls.ensemble, cls.adapter, cls.alignment_head = ensemble, adapter, alignment_head
        if str(path).endswith("export"):
            return FakeExport()
        decoding = {"beam_size": 2, "max_length": 99, **decoding}
        return cls("model", "source", "target", DecodingConfig(**decoding))

    def checksum(self):
        return "of the translator"

    def translate(self, texts, n_best=1):
        self.chunks.append(list(texts))
        return [
            [Translation(capitals(text) + "!" * n, -float(n), "cut" in text) for n in range(n_best)]
            for text in texts
        ]

    def translate_chunks(
        self, chunks, n_best=1, prefixes=None, terms=None, read_ahead=True, on_batch=None
    ):
        type(self).prefixes = prefixes if isinstance(prefixes, str | None) else list(prefixes)
        for texts in prefetched(chunks) if read_ahead else chunks:
            answers = self.translate(texts, n_best)
            for _ in texts:
                on_batch(1)
            yield answers

    def sample_chunks(self, chunks, num_samples, prefixes, read_ahead, first, on_batch, **sampling):
        type(self).sampling = sampling
        return self.translate_chunks(chunks, num_samples, prefixes, None, read_ahead, on_batch)

    def explain(self, sources, targets):
        return [
            Explanation(
                source.split(), [Word(word, -0.5, 0) for word in target.split()], None, [1, 0]
            )
            for source, target in zip(sources, targets, strict=True)
        ]

    def unknown_characters(self, texts):
        return ["".join(character for character in text if character in "\u2603") for text in texts]

    def attention(self, text, target=None):
        target = f" and {target}" if target else ""
        return f"attention of {text}{target} with {self.decoding.beam_size} beams"

    def search_tree(self, text):
        return f"tree of {text} with {self.decoding.beam_size} beams"


class FakeExport:
    decoding = DecodingConfig(beam_size=2)
    chunks = []
    checksum = FakeTranslator.checksum
    translate = FakeTranslator.translate
    translate_chunks = FakeTranslator.translate_chunks
    unknown_characters = FakeTranslator.unknown_characters
    explain = FakeTranslator.explain


@pytest.fixture
def calls(monkeypatch):
    """Replaces what the subcommands call; returns the list of calls, also of Keras's start."""
    calls = []

    def replace(module, **functions):
        fake = types.SimpleNamespace(**functions)
        monkeypatch.setitem(sys.modules, f"keras_transformer.{module}", fake)
        if "." not in module:  # it may be loaded already
            monkeypatch.setattr(keras_transformer, module, fake, raising=False)

    def recorded(name, answer=None):
        def function(*arguments, **keywords):
            calls.append((name, arguments, keywords))
            return answer

        return function

    monkeypatch.setattr(console, "start_keras", lambda **_: calls.append("keras"))
    replace("translation.translator", Translator=FakeTranslator)
    replace("translation.loading", load=FakeTranslator.load)
    replace("training.train", train=recorded("train"))
    replace("training", train=None)
    version = pathlib.Path("models/3")
    replace(
        "export",
        export_saved_model=recorded("export", version),
        export_ctranslate2=recorded("ctranslate2", version),
        export_hugging_face=recorded("hugging_face", version),
        facts_of_runs=lambda *given: given,
    )
    drawn = {name: recorded(name) for name in PICTURES}
    replace("plots", check_format=lambda path: None, **drawn)
    tour = types.SimpleNamespace(run=recorded("quickstart"))
    monkeypatch.setitem(sys.modules, "keras_transformer.quickstart.tour", tour)
    monkeypatch.setattr("keras_transformer.quickstart.tour", tour, raising=False)
    return calls


@pytest.fixture
def fake_translator():
    """The class of the translators that `calls` puts in the place of the library's."""
    return FakeTranslator


@pytest.fixture
def run_directory(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return str(path)


@pytest.fixture
def run_directories(tmp_path):
    """Two runs."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.mkdir()
    return [*map(str, paths)]


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


@pytest.fixture
def write_files(tmp_path):
    """Returns a function that writes files `name.txt` and returns their paths."""

    def write_files(**contents):
        paths = []
        for name, content in contents.items():
            path = tmp_path / f"{name}.txt"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            paths.append(str(path))
        return paths

    return write_files


@pytest.fixture
def error_of(capsys):
    """Returns a function that runs the command and returns the one line on standard error."""

    def error_of(expected_code, arguments):
        assert cli.main(arguments) == expected_code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("keras-transformer: ")
        assert captured.err.count("\n") == 1 and captured.err.endswith("\n")
        return captured.err

    return error_of
