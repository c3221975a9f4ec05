"""Opening things beneath a directory, whatever the links in it say and whoever changes them meanwhile.

A path of a user is resolved once, by the kernel (``openat2`` with ``RESOLVE_BENEATH``), and what comes out is a file
descriptor; later steps work on descriptors, so that nothing is resolved a second time. Where the kernel has no
``openat2`` (or a filter refuses it), the same rules are kept by walking the path one name at a time.

The rules: a path is relative, is not empty, holds no NUL, and stays beneath the root. ``..`` and symbolic links are
fine as long as they stay inside; absolute links never do. Newlines and other odd characters are legal in names.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

from .errors import AgentError, os_errors, shown

MAX_PATH = 4095
"""Bytes; PATH_MAX without its final NUL."""

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV})
"""What opening an entry that was seen a moment ago gives once it was removed or swapped for something else."""

_OPENAT2 = 437  # one number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40  # as the kernel
_MAX_DEPTH = 256  # of the walk, which holds a descriptor per level
_RACES = 128  # tries while somebody renames directories under us


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_OpenHow),
        ctypes.c_size_t,
    )
    libc.syscall.restype = ctypes.c_long
    return libc


def _openat2(dir_fd: int, path: bytes, flags: int, mode: int) -> int:
    """The system call; errno ``EAGAIN`` means that a rename raced with it."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    fd: int = _libc().syscall(_OPENAT2, dir_fd, path, ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        raise _error(ctypes.get_errno())
    return fd


