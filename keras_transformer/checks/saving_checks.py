"""Whether a saved model is the same in another process, and the files of an export as written."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from keras_transformer.checks.model_checks import difference
from keras_transformer.checks.verdicts import MISSING, check, failed, held, not_applicable
from keras_transformer.files.checksums import check_export
from keras_transformer.files.version_numbers import EXPORT_SETTINGS, PACKAGE_VERSION, is_version

PROGRAM = """
import importlib, sys
import numpy as np, keras
folder, *modules = sys.argv[1:]
for module in modules:
    importlib.import_module(module)
model = keras.models.load_model(f"{folder}/model.keras")
from keras_transformer.checks import Subject
arrays = np.load(f"{folder}/inputs.npz")
subject = Subject(model, list(arrays["names"]) or None)
np.save(f"{folder}/logits.npy", subject.logits(**{k: arrays[k] for k in arrays if k != "names"}))
"""


@check("save and load")
def save_and_load(subject):
    """A new process has nothing but the file, so what is missing in it shows there alone."""
    ids = subject.random_ids()
    expected = subject.logits(**ids)
    with tempfile.TemporaryDirectory() as folder:
        subject.model.save(f"{folder}/model.keras")
        np.savez(f"{folder}/inputs.npz", names=np.array(subject.names, "U"), **ids)
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder, *subject.modules],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
        )
        if process.returncode:
            ended = f"it ended with exit code {process.returncode}"  # without a word, if killed
            lines = [line for line in process.stderr.splitlines() if line.strip()] or [ended]
            return failed(
                f"a new process cannot load it: {lines[-1].strip()[:200]}",
                "Register its classes (keras.saving.register_keras_serializable), and return all "
                "arguments of the constructor from get_config.",
            )
        largest = difference(np.load(f"{folder}/logits.npy"), expected)
    if largest > subject.tolerance:
        return failed(
            f"in a new process the logits differ by {largest:.1e}",
            "A layer keeps weights where Keras does not find them, or get_config leaves out an "
            "argument.",
        )
    return held(f"largest difference {largest:.1e} in a new process")


@check("files", needs="path")
def files(subject):
    """An export is what was proved only while its files are."""
    if not is_version(subject.path):
        return not_applicable(MISSING["path"])
    try:
        check_export(subject.path)
    except ValueError as error:
        return failed(str(error), "Copy the export again.")
    settings = json.loads(pathlib.Path(subject.path, EXPORT_SETTINGS).read_text())
    version = settings["keras_transformer"]
    if version != PACKAGE_VERSION:
        return failed(
            f"exported by {version}, checked by {PACKAGE_VERSION}",
            "Export the run again, or check it with the version that exported it.",
        )
    return held(f"checksums are right, exported by {version}")
