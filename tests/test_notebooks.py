"""The notebooks are stored whole, and run.

Running them takes minutes and is marked slow; `make test-notebooks` runs their short form.
"""

import ast
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
REPOSITORY = "keras-transformer/keras_transformer"
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    f"(https://colab.research.google.com/github/{REPOSITORY}/blob/main/notebooks/{{name}})"
)
INSTALL = f"""\
# Installs the package where it is missing, as in Colab, whose TensorFlow stays as it is.
import importlib.metadata
import importlib.util

if importlib.util.find_spec("keras_transformer") is None:
    versions = {{found.name: found.version for found in importlib.metadata.distributions()}}
    kept = [f"{{name}}=={{versions[name]}}" for name in ("tensorflow", "protobuf") if name in versions]
    %pip install --quiet {{" ".join(kept)}} "keras-transformer-translation[notebooks] @ https://github.com/{REPOSITORY}/archive/refs/heads/main.zip"
"""  # noqa: E501
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:work|tmp|var|root|home|usr|opt|content|Users)/")
CHATTER = re.compile(r"oneDNN|cuda|cpu_feature_guard|Warning:|WARNING|^[IWEF]\d{4} ", re.MULTILINE)

each_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def source(cell):
    return "".join(cell["source"])


def code_cells(path, tag=None):
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if tag is None or tag in cell["metadata"].get("tags", [])]


def assigned_names(code):
    """The names that the code assigns, which may do nothing else."""
    names = []
    for statement in ast.parse(code).body:
        assert isinstance(statement, ast.Assign), ast.unparse(statement)
        names += [target.id for target in statement.targets]
    return set(names)


def texts_of(output):
    """The output as text, without pictures."""
    if output["output_type"] == "stream":
        return ["".join(output["text"])]
    return ["".join(text) for kind, text in output["data"].items() if kind.startswith("text/")]


@pytest.fixture(scope="module")
def execute():
    """The module notebooks/execute.py."""
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_notebooks_and_the_readme_lists_them():
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert PATHS
    assert {path.name for path in PATHS} <= set(listed)


@each_notebook
def test_the_first_cells_are_the_title_with_its_badge_and_the_installation(path):
    first, second = read(path)["cells"][:2]
    assert (first["cell_type"], second["cell_type"]) == ("markdown", "code")
    assert source(first).startswith("# ")
    assert BADGE.format(name=path.name) in source(first)
    assert source(second).strip() == INSTALL.strip()


@each_notebook
def test_the_short_form_changes_parameters_that_there_are(path):
    (parameters,) = code_cells(path, "parameters")
    short = read(path)["metadata"]["keras_transformer"]["short"]
    assert assigned_names(short) <= assigned_names(source(parameters))


@each_notebook
def test_tags_are_those_that_execute_knows(path):
    tags = {tag for cell in read(path)["cells"] for tag in cell["metadata"].get("tags", [])}
    assert tags <= {"parameters", "full"}


@each_notebook
def test_every_import_from_the_package_is_there(path):
    """The default tests do not run a notebook, so nothing else would notice a name that moved."""
    found = set()
    for cell in code_cells(path):
        lines = source(cell).splitlines()
        code = "\n".join(re.sub(r"^( *)[%!].*", r"\1pass", line) for line in lines)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_transformer"):
                found |= {(node.module, alias.name) for alias in node.names}
    assert found
    for module, name in sorted(found):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


@each_notebook
def test_claims_are_asserted(path):
    assert any(re.search(r"^ *assert ", source(cell), re.MULTILINE) for cell in code_cells(path))
    assert all("assert " in source(cell) for cell in code_cells(path, "full"))


@each_notebook
def test_it_was_executed_in_order_without_errors(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert "error" not in {output["output_type"] for output in outputs}
    assert any("image/png" in output.get("data", {}) for output in outputs)


@each_notebook
def test_outputs_hold_what_a_reader_wants_to_see(path):
    for cell in code_cells(path):
        for output in cell["outputs"]:
            assert output.get("name") != "stderr", output["text"]
            for text in texts_of(output):
                assert not MACHINE_PATH.search(text), text
                assert not CHATTER.search(text), text


@each_notebook
def test_the_file_is_small_and_its_metadata_are_those_of_any_machine(path, execute):
    notebook = read(path)
    assert path.stat().st_size < 1_500_000
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == execute.stored_metadata(notebook["metadata"])
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)


def test_the_short_form_runs_other_parameters_and_leaves_out_cells(execute):
    nbformat = pytest.importorskip(
        "nbformat", reason="nbformat, of the extra `notebooks`, is missing"
    )
    cells = [
        nbformat.v4.new_code_cell("STEPS = 100", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("loss = train(STEPS)"),
        nbformat.v4.new_code_cell("assert loss < 0.1", metadata={"tags": ["full"]}),
    ]
    metadata = {"keras_transformer": {"short": "STEPS = 1"}}
    notebook = execute.shortened(nbformat.v4.new_notebook(cells=cells, metadata=metadata))
    sources = [cell.source for cell in notebook.cells]
    assert sources == ["STEPS = 100", "STEPS = 1", "loss = train(STEPS)"]


@pytest.mark.slow
@each_notebook
def test_the_whole_notebook_runs(path):
    pytest.importorskip("nbclient", reason="nbclient, of the extra `notebooks`, is missing")
    done = subprocess.run(
        [sys.executable, FOLDER / "execute.py", path.stem], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, reported", [("assert 1 > 2", "AssertionError"), ("import os; os._exit(1)", "died")]
)
def test_a_cell_that_fails_is_reported(code, reported, tmp_path, execute):
    nbformat = pytest.importorskip(
        "nbformat", reason="nbformat, of the extra `notebooks`, is missing"
    )
    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)
    _, error = execute.execute(path, short=False, store=False, num_threads=1)
    assert reported in error