@cache
def has_openat2() -> bool:
    """Whether the kernel resolves for us (gVisor and some seccomp filters do not)."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(_openat2(root, b".", os.O_PATH | os.O_DIRECTORY, 0))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:
            raise
        return False
    finally:
        os.close(root)
    return True


def check(path: str) -> str:
    """
    Refuse what can be no path beneath a root; returns the path.

    Raises:
        AgentError: ``InvalidRequest``, with ``field`` = ``path``.

    """
    problem = ""
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        problem = "cannot be encoded as a file name"
    else:
        if not path:
            problem = "is empty"
        elif "\0" in path:
            problem = "holds a NUL character"
        elif path.startswith("/"):
            problem = "is absolute"
        elif size > MAX_PATH:
            problem = f"is too long: {size} bytes, at most {MAX_PATH}"
    if problem:
        name = ascii(path) if problem.startswith("cannot") else shown(path)
        raise AgentError(
            "InvalidRequest",
            f"the path {name} {problem}",
            "Give a path below the runtime's working directory.",
            field="path",
        )
    return path


def open_beneath(dir_fd: int, path: str, flags: int, mode: int = 0o666) -> int:
    """
    Open a path that stays beneath an open directory; the descriptor is the caller's and CLOEXEC.

    Args:
        dir_fd: The root of the resolution.
        path: Relative; not checked again here beyond what the kernel checks.
        flags: As for `os.open`.
        mode: For ``O_CREAT``; the umask applies.

    Raises:
        OSError: ``EXDEV`` when the path leads out.

    """
    if not has_openat2():
        return _walk(dir_fd, path, flags, mode)
    for _ in range(_RACES):
        try:
            return _openat2(dir_fd, os.fsencode(path), flags, mode)
        except (BlockingIOError, InterruptedError):
            continue
    raise _error(errno.EBUSY)


def _walk(dir_fd: int, path: str, flags: int, mode: int) -> int:
    """`open_beneath` without ``openat2``: a name at a time, links read by hand, ``..`` by the descriptors we came through."""
    names = _names(path)
    levels = [dir_fd]
    links = 0
    try:
        while True:
            name = names.pop(0)
            last = not names
            if name == "..":
                if len(levels) == 1:
                    raise _error(errno.EXDEV)
                os.close(levels.pop())
                if not last:
                    continue
                name = "."
            follow = not (last and flags & os.O_NOFOLLOW)
            found = _step(levels[-1], name, flags if last else os.O_PATH | os.O_DIRECTORY, mode, follow=follow)
            if isinstance(found, str):
                links += 1
                if found.startswith("/"):
                    raise _error(errno.EXDEV)
                if links > _MAX_LINKS:
                    raise _error(errno.ELOOP)
                names = _names(found) + names
            elif last:
                return found
            else:
                levels.append(found)
                if len(levels) > _MAX_DEPTH:
                    raise _error(errno.ENAMETOOLONG)
    finally:
        for level in levels[1:]:
            os.close(level)


def _step(dir_fd: int, name: str, flags: int, mode: int, *, follow: bool) -> int | str:
    """Open one name, or read it when it is a link to follow."""
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=dir_fd)
    except OSError as error:
        # What a link gives without O_PATH; with O_DIRECTORY it is the second.
        if not follow or error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        try:
            return os.readlink(name, dir_fd=dir_fd)
        except OSError:
            raise error from None
    try:
        if follow and stat.S_ISLNK(os.fstat(fd).st_mode):
            target = os.readlink("", dir_fd=fd)
            os.close(fd)
            return target
    except OSError:
        os.close(fd)
        raise
    return fd


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _names(path: str) -> list[str]:
    """The names of a path; a final slash becomes a final ``.``, which only a directory has."""
    names = [name for name in path.split("/") if name not in {"", "."}]
    return names if names and not path.endswith(("/", "/.")) else [*names, "."]


@contextmanager
def opened(root: str, path: str, flags: int, mode: int = 0o666) -> Iterator[int]:
    """
    A descriptor of a path beneath a root, closed at the end.

    Raises:
        AgentError: The path is bad, leads out, or cannot be opened.

    """
    check(path)
    with _root(root) as root_fd:
        with os_errors(path):
            fd = open_beneath(root_fd, path, flags, mode)
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def opened_directory(root: str, path: str, *, create: bool = False) -> Iterator[int]:
    """A descriptor of a directory beneath a root, made with its parents when ``create``."""
    check(path)
    with _root(root) as root_fd:
        with os_errors(path):
            fd = _directory(root_fd, path, create=create)
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def opened_parent(root: str, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
    """
    The directory that holds the last name of a path (a descriptor), and that name, which is not looked at.

    Raises:
        AgentError: ``InvalidRequest`` when the path ends in ``.`` or ``..``: that names no entry of a directory.

    """
    above, _, name = check(path).rstrip("/").rpartition("/")
    if name in {"", ".", ".."}:
        raise AgentError(
            "InvalidRequest",
            f"the path {shown(path)} does not end in the name of a file or directory",
            "The runtime's working directory itself can be neither replaced nor removed.",
            field="path",
        )
    with _root(root) as root_fd:
        with os_errors(path):
            fd = _directory(root_fd, above or ".", create=create)
        try:
            yield fd, name
        finally:
            os.close(fd)


def open_regular_at(dir_fd: int, name: str) -> int | None:
    """
    An entry of an open directory, open for reading; None when it is no regular file (any more).

    Raises:
        OSError: It cannot be opened.

    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in GONE | {errno.ENXIO}:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


@contextmanager
def _root(root: str) -> Iterator[int]:
    try:
        fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise AgentError(
            "PathNotFound",
            f"the runtime's directory {shown(root)} cannot be opened: {error.strerror}",
            "Restore the runtime from a checkpoint, or make the directory again.",
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _directory(root_fd: int, path: str, *, create: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        return open_beneath(root_fd, path, flags)
    except FileNotFoundError:
        if not create:
            raise
    # Each step starts from the root again: what was just made may have been swapped for a link.
    names = path.split("/")
    above = open_beneath(root_fd, ".", flags)
    for count, name in enumerate(names, 1):
        try:
            if name not in {"", ".", ".."}:
                with suppress(FileExistsError):  # opening it tells whether it is a directory
                    os.mkdir(name, dir_fd=above)
            below = open_beneath(root_fd, "/".join(names[:count]), flags)
        finally:
            os.close(above)
        above = below
    return above
