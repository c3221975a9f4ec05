"""Ending a backend: its worker, what its cells and commands started, its directory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_sandbox.agent.processes import ProcessId, process_id
from jupyter_sandbox.agent.trees import remove_tree
from jupyter_sandbox.engines.fork.environment import MARK
from jupyter_sandbox.engines.fork.layout import identity

_GONE_WAIT_S = 5.0
_LOOK_EVERY_S = 0.002


def end_backend(directory: Path, backend_id: str) -> None:
    """Kill all processes of a backend and remove its directory; one that is gone already is fine.

    Blocking, up to some milliseconds; the killed are reaped by their parents.
    """
    worker = identity(directory)
    ended = [] if worker is None else _kill([worker])
    ended += _kill(_members(worker, f"{MARK}={backend_id}".encode()))
    wait_gone(ended)
    remove_tree(str(directory))


def wait_gone(processes: list[ProcessId]) -> None:
    """Wait until killed processes are really gone (at most some seconds: one may hang in the kernel)."""
    deadline = time.monotonic() + _GONE_WAIT_S
    while any(process.alive() for process in processes) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _kill(processes: Iterator[ProcessId] | list[ProcessId]) -> list[ProcessId]:
    return [process for process in processes if process.signal(signal.SIGKILL)]


def _members(worker: ProcessId | None, mark: bytes) -> Iterator[ProcessId]:
    """Processes of the worker's session, and those that carry its mark in their environment wherever they went."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            found = process_id(int(entry.name))
            in_session = worker is not None and os.getsid(int(entry.name)) == worker.pid
            marked = in_session or mark in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or somebody else's
        if found is not None and marked:
            yield found
