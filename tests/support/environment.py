"""Jupyter directories of a test's own, so that no test sees or changes the user's."""

from __future__ import annotations

import os
from pathlib import Path

_DIRECTORIES = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
_NOT_INHERITED = ("JUPYTER_SANDBOX_", "JUPYTER_TOKEN", "JUPYTERHUB_", "JPY_")


def jupyter_directories(root: Path) -> dict[str, str]:
    """The environment variables that move Jupyter below ``root``."""
    return {
        **{name: str(root / directory) for name, directory in _DIRECTORIES.items()},
        "JUPYTER_SANDBOX_STORE": str(root / "store"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }


def process_environment(root: Path) -> dict[str, str]:
    """The environment of a server process below ``root``: nothing of another server is inherited."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return {**inherited, **jupyter_directories(root), "PYTHONUNBUFFERED": "1"}
