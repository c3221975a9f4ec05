"""What a test may not leave behind: processes that serve a state directory."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from jupyter_sandbox.agent.processes import process_id
from jupyter_sandbox.engines.fork.ending import wait_gone
from jupyter_sandbox.rendezvous import read_server_info


def processes_of(directory: Path) -> list[str]:
    """The command lines of live processes that name a path below ``directory``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                continue
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(f"{entry.name} {line}")
    return found


def wait_until_gone(directory: Path, timeout_s: float = 20) -> list[str]:
    """Wait for the last process that serves ``directory``; what is left after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (left := processes_of(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def end_store(store: Path) -> None:
    """End the server of a store in order, remove the store, and wait until nothing that served it is left."""
    info = read_server_info(store)
    server = info and process_id(info.pid)
    if server is not None and server.signal(signal.SIGTERM):
        wait_gone([server])
    remove(store)
    assert wait_until_gone(store) == []


def remove(directory: Path) -> None:
    """Remove a directory in which processes may still write their last."""
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)
