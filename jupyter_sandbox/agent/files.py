"""Files of a runtime: write, read, make, remove, look. Every path stays beneath the runtime's root (see `paths`).

All functions block on the disk and raise `AgentError` only.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import AgentError, os_errors, shown
from .paths import check, opened, opened_directory, opened_parent
from .trees import remove_entry

_MAX_LINKS = 40
_BLOCK = 1 << 20


def write_bytes(root: str, path: str, data: bytes) -> None:
    """
    Write a whole file; readers see the old content or the new, never a part.

    Missing parents are made. A symbolic link is written through. An existing file keeps its permission bits (not its
    set-id bits, owner, or other hard links: it is a new file under the same name).

    Raises:
        AgentError: ``InvalidRequest`` (a bad path, a directory, a fifo, a device), ``Forbidden``, ``StorageFull``.

    """
    here = check(path)
    for _ in range(_MAX_LINKS):
        if here.endswith("/"):
            raise AgentError(
                "InvalidRequest", f"{shown(path)} names a directory", "Leave out the final slash.", field="path"
            )
        with opened_parent(root, here, create=True) as (parent, name), os_errors(path):
            target = _replace(parent, name, path, data)
        if target is None:
            return
        # The link is relative to the directory that holds it; the kernel resolves the joined path beneath the root.
        here = check(target if target.startswith("/") else posixpath.join(posixpath.dirname(here), target))
    raise AgentError(
        "InvalidRequest", f"{shown(path)} goes through too many symbolic links", "Mend the links.", field="path"
    )


def _replace(parent: int, name: str, path: str, data: bytes) -> str | None:
    """Put a file in place of a name; returns where that name links to instead, if it is a symbolic link."""
    mode = None
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        pass  # a new file, with the mode that the umask gives
    else:
        if modes.S_ISLNK(there.st_mode):
            return os.readlink(name, dir_fd=parent)
        _need_regular(there, path)
        # A rename does not ask for this permission; whoever made the file read-only expects that it is asked for.
        if not os.access(name, os.W_OK, dir_fd=parent, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mode = modes.S_IMODE(there.st_mode) & 0o777
    temporary = f".{os.urandom(12).hex()}.part"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=parent)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if mode is not None:
                os.fchmod(fd, mode)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(temporary, dir_fd=parent)
        raise
    return None


def read_bytes(root: str, path: str, limit: int) -> bytes:
    """
    A regular file's bytes.

    Args:
        root: The runtime's root directory.
        path: Relative to it; symbolic links that stay inside are followed.
        limit: The most bytes to read.

    Raises:
        AgentError: ``PathNotFound``, ``InvalidRequest`` (not a regular file), ``TooLarge`` (more than ``limit``).

    """
    with opened_file(root, path) as fd, os_errors(path):
        size = os.fstat(fd).st_size
        pieces: list[bytes] = []
        got = 0
        # A file may grow, and files made by the kernel claim to be empty: read to the end, one byte past the limit.
        while (
            size <= limit and got <= limit and (piece := os.read(fd, min(max(size, 4096) + 1, _BLOCK, limit + 1 - got)))
        ):
            pieces.append(piece)
            got += len(piece)
    if max(size, got) > limit:
        raise AgentError(
            "TooLarge",
            f"{shown(path)} has {max(size, got)} bytes; at most {limit} are read at once",
            "Use export, which streams.",
            limit=limit,
        )
    return b"".join(pieces)


def create_dir_all(root: str, path: str) -> None:
    """
    Make a directory and its parents; one that exists is fine.

    Raises:
        AgentError: ``InvalidRequest`` when a file is in the way.

    """
    with opened_directory(root, path, create=True):
        return


def temp_path(root: str, prefix: str = "tmp", suffix: str = "", *, directory: bool = False) -> str:
    """
    Make a fresh empty file (mode 0600) or directory (0700) in the root; returns its name.

    Raises:
        AgentError: ``InvalidRequest`` when prefix or suffix hold a slash.

    """
    for field, part in (("prefix", prefix), ("suffix", suffix)):
        if "/" in check(f"x{part}"):
            raise AgentError("InvalidRequest", f"the {field} {shown(part)} is no part of a file name", field=field)
    with opened_directory(root, ".") as fd:
        while True:
            name = f"{prefix}{os.urandom(6).hex()}{suffix}"
            try:
                with os_errors(name):
                    if directory:
                        os.mkdir(name, 0o700, dir_fd=fd)
                    else:
                        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd))
            except AgentError as error:
                if error.context.get("errno") != "EEXIST":
                    raise
            else:
                return name


def remove(root: str, path: str) -> None:
    """
    Remove a file, a link (never what it points to) or a whole directory.

    Raises:
        AgentError: ``PathNotFound``; ``InvalidRequest`` for the root itself.

    """
    with opened_parent(root, path) as (parent, name), os_errors(path):
        remove_entry(parent, name)


def stat(root: str, path: str) -> dict[str, Any]:
    """
    What is at a path; a symbolic link is described, not followed.

    Returns:
        The fields of the package's ``FileStat``: path (as given), type (``file``, ``directory``, ``symlink`` or
        ``other``), size in bytes, mode (permission bits), modified_at_ms.

    """
    with opened(root, path, os.O_PATH | os.O_NOFOLLOW) as fd:
        found = os.fstat(fd)
    kinds = {modes.S_IFREG: "file", modes.S_IFDIR: "directory", modes.S_IFLNK: "symlink"}
    return {
        "path": path,
        "type": kinds.get(modes.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mode": modes.S_IMODE(found.st_mode),
        "modified_at_ms": found.st_mtime_ns // 1_000_000,
    }


@contextmanager
def opened_file(root: str, path: str) -> Iterator[int]:
    """A regular file beneath a root, open for reading; anything else is ``InvalidRequest``, and never blocks."""
    with opened(root, path, os.O_PATH) as seen:
        _need_regular(os.fstat(seen), path)  # before opening: to open a fifo or a device is to change it
    with opened(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
        _need_regular(os.fstat(fd), path)  # again: it may have been swapped
        yield fd


def _need_regular(found: os.stat_result, path: str) -> None:
    if modes.S_ISREG(found.st_mode):
        return
    what = {
        modes.S_IFDIR: "a directory",
        modes.S_IFIFO: "a fifo",
        modes.S_IFSOCK: "a socket",
        modes.S_IFCHR: "a device",
        modes.S_IFBLK: "a device",
    }.get(modes.S_IFMT(found.st_mode), "no file")
    raise AgentError("InvalidRequest", f"{shown(path)} is {what}, not a regular file", "Name a file.", field="path")
