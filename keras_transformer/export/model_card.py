"""What the model card of an export says: of the runs it comes from, of the model, and its proof."""

import contextlib
import dataclasses
import importlib.metadata
import os
import re
import shlex
from collections.abc import Sequence

import yaml

from keras_transformer.errors import InputError
from keras_transformer.files.model_card import CARD_MARKDOWN, write_card
from keras_transformer.files.version_numbers import PACKAGE_VERSION
from keras_transformer.runs.run import Run
from keras_transformer.translation.evaluation import bleu
from keras_transformer.types import StrPath

LIBRARIES = "tensorflow", "keras", "tensorflow-text", "sentencepiece"
LANGUAGE = re.compile(r"\.([a-z]{2,3}(?:[-_][A-Za-z]{2,4})?)(?:\.(?:txt|gz|xz|bz2|zst))*$")
LOADERS = {
    "saved_model": "a new process that loads it as TensorFlow Serving does, without XLA",
    "ctranslate2": "a new process with CTranslate2, without TensorFlow and Keras; greedy search",
    "hugging_face": "a new process that reads the files with this package; greedy search",
}
UNKNOWN = "not stated"


def facts_of_runs(
    paths: Sequence[StrPath],
    checkpoint: str | None = None,
    adapter: StrPath | None = None,
    languages: Sequence[str] | None = None,
    license: str | None = None,
) -> dict[str, dict[str, str]]:
    """Returns what a model card says of the runs that are exported, a dict of sections.

    Of files, it has the names without directories; the command has relative paths as typed.

    Args:
        paths: list of run directories; several are an ensemble.
        checkpoint: which weights, see `load`; None: those that training chose.
        adapter: path of an adapter that is merged, or None.
        languages: (source, target), such as ("en", "de"); None: the endings of the training files.
        license: str, such as "cc-by-4.0"; None: not stated.
    Raises:
        ValueError: there is no run, or its files are damaged.

    Example:
        about = facts_of_runs(["runs/python"], languages=("en", "de"), license="cc-by-4.0")
        export_saved_model(keras_transformer.load("runs/python"), "export/models/card", about=about)
    """
    run = Run(paths[0])
    config, finished = run.load_config(), run.finished()
    corpora = [*config.data.train, *config.data.valid]
    source, target = languages or _languages_of(corpora)
    identity, num_pairs = run.identity, run.checkpoints.stored_state().num_pairs
    data = {
        "training": _names_of(config.data.train) or _origin_of(config.data),
        "validation": _names_of(config.data.valid) or UNKNOWN,
        "training pairs": f"{num_pairs:,}" if num_pairs else UNKNOWN,
        "SHA-256 of the training pairs": identity.training_text or UNKNOWN,
        "SHA-256 of the validation pairs": identity.validation_text or UNKNOWN,
    }
    facts = {"languages": {"source": source, "target": target}, "data": data}
    chosen = finished and finished["checkpoint"]
    if len(paths) == 1 and adapter is None and chosen and checkpoint in (None, chosen):
        facts["scores"] = _scores_of(finished, config.training.bleu_tokenizer)
    training = {
        "command": _without_directories(identity.command or UNKNOWN),
        "runs": str(len(paths)),
        "weights": checkpoint or chosen or "best",
        "steps": str(finished["step"]) if finished else UNKNOWN,
    }
    for group in ("tokenizer", "training"):
        settings = dataclasses.asdict(getattr(config, group))
        training |= {
            f"{group}.{name}": _shown(value)
            for name, value in settings.items()
            if value is not None
        }
    return {**facts, "training": training, "license": {"license": license or UNKNOWN}}


