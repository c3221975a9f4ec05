"""Where engine fork keeps things: one directory for each template, live backend and frozen snapshot.

::

    <state_dir>/
        keeper  process.json  keeper.log      the keeper's socket and identity
        templates/<key>/    frozen  process.json  log
        live/<backend_id>/  link  ops  process.json  journal  stdout  stderr   files/
        frozen/<snapshot_id>/  frozen  process.json   files/
        exits/              how processes ended, until somebody asks
"""

from __future__ import annotations

import json
from pathlib import Path

from jupyter_sandbox.agent.frozen import IDENTITY
from jupyter_sandbox.agent.processes import ProcessId


class Layout:
    """The paths below one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir
        self.live = state_dir / "live"
        self.frozen = state_dir / "frozen"
        self.templates = state_dir / "templates"
        for directory in (self.live, self.frozen, self.templates):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def live_dir(self, backend_id: str) -> Path:
        """A live backend's directory."""
        return self.live / backend_id

    def frozen_dir(self, snapshot_id: str) -> Path:
        """A snapshot's directory."""
        return self.frozen / snapshot_id


def files_dir(directory: Path) -> Path:
    """The working directory's files in a live backend's or a snapshot's directory."""
    return directory / "files"


def identity(directory: Path) -> ProcessId | None:
    """Which process serves a directory, alive or not; None when none ever said so."""
    try:
        found = json.loads((directory / IDENTITY).read_text())
        return ProcessId(int(found["pid"]), int(found["start_time"]))
    except (OSError, ValueError, KeyError):
        return None
