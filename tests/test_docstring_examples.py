"""The examples in the docstrings run as they stand."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest

import keras_transformer

PACKAGE = pathlib.Path(keras_transformer.__file__).parent
SLOW = (  # they write SavedModels, or load one, as the example of `load_export` does
    *("keras_transformer.export", "keras_transformer.serving"),
    "keras_transformer.translation.saved_model_translator",
)
EXAMPLE = re.compile(r"^ *(?:Example:\n|(?=>>>))(.*)", re.MULTILINE | re.DOTALL)


def examples():
    """Yields `(module, name, code)` of each example, with its prompts where it has any."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found = EXAMPLE.search(ast.get_docstring(node) or "")
                if found:
                    name = getattr(node, "name", "")
                    marks = [pytest.mark.slow] if module.startswith(SLOW) else []
                    yield pytest.param(module, found[1], id=f"{module}:{name}", marks=marks)


class Checker(doctest.OutputChecker):
    def check_output(self, want, got, flags):
        if not want:  # an example that shows how something is called, not what it returns
            return True
        got = re.sub(r"(torch.Size|TensorShape)\(\[(.*)\]\)", r"(\2)", got)  # shapes are tuples
        return super().check_output(want, got, flags)


@pytest.fixture(scope="module")
def directory(translator, exported, exported_ctranslate2, sentence_pairs, tmp_path_factory):
    """A directory with a run, exports and prepared text, where examples look for them."""
    from keras_transformer.config import Config
    from keras_transformer.runs import Run
    from keras_transformer.training.prepare import prepare

    path = tmp_path_factory.mktemp("examples")
    shutil.copytree(exported, path / "export/models/translator/1")
    shutil.copytree(exported_ctranslate2, path / "export/models/fast/1")
    sizes = "num_layers", "d_model", "ff_dim", "num_heads", "dropout", "normalize_first"
    model, tokenizer = translator.model, translator.tokenizer
    run = Run(path / "runs/python")
    config = Config(model={name: getattr(model, name) for name in sizes})
    run.create(config, tokenizer, tokenizer)
    model.save_weights(run.averaged_path)
    run.finished_path.write_text(
        '{"step": 1, "limit": "max_steps", "value": 1, "reason": "", "checkpoint": "averaged",'
        ' "metrics": {}}'
    )
    table, model_path = path / "pairs.tsv", run.tokenizer_path / "tokenizer.model"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in sentence_pairs), encoding="utf-8")
    text = {"data": {"train": [{"tsv": str(table)}]}, "tokenizer": {"model": str(model_path)}}
    prepare(Config().merged(text), path / "prepared", 1, write=str)
    return path


@pytest.fixture(scope="module")
def names(translator, sentence_pairs):
    """What the examples speak of."""
    import tensorflow as tf

    # some examples train the model, with which tests of the same process compare their exports
    shared, tokenizer = translator.model, translator.tokenizer
    model = type(shared).from_config(shared.get_config())
    model.build()
    model.set_weights(shared.get_weights())
    translator = keras_transformer.Translator(model, tokenizer, decoding=translator.decoding)
    corpus = keras_transformer.data.ParallelCorpus.from_pairs(sentence_pairs[:4])
    batches = keras_transformer.data.TranslationBatches(corpus, tokenizer)
    return {
        "np": np,
        "keras": keras,
        "keras_transformer": keras_transformer,
        "translator": translator,
        "reverse": translator,
        "model": model,
        "tokenizer": tokenizer,
        "load": keras_transformer.load,
        "config": translator.decoding,
        "corpus": corpus,
        "batches": batches.dataset(repeat=False),
        "source": corpus.source[:3],
        "references": corpus.target[:3],
        "dataset": tf.data.Dataset.from_tensor_slices((corpus.source, corpus.target)),
    }


@pytest.fixture
def eager():
    """Functions run eagerly: most are called once, and tracing them takes longer."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports need TensorFlow")
@pytest.mark.parametrize("module, code", list(examples()))
def test_an_example_runs(module, code, names, directory, monkeypatch, eager):
    monkeypatch.chdir(directory)
    # an example before this one may have compiled the model with settings of its own
    names["model"].compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    code = inspect.cleandoc("\n" + code)
    subpackages = keras_transformer.layers, keras_transformer.models
    for namespace in (*subpackages, importlib.import_module(module)):
        names = {**names, **vars(namespace)}
    if ">>>" not in code:
        exec(compile(code, module, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, names, module, None, None)
    assert test.examples
    assert doctest.DocTestRunner(Checker()).run(test).failed == 0


def test_every_public_layer_and_model_has_an_example():
    for subpackage in (keras_transformer.layers, keras_transformer.models):
        for name in subpackage.__all__:
            member = getattr(subpackage, name)
            if inspect.isclass(member) and issubclass(member, keras.layers.Layer):
                assert ">>>" in member.__doc__, name