def write_model_card(directory, settings, model, about=None):
    """Writes the card of a version that is about to appear.

    Args:
        directory: `pathlib.Path` of the version, with all other files.
        settings: dict, those of `write_version`.
        model: the exported model.
        about: dict of sections, see `facts_of_runs`; None: nothing is known of its training.
    """
    about = dict(about or {})
    form, decoding = settings.get("format", "saved_model"), settings["decoding"]
    num_bytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    size = {
        "model": type(model).__name__,
        "format": form,
        "weights": settings.get("weights", "float32"),
        "parameters": f"{model.count_params():,}",
        "files": f"{num_bytes / 1e6:.1f} MB",
    }
    names = "source_vocab_size", "target_vocab_size"
    size |= {name: f"{settings[name]:,}" for name in names if name in settings}
    verification = settings["verification"]
    proof = {
        "loader": LOADERS[form],
        "answers compared with those before the export": str(verification["num_texts"]),
        "answers that differed, within the tolerance": str(verification["num_near_ties"]),
    }
    versions = {"keras-transformer": PACKAGE_VERSION}
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    first = ("languages", "data", "scores")
    card = {
        **{title: about.pop(title) for title in first if title in about},
        "size": size,
        "search": {name: _shown(value) for name, value in decoding.items()},
        "limits": _limits(decoding),
        "proof": proof,
        "versions": versions,
        **about,
    }
    is_hub = form == "hugging_face"
    name = "README.md" if is_hub else CARD_MARKDOWN
    write_card(directory, card, name, _front_matter(card) if is_hub else "")


def _limits(decoding):
    """Returns what the settings of a search say that the model cannot do."""
    limits = {
        "scores": "They are of the validation text alone: other text may be translated worse."
    }
    if "max_source_length" in decoding:
        limits["longest text"] = (
            f"{decoding['max_source_length']} tokens. The rest of a sentence is cut off."
        )
    limits["longest output"] = f"{decoding['max_length']} tokens"
    return limits


def _front_matter(card):
    """Returns what a hub of Hugging Face reads before the text."""
    languages = card.get("languages", {}).values()
    license = card.get("license", {}).get("license", UNKNOWN)
    content = {
        "language": [language for language in languages if language != UNKNOWN],
        **({} if license == UNKNOWN else {"license": license}),
        "library_name": "transformers",
        "pipeline_tag": "translation",
        "tags": ["marian", "translation", "keras-transformer"],
    }
    return f"---\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}---\n\n"


def _scores_of(finished, tokenizer):
    """Returns the scores by validation, with the signature of sacreBLEU."""
    scores = {
        name.removeprefix("val_"): f"{value:.4g}"
        for name, value in finished["metrics"].items()
        if name.startswith("val_")
    }
    with contextlib.suppress(InputError):  # a tokenizer whose packages are not here
        scores["signature of bleu"] = bleu(["a"], ["a"], tokenize=tokenizer, hints=False).signature
    return scores


def _languages_of(corpora):
    """Returns the languages that the names of the files end in."""
    for corpus in corpora:
        found = [LANGUAGE.search(str(side or "")) for side in (corpus.source, corpus.target)]
        if all(found):
            return found[0][1], found[1][1]
    return UNKNOWN, UNKNOWN


def _origin_of(data):
    """Returns the name of text that no files are named for: prepared, or a dataset."""
    return os.path.basename(str(data.prepared or "").rstrip("/")) or data.dataset or UNKNOWN


def _names_of(corpora):
    """Returns the names of the files of corpora, without directories."""
    files = [corpus.tsv or (corpus.source, corpus.target) for corpus in corpora]
    sides = [(file,) if isinstance(file, (str, os.PathLike)) else file for file in files]
    return ", ".join(os.path.basename(str(side)) for pair in sides for side in pair if side)


def _without_directories(command):
    """Returns a command line in which absolute paths are the names of their files."""
    directories = r"(^|[=,:\[{ ])~?/(?:[^/,}\]]*/)*"
    return shlex.join(re.sub(directories, r"\1", word) for word in shlex.split(command))


def _shown(value):
    """Returns a setting as text; a path as the name of its file."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    return os.path.basename(value.rstrip("/")) if isinstance(value, str) else str(value)
