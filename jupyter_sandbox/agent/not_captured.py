"""The kinds of things that a fork does not hold, or shares with its source, and what a user can do about each."""

from __future__ import annotations

Row = dict[str, str]
"""``{"kind", "what", "remedy"}``, the fields of the package's ``NotCaptured``."""

REMEDIES = {
    "thread": "It stops in a fork; end it before the checkpoint and start it again after.",
    "native-thread": "They stop in a fork; libraries that need them may hang until they are told to start new ones.",
    "process": "It stays with the source; wait for it or end it before the checkpoint.",
    "socket": "Both sides would use one connection; close it before the checkpoint and connect again after.",
    "pipe": "Both sides would use one pipe; close it before the checkpoint.",
    "shared-mapping": "Both sides see each other's writes to it; copy it into ordinary memory.",
    "shared-file": "Both sides write to the one file; close it, or keep it in the runtime's directory.",
    "deleted-file": "Both sides use the one file, which cannot be copied; close it, or write to a file that has a name.",
    "sqlite-wal": "Close the connection before the checkpoint, or set PRAGMA journal_mode=DELETE.",
    "device": "Both sides use the one device; close it before the checkpoint.",
    "gpu": "Memory of a GPU cannot be forked; keep to the CPU in a runtime that is checkpointed.",
    "directory": "Its files are shared with the source; keep to the runtime's directory.",
    "kernel-object": "Both sides share it; close it before the checkpoint and make it again after.",
}


def row(kind: str, what: str) -> Row:
    """One thing that was seen, in words a user recognises."""
    return {"kind": kind, "what": what, "remedy": REMEDIES[kind]}
