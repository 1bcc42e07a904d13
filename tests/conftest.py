"""What tests of several folders share. Only the fixtures that need TensorFlow import it."""

import contextlib
import fcntl
import gc
import importlib
import os
import random
import sys
import types

import pytest

from tests import forked

gc.disable()  # while all is imported
if "PYTEST_XDIST_WORKER" in os.environ:  # each has about one core
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

SENTENCE_PAIRS = [
    ("A dog runs.", "Ein Hund läuft."),
    ("A cat sleeps.", "Eine Katze schläft."),
    ("The dog sees the cat.", "Der Hund sieht die Katze."),
    ("The cat does not see the dog.", "Die Katze sieht den Hund nicht."),
    ("Two dogs run in the park.", "Zwei Hunde laufen im Park."),
    ("Two children are playing with a red ball.", "Zwei Kinder spielen mit einem roten Ball."),
    ("A man reads a book.", "Ein Mann liest ein Buch."),
    ("The old man has read the book.", "Der alte Mann hat das Buch gelesen."),
    ("A woman is singing.", "Eine Frau singt."),
    ("The woman in the green coat is waiting for the bus.",
     "Die Frau im grünen Mantel wartet auf den Bus."),
    ("Where is the bus?", "Wo ist der Bus?"),
    ("The bus is not here!", "Der Bus ist nicht hier!"),
    ("Three men are standing on a bridge.", "Drei Männer stehen auf einer Brücke."),
    ("Tomorrow we will drive to the sea.", "Morgen werden wir ans Meer fahren."),
    ("I do not know whether she will come.", "Ich weiß nicht, ob sie kommen wird."),
    ("She says that the child is tired.", "Sie sagt, dass das Kind müde ist."),
    ("A small boy is eating an apple.", "Ein kleiner Junge isst einen Apfel."),
    ("The girl gives the boy a book.", "Das Mädchen gibt dem Jungen ein Buch."),
    ("Do you see the red house?", "Siehst du das rote Haus?"),
    ("The house stands on a hill.", "Das Haus steht auf einem Hügel."),
    ("People are walking on the street.", "Leute gehen auf der Straße."),
    ("A young woman with long hair is riding a horse along the beach.",
     "Eine junge Frau mit langen Haaren reitet auf einem Pferd den Strand entlang."),
    ("The horse is brown.", "Das Pferd ist braun."),
    ("Yesterday it rained.", "Gestern hat es geregnet."),
    ("The children were wet, but happy.", "Die Kinder waren nass, aber glücklich."),
    ("A musician plays the guitar in front of a large crowd.",
     "Ein Musiker spielt vor einer großen Menge Gitarre."),
    ("The crowd is listening.", "Die Menge hört zu."),
    ("He opens the window.", "Er öffnet das Fenster."),
    ("It is cold, so she closes the door.", "Es ist kalt, also schließt sie die Tür."),
    ("Nobody was at home.", "Niemand war zu Hause."),
    ("Water!", "Wasser!"),
]  # fmt: skip


