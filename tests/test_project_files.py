"""What stands around the code: the addresses in all files, the version, the citation."""

import configparser
import importlib
import pathlib
import re
import subprocess
import sys

import pytest

import keras_transformer

ROOT = pathlib.Path(__file__).parents[1]
TEXT = {".cff", ".cfg", ".ipynb", ".md", ".py", ".svg", ".toml", ".yaml", ".yml"}
FOLDERS = ("benchmarks", "docs", "export", "keras_transformer", "notebooks", "tests", "tools")
OURS = re.compile(r"[\w.-]*keras[-_]transformer[\w.-]*", re.IGNORECASE)


def files():
    """The files with text, without what is built or ignored."""
    roots = [ROOT.glob("*"), *((ROOT / folder).rglob("*") for folder in FOLDERS)]
    return [path for root in roots for path in root if path.is_file() and path.suffix in TEXT]


def metadata():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    pairs = config["metadata"]["project_urls"].strip().splitlines()
    urls = dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in pairs)
    return config["metadata"], urls


def addresses_in(text):
    """The addresses of the project in a text, without the place on the page."""
    for url in re.findall(r"https?://[^\s\"'<>)\]}`\\]+", text):
        if OURS.search(url):
            yield url.partition("#")[0].rstrip(".,;:")


def test_all_files_use_the_addresses_of_the_metadata():
    metadata_, urls = metadata()
    source = urls["Source"]
    owner_and_name = source.removeprefix("https://github.com/")
    allowed = (
        source,
        urls["Documentation"].rstrip("/"),
        f"https://raw.githubusercontent.com/{owner_and_name}/main/",
        f"https://colab.research.google.com/github/{owner_and_name}/blob/main/",
    )
    assert metadata_["url"] == source
    found = [(path, url) for path in files() for url in addresses_in(path.read_text("utf-8"))]
    assert len({path.name for path, _ in found}) >= 3  # setup.cfg, CITATION.cff and more
    wrong = [
        (path.relative_to(ROOT), url)
        for path, url in found
        if not any(url == base or url.startswith(base.rstrip("/") + "/") for base in allowed)
    ]
    assert not wrong


def test_addresses_of_files_in_the_repository_name_files():
    _, urls = metadata()
    owner_and_name = urls["Source"].removeprefix("https://github.com/")
    to_a_file = re.compile(
        rf"https://(?:github\.com/{owner_and_name}/(?:blob|tree)/main"
        rf"|raw\.githubusercontent\.com/{owner_and_name}/main"
        rf"|colab\.research\.google\.com/github/{owner_and_name}/blob/main)/([^#?]+)"
    )
    named = [
        (path.relative_to(ROOT), match.group(1))
        for path in files()
        for url in addresses_in(path.read_text("utf-8"))
        if (match := to_a_file.fullmatch(url))
    ]
    assert named
    assert not [(path, name) for path, name in named if not (ROOT / name).exists()]


def test_the_long_description_has_no_link_that_works_in_the_repository_alone():
    readme = (ROOT / "README.md").read_text("utf-8")
    prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)", prose) + re.findall(
        r"(?:src|href)=\"([^\"]+)", prose
    )
    assert targets
    assert not [target for target in targets if not re.match(r"https?://|#|mailto:", target)]


def test_the_version_stands_in_the_package_alone():
    metadata_, _ = metadata()
    module, _, name = metadata_["version"].removeprefix("attr: ").rpartition(".")
    assert getattr(importlib.import_module(module), name) == keras_transformer.__version__
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", changes, re.MULTILINE)
    assert released[0] == keras_transformer.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert not re.search(r"^version:", citation, re.MULTILINE)


def test_the_citation_is_valid():
    pytest.importorskip("check_jsonschema", reason="it brings the schema: pip install '.[dev]'")
    schema = ["--builtin-schema", "vendor.citation-file-format"]
    command = [sys.executable, "-m", "check_jsonschema", *schema, "CITATION.cff"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
