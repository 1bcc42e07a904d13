"""Makes a `Subject` of a run, of an export, or of what a function of the user returns."""

import importlib
import os
import pathlib
import sys

import keras

from keras_transformer.checks.subject import Subject
from keras_transformer.data import ParallelCorpus, TranslationBatches
from keras_transformer.data.parallel import CorpusSummary
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import is_version, versions_in

BATCH_PAIRS, BATCH_TOKENS = 100, 1024


def load_subject(name, texts=None, say=print):
    """Returns the `Subject` that a name stands for.

    Args:
        name: directory of a run or of an export, or `MODULE:FACTORY`, a function without arguments
            that returns a Keras model or a `Subject`. The module may lie in the working directory.
        texts: sentences for the checks of text, a list for each side; None: those of a run.
        say: called with a line about text that is not there.
    Raises:
        InputError: there is nothing of this name.
    """
    if pathlib.Path(name).is_dir():
        subject = _subject_of_export if is_version(name) or versions_in(name) else _subject_of_run
        return subject(name, texts, say)
    module, separator, factory = name.rpartition(":")
    if not separator:
        raise InputError(
            "Expected the directory of a run or of an export, or MODULE:FACTORY, such as "
            f"my_models:small. Received: {name}. Check the name."
        )
    made = _factory(module, factory)()
    if isinstance(made, keras.Model):
        made = Subject(made)
    if not isinstance(made, Subject):
        raise InputError(
            f"Expected a Keras model or a Subject from {name}. Received: {type(made).__name__}. "
            "Return one of them."
        )
    made.modules = [*made.modules, module]
    made.texts = texts or made.texts
    return made


def _factory(module, name):
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise InputError(
            f"Expected a function of a module that can be imported. Received: {module}:{name}: "
            f"{error}. Check the name, and the working directory."
        ) from None


def _subject_of_run(path, texts, say):
    from keras_transformer.runs.load import load_run
    from keras_transformer.runs.run import Run
    from keras_transformer.training.translation_task import (
        training_text_of_run,
        validation_text_of_run,
    )

    model, *tokenizers, config = load_run(path)
    train_texts, batch = (), None
    if texts is None:
        run, texts = Run(path), ()
        try:
            validation = validation_text_of_run(run, config, say)
            training = training_text_of_run(run, config, say)
            texts = validation.source, validation.target
            if isinstance(training, ParallelCorpus):  # prepared text has none
                train_texts = training.source, training.target
        except ValueError as error:
            say(f"the checks of text are left out: {error}")
    if len(texts) == 2:
        few = [list(side[:BATCH_PAIRS]) for side in texts]
        corpus = ParallelCorpus(*few, CorpusSummary(len(few[0])))
        batches = TranslationBatches(corpus, *tokenizers, BATCH_TOKENS, config.data.max_length)
        batch = next(batches.arrays())
    return Subject(
        model,
        batch=batch,
        tokenizers=tokenizers,
        texts=texts,
        train_texts=train_texts,
        max_length=config.data.max_length,
        path=path,
    )


def _subject_of_export(path, texts, say):
    from keras_transformer.translation.loading import load_export, version_path

    return Subject(None, texts=texts or (), translator=load_export(path), path=version_path(path))
