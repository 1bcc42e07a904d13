"""Acts when another library is imported, whoever imports it.

Only what Python has loaded already is imported here, so that `import keras_transformer` takes no
time.
"""

import importlib.abc
import sys


def around_import(name, act):
    """Lets `act(execute, module)` import a module that is not imported yet.

    Args:
        name: str, the top-level module.
        act: called once, when the module is imported; `execute(module)` runs the module's code.
    """
    sys.meta_path.insert(0, _Finder(name, act))


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module, and `act` run it."""

    def __init__(self, name, act):
        self._name = name
        self._act = act

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        # Python, too, passes over a finder without this method
        find_specs = (each.find_spec for each in others if hasattr(each, "find_spec"))
        specs = (find_spec(name, path, target) for find_spec in find_specs)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:  # None: a folder without code
            execute = spec.loader.exec_module

            def act(module):
                self._act(execute, module)
                if self in sys.meta_path:  # somebody may have replaced the list
                    sys.meta_path.remove(self)  # only now: `find_spec` alone imports nothing

            spec.loader.exec_module = act
        return spec