def pytest_collection_finish():
    """Collects garbage less often: looking at all of TensorFlow's objects anew takes time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def silent_waits():
    """Commands of these processes never say that they wait, however busy the machine is."""
    from keras_transformer.cli import progress

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "FIRST_SECONDS", 3600.0)
        yield


@pytest.fixture
def network(monkeypatch):
    """What looks like a network, for data sets that TFDS mocks."""
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [])


@pytest.fixture(scope="session")
def sentence_pairs():
    """(English, German) sentences, of 1 to 14 words."""
    return SENTENCE_PAIRS


@pytest.fixture(scope="session")
def tokenizer(sentence_pairs):
    """A SentencePiece BPE tokenizer of 150 pieces, shared by the two languages of the pairs."""
    from keras_transformer.tokenizers import SentencePieceTokenizer

    sentences = [text for pair in sentence_pairs for text in pair]
    return SentencePieceTokenizer.train(sentences, vocab_size=150)


@pytest.fixture(scope="session")
def corpus(sentence_pairs):
    """The sentence pairs as a `ParallelCorpus`."""
    from keras_transformer.data import ParallelCorpus

    return ParallelCorpus.from_pairs(sentence_pairs)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that makes a directory once for all processes of pytest-xdist."""

    def made_once(name, make):
        base = tmp_path_factory.getbasetemp()
        base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        with open(base / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (base / name).exists():
                partial = base / f"{name}.partial"
                partial.mkdir()
                make(partial)
                partial.rename(base / name)
        return base / name

    return made_once


@pytest.fixture(scope="session")
def translator(tokenizer, sentence_pairs, made_once):
    """Trained for seconds: knows most of the pairs by heart, so that answers differ and end."""
    import keras
    import tensorflow as tf

    from keras_transformer.config import DecodingConfig
    from keras_transformer.models import Transformer
    from keras_transformer.translation.translator import Translator

    def new_model():
        sizes = dict(num_layers=1, d_model=32, ff_dim=48, num_heads=2)
        return Transformer(tokenizer.vocab_size, **sizes, dropout=0.0, normalize_first=True)

    def train(directory):
        random.seed(1)  # Keras draws the initializers' seeds from it
        source_texts, target_texts = zip(*sentence_pairs, strict=True)
        source_ids, _ = tokenizer.encode_padded(source_texts, 100)
        labels, _ = tokenizer.encode_padded(target_texts, 100)
        labels = labels.numpy()
        target_ids = labels.copy()
        target_ids[:, 1:], target_ids[:, 0] = labels[:, :-1], 2  # 2 starts a translation
        model, loss = new_model(), keras.losses.SparseCategoricalCrossentropy(True)
        model.compile(keras.optimizers.Adam(0.01), loss)
        inputs = {"source_ids": source_ids.numpy(), "target_ids": target_ids}
        whole = tf.data.Dataset.from_tensors((inputs, labels, labels != 0)).repeat(60)
        model.fit(whole, verbose=0)  # 60 epochs of one step would take longer
        model.save_weights(directory / "model.weights.h5")

    model = new_model()
    model.build()
    model.load_weights(made_once("translator", train) / "model.weights.h5")
    decoding = DecodingConfig(beam_size=3, max_length=60, max_source_length=50)
    # a head of its own aligns words, which an export must keep
    return Translator(model, tokenizer, decoding=decoding, alignment_head=(0, 1))


@pytest.fixture(scope="session")
def forking():
    """A context in which a module starts its Python processes as forks, which have TensorFlow.

    For what needs another process, but not a fresh one: `exported` is verified in a fresh one.
    """

    def run(command, *, input, env=None, **captured):
        assert command[0] == sys.executable and captured.pop("encoding") == "utf-8"
        assert captured == {"capture_output": True}
        return forked.run(command[1:], input=input)

    @contextlib.contextmanager
    def forking(module):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "subprocess", types.SimpleNamespace(run=run))
            yield

    return forking


@pytest.fixture(scope="session")
def exported(translator, made_once):
    """The path of an export of the translator, with its two best translations."""
    from keras_transformer.export import export_saved_model

    made = made_once("exports", lambda path: export_saved_model(translator, path, n_best=2))
    return made / "1"


@pytest.fixture(scope="session")
def exported_translator(exported):
    """The export, read back into Python."""
    from keras_transformer.translation.loading import load

    return load(exported.parent)


@pytest.fixture(scope="session")
def exported_ctranslate2(translator, made_once):
    """The path of an export of the translator for CTranslate2, with its two best translations."""
    from keras_transformer.export import export_ctranslate2

    made = made_once("ctranslate2", lambda path: export_ctranslate2(translator, path, n_best=2))
    return made / "1"


@pytest.fixture(scope="session")
def texts(sentence_pairs):
    """64 texts of many lengths: known sentences, unknown words, blanks and one that is too long."""
    sources = [source for source, _ in sentence_pairs]
    swapped = [f"{b} {a.lower()}" for a, b in zip(sources, sources[1:], strict=False)]
    odd = ["", " \t\u3000", "zebra \U0001f44d\U0001f3fd мир"]
    return [*sources[:30], *odd, *swapped, " ".join(sources)]


@pytest.fixture(scope="session")
def first_checks():
    """The checks before a first step, which trainings leave out: they take as long as the steps."""
    module = importlib.import_module("keras_transformer.training.train")
    names = module.FIRST_CHECKS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIRST_CHECKS", ())
        yield names


@pytest.fixture(scope="session")
def run_eagerly():
    """Whether a few steps take less time eagerly: JAX compiles each of their operations alone."""
    import keras

    return keras.backend.backend() != "jax"


@pytest.fixture(scope="session")
def compiling_nothing(run_eagerly):
    """A context for models that are called a few times, and searches of few steps."""
    import keras

    from keras_transformer import backend

    def compile_nothing(function, variables=()):
        return lambda *tensors: function(*map(keras.ops.convert_to_tensor, tensors))

    @contextlib.contextmanager
    def compiling_nothing():
        with pytest.MonkeyPatch.context() as patch:
            if run_eagerly:
                patch.setattr(backend, "compile_function", compile_nothing)
            yield

    return compiling_nothing


@pytest.fixture
def eagerly(compiling_nothing):
    """Compiles nothing in a test."""
    with compiling_nothing():
        yield


def pytest_terminal_summary(terminalreporter):
    """Reports what tests have counted, as near-ties, with `record_property`."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value} ({report.nodeid})")
