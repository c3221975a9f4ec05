"""Starts one of the agent's processes: ``python …/agent ROLE ARGUMENT…``.

Run by path, in interpreters where the package is not installed: the modules are loaded under a private package name,
and the directory they lie in does not stay importable for the user's code.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PACKAGE = "_jupyter_sandbox_agent"
ROLES = {
    "keeper": ("keeper", "main"),
    "template": ("frozen", "serve_template"),
    "ops": ("ops", "main"),
    "search": ("searcher", "main"),
}


def load(module: str) -> object:
    """A module of this directory, as part of the private package."""
    directory = os.path.dirname(os.path.abspath(__file__))
    if PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            PACKAGE, os.path.join(directory, "__init__.py"), submodule_search_locations=[directory]
        )
        if spec is None or spec.loader is None:
            raise ImportError(directory)
        package = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != directory]
    return importlib.import_module(f"{PACKAGE}.{module}")


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    name, function = ROLES[role]
    sys.argv[:] = [f"jupyter-sandbox-{role}"]
    getattr(load(name), function)(*arguments)
