"""Loads a translator from a run directory or an export."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.config import DecodingConfig
from keras_transformer.config.settings import check_known, settings
from keras_transformer.errors import InputError
from keras_transformer.files.version_numbers import SAVED_MODEL, is_version, versions_in
from keras_transformer.types import StrPath

if TYPE_CHECKING:
    from keras_transformer.translation.exported_translator import ExportedTranslator
    from keras_transformer.translation.translator import Translator


def load(
    path: StrPath | Sequence[StrPath],
    checkpoint: str | None = None,
    ensemble: str | None = None,
    adapter: StrPath | None = None,
    alignment_head: tuple[int, int] | None = None,
    **decoding: Any,
) -> "Translator | ExportedTranslator":
    """Returns the translator of a run directory, of an export, or of several runs as one model.

    Args:
        path: run directory, or export directory: one version, or a directory of versions, of which
            the highest is loaded. A list of run directories: the `Ensemble` of their models, with
            the search and the lexicon of the first; their tokenizers must be the same.
        checkpoint: for a run, "best", "last" or "averaged"; None: the best or the averaged weights,
            as the training chose by validation.
        ensemble: "probabilities" or "log_probabilities", the mean that an ensemble predicts, see
            `Ensemble`; None: the first.
        adapter: for a run, the `adapter.npz` of a training with `training.lora_rank` that began
            from its weights: it is merged into them. None: nothing is.
        alignment_head: for a run, see `Translator`; None: the head that was trained to align
            (`training.guided_alignment`), if there is one.
        decoding: fields of `DecodingConfig` that replace the run's own. The search of an export is
            fixed: another value is refused.
    Returns:
        `Translator`, or the `SavedModelTranslator` or `CTranslate2Translator` of an export.
    Raises:
        ValueError: the path is neither a run nor an export, or the arguments choose the checkpoint
            or the head or change the search of an export; runs of different tokenizers, or an
            export among several paths.

    Example:
        load("runs/python", beam_size=1)("A dog runs.")
    """
    for name in decoding:
        check_known(name, settings(DecodingConfig), "a setting of the search")
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if adapter is not None and (len(paths) != 1 or is_version(paths[0]) or versions_in(paths[0])):
        raise InputError(
            f"Expected one run with an adapter. Received: adapter={adapter} and path="
            f"{', '.join(map(str, paths))}. Name the run alone; `export --adapter` exports both."
        )
    if len(paths) != 1 or ensemble is not None:
        return _load_ensemble(paths, checkpoint, ensemble, alignment_head, decoding)
    path = pathlib.Path(paths[0])
    if not is_version(path) and not versions_in(path):
        from keras_transformer.runs import load_run

        found = load_run(path, checkpoint, adapter)
        return _translator(path, found, alignment_head, decoding)
    if alignment_head is not None:
        raise InputError(
            "Expected no choice of a head with an export, in which it is fixed. Received: "
            f"alignment_head={alignment_head}. Leave it out, or load the run."
        )
    if checkpoint is not None:
        raise InputError(
            "Expected no choice of weights with an export, which holds one set of weights. "
            f"Received: checkpoint={checkpoint!r}. Leave it out, or load the run."
        )
    path = version_path(path)
    translator = _load_version(path)
    for name, value in decoding.items():
        exported = getattr(translator.decoding, name)
        if value != exported:
            raise InputError(
                "Expected the search that is fixed in the export. "
                f"Received: {name}={value}, exported with {name}={exported}. "
                "Leave it out, or translate with the run."
            )
    return translator


def load_export(path: StrPath, num_threads: int | None = None) -> "ExportedTranslator":
    """Returns the translator of an export, whatever its format.

    Args:
        path: directory of one version, or of versions, of which the highest is loaded.
        num_threads: number of threads that translate; None: one for each core. Where each core has
            a process of its own, as in Beam, Ray and Spark, it is 1.
    Returns:
        `SavedModelTranslator` or `CTranslate2Translator`.
    Raises:
        ValueError: `path` is not an export of a translator, or it is damaged.

    Example:
        load_export("export/models/translator", num_threads=1)("A dog runs.")
    """
    return _load_version(version_path(path), num_threads)


def version_path(path: StrPath) -> pathlib.Path:
    """Returns the directory of the version that `load_export` loads.

    Args:
        path: directory of one version, or of versions, of which the highest is meant.
    Raises:
        ValueError: there is no export at `path`.
    """
    path = pathlib.Path(path)
    if is_version(path):
        return path
    versions = versions_in(path)
    if not versions:
        raise InputError(
            f"Expected an export of a translator. Received: {path}, where there is none. "
            "Check the name, or write one: keras-transformer export RUN DIR"
        )
    return versions[max(versions)]


def _load_ensemble(paths, checkpoint, ensemble, alignment_head, decoding):
    from keras_transformer.runs.load import load_ensemble

    if len(paths) < 2:
        raise InputError(
            f"Expected the directories of several runs for an ensemble. Received: path={paths}, "
            f"ensemble={ensemble!r}. Name more runs, or leave ensemble out."
        )
    for path in map(pathlib.Path, paths):
        if is_version(path) or versions_in(path):
            raise InputError(
                f"Expected runs for an ensemble. Received: {path}, an export. Name the run that it "
                "was made from."
            )
    options = {} if ensemble is None else {"mean": ensemble}
    loaded = load_ensemble(paths, checkpoint, **options)
    return _translator(paths[0], loaded, alignment_head, decoding)


def _translator(path, loaded, alignment_head, decoding):
    """Returns the `Translator` of what `load_run` or `load_ensemble` has loaded."""
    from keras_transformer.layers.decoder import ALIGNMENT_HEAD, alignment_layer
    from keras_transformer.translation.lexicon import load_lexicon
    from keras_transformer.translation.translator import Translator

    *parts, config = loaded
    search = dataclasses.replace(config.decoding, **decoding)
    lexicon = load_lexicon(path) if search.shortlist else None
    if alignment_head is None and config.training.guided_alignment is not None:
        alignment_head = alignment_layer(parts[0].cross_heads[0]), ALIGNMENT_HEAD
    return Translator(*parts, search, lexicon=lexicon, alignment_head=alignment_head)


def _load_version(path, num_threads=None):
    """Returns the translator of one version of an export, by its format."""
    if (path / SAVED_MODEL).exists():
        from keras_transformer.translation.saved_model_translator import SavedModelTranslator

        return SavedModelTranslator(path, num_threads)
    from keras_transformer.translation.exported_translator import CTranslate2Translator

    return CTranslate2Translator(path, num_threads)
