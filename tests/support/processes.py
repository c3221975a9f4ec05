"""What a test may not leave behind: processes that serve a state directory."""

from __future__ import annotations

import time
from pathlib import Path


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
