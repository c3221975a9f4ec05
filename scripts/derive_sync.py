"""
Derives the client's sync face from its async one, by names alone.

``python scripts/derive_sync.py`` rewrites ``jupyter_sandbox/client/_sync``; a test compares the two.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "jupyter_sandbox" / "client"
NOTE = "# Derived from {source} by scripts/derive_sync.py: change that, then run this.\n"

# In this order; each is a whole word or a whole line.
RULES = [
    (r"^import asyncio\n", ""),
    (r"\bawait asyncio\.to_thread\(([\w.]+), ", r"\1("),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"Generator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r", Awaitable\b", ""),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\ba(close|closing|read|iter_bytes)\b", r"\1"),
    (r"\bconnect_async\b", "connect"),
    (r"\bclient\._async\b", "client._sync"),
    (r", or cancelled\b", ""),
]


def derive(source: Path) -> str:
    """The sync text of one async module, formatted."""
    text = source.read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    text = NOTE.format(source=source.relative_to(CLIENT.parent.parent).as_posix()) + text
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        name = str(target(source))
        run = [sys.executable, "-m", "ruff", *command, "--stdin-filename", name, "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout
    return text


def target(source: Path) -> Path:
    """Where the sync text of an async module belongs."""
    return CLIENT / "_sync" / source.name


def sources() -> list[Path]:
    """The async modules that have a sync counterpart."""
    return sorted(path for path in (CLIENT / "_async").glob("*.py") if path.name != "__init__.py")


if __name__ == "__main__":
    for path in sources():
        target(path).write_text(derive(path))
