"""A module is imported as without the hook, whatever else takes part in Python's imports."""

import importlib
import sys

import pytest

from keras_transformer import import_hooks


@pytest.fixture
def import_hooked(tmp_path, monkeypatch):
    """A function that imports a module of `tmp_path` with a hook; returns it and what it ran."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])

    def import_hooked(name, *further_finders):
        executed = []

        def act(execute, module):
            execute(module)
            executed.append(module.__name__)

        sys.meta_path[:0] = further_finders
        import_hooks.around_import(name, act)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name), executed

    return import_hooked


def test_a_module_is_run_by_the_hook_once(tmp_path, import_hooked):
    (tmp_path / "hooked_module.py").write_text("value = 3\n")
    finders = [*sys.meta_path]
    module, executed = import_hooked("hooked_module")
    assert (module.value, executed, sys.meta_path) == (3, ["hooked_module"], finders)
    assert importlib.reload(module).value == 3
    assert executed == ["hooked_module"]


def test_a_folder_without_code_is_imported(tmp_path, import_hooked):
    (tmp_path / "hooked_folder").mkdir()
    module, _ = import_hooked("hooked_folder")
    assert list(module.__path__) == [str(tmp_path / "hooked_folder")]


def test_a_finder_without_find_spec_is_passed_over(tmp_path, import_hooked):
    (tmp_path / "hooked_beside.py").write_text("")
    _, executed = import_hooked("hooked_beside", object())
    assert executed == ["hooked_beside"]


def test_the_module_may_replace_the_finders(tmp_path, import_hooked):
    (tmp_path / "hooked_bold.py").write_text("import sys\ndel sys.meta_path[0]\n")
    _, executed = import_hooked("hooked_bold")
    assert executed == ["hooked_bold"]
