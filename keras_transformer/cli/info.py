"""`keras-transformer info`: what to paste into a report of a fault."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform

from keras_transformer.cli import console
from keras_transformer.cli.arguments import check_exists
from keras_transformer.config.settings import NUM_CORES, processor_features
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import PACKAGE_VERSION, is_version, versions_in

SUMMARY = "show versions, devices, and what a run, an export or prepared text is, for a report"
LIBRARIES = (
    *("tensorflow", "tensorflow-text", "keras", "numpy", "sentencepiece", "protobuf"),
    *("jax", "torch", "ctranslate2", "transformers"),
)
VARIABLES = ("KERAS_BACKEND", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_ENABLE_ONEDNN_OPTS")


def add_arguments(parser):
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a run, an export or prepared text"
    )


def run(arguments):
    if arguments.model is not None:
        check_exists(arguments.model, "a run, an export or prepared text")
    console.start_keras()
    import keras

    lines = {"keras-transformer": PACKAGE_VERSION, "python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines[name] = importlib.metadata.version(name)
    lines |= {
        "backend": keras.backend.backend(),
        "devices": ", ".join(_devices(keras.backend.backend())),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": f"{NUM_CORES} of {os.cpu_count()}, {processor_features() or 'features unknown'}",
        **{name: os.environ[name] for name in VARIABLES if name in os.environ},
        **({} if arguments.model is None else _model(arguments.model)),
    }
    width = max(map(len, lines)) + 2
    console.print_result("\n".join(f"{name:{width}}{lines[name]}" for name in lines), "all is read")


def _devices(backend):
    """Returns the names of the devices that the backend of Keras can use."""
    if backend == "torch":  # for which Keras has no list
        import torch

        return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or ["cpu:0"]
    import keras

    return keras.distribution.list_devices()


def _model(path):
    """Returns what a run, an export or prepared text is, as a dict of lines."""
    if not is_version(path) and not versions_in(path):
        return _run(path)
    from keras_transformer.files.model_card import read_card
    from keras_transformer.files.regular import read_regular
    from keras_transformer.files.version_numbers import EXPORT_SETTINGS
    from keras_transformer.translation.loading import version_path

    version = version_path(path)
    try:
        settings = json.loads(read_regular(version, EXPORT_SETTINGS, "the settings of an export"))
    except ValueError as error:
        raise InputError(
            f"Expected an export of this package. Received: {version}: {error}. Export it again."
        ) from None
    shown = {name: json.dumps(value) for name, value in settings.items()}
    card = {
        f"card: {title}": ", ".join(f"{label}: {value}" for label, value in facts.items())
        for title, facts in read_card(version).items()
    }
    return {"export": f"version {version.name}", **shown, **card}


def _run(path):
    from keras_transformer.config import Config
    from keras_transformer.data.shards import MANIFEST
    from keras_transformer.runs.run import Run

    run = Run(path)
    if not run.exists and (run.path / MANIFEST).exists():
        return _prepared(run.path)
    if not run.exists:
        raise InputError(
            "Expected the directory of a run, of an export or of prepared text. Received: "
            f"{path}, which is none of them. Check the name."
        )
    config = dataclasses.asdict(Config.load(run.config_path))
    steps = [checkpoint.name for checkpoint in run.checkpoints.all()]
    lines = {"run": ", ".join(steps[-1:]) or "no checkpoint"}
    for group in ("model", "tokenizer", "training", "decoding"):
        lines[group] = _settings(config[group])
    return lines


def _prepared(path):
    from keras_transformer.data.shards import Manifest

    manifest = Manifest.load(path)
    return {
        "prepared": manifest.summary,
        "shards": len(manifest.shards),
        "checksum": manifest.checksum(),
        "tokenizer": _settings(dataclasses.asdict(manifest.tokenizer)),
    }


def _settings(group):
    """Returns the settings of a group that have a value, in one line."""
    return " ".join(f"{k}={v}" for k, v in group.items() if v not in (None, ""))
