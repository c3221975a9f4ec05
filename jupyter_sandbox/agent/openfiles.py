"""Open files over a fork: offsets un-shared, files of the working directory re-pointed to the fork's copy.

A fork shares open file descriptions, and with them the offset: what one side reads the other skips. Opening
``/proc/self/fd/N`` anew and putting the result in N's place gives each side its own.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import NamedTuple

_KEPT_FLAGS = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DSYNC | os.O_DIRECT | os.O_NOATIME
_DELETED = " (deleted)"


class OpenFile(NamedTuple):
    """A regular file that is open.

    Attributes:
        descriptor: Its number.
        path: Absolute, as the kernel tells it; empty when the file has been deleted.
        flags: Access mode and status flags for `os.open`.
        offset: In bytes.
    """

    descriptor: int
    path: str
    flags: int
    offset: int


def open_files(ours: frozenset[int]) -> list[OpenFile]:
    """The regular files that this process has open, without ``ours`` and the standard three."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor <= 2 or descriptor in ours:
            continue
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # the listing's own descriptor
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & _KEPT_FLAGS
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
        gone = path.endswith(_DELETED) or path.startswith("/memfd:")
        found.append(OpenFile(descriptor, "" if gone else path, flags, offset))
    return found


def unshare(files: list[OpenFile]) -> None:
    """Give this process offsets of its own.

    Raises:
        OSError: A file cannot be opened anew (its permissions changed since).
    """
    for file in files:
        _replace(file, f"/proc/self/fd/{file.descriptor}")


def repoint(files: list[OpenFile], old_root: str, new_root: str) -> None:
    """Open the files again, those below ``old_root`` at their place below ``new_root``.

    A file that has no copy there (it was deleted before the checkpoint) stays the one that it is, with an offset of
    its own.

    Raises:
        OSError: A file cannot be opened anew.
    """
    for file in files:
        target = moved(file.path, old_root, new_root)
        if target is not None and os.path.exists(target):
            _replace(file, target)
        else:
            _replace(file, f"/proc/self/fd/{file.descriptor}")


def moved(path: str, old_root: str, new_root: str) -> str | None:
    """Where a path below one root is below another; None when it is elsewhere."""
    if not old_root or not (path == old_root or path.startswith(old_root + "/")):
        return None
    return new_root + path[len(old_root) :]


def _replace(file: OpenFile, path: str) -> None:
    inheritable = os.get_inheritable(file.descriptor)
    fresh = os.open(path, file.flags | os.O_CLOEXEC)
    try:
        os.lseek(fresh, file.offset, os.SEEK_SET)
        os.dup2(fresh, file.descriptor, inheritable=inheritable)
    finally:
        os.close(fresh)
