"""The open descriptors of this process that a fork would share with its source. Looks, and touches nothing."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .not_captured import Row, row

_HARMLESS_DEVICES = {(1, minor) for minor in (3, 5, 7, 8, 9)} | {(5, minor) for minor in (0, 1, 2)}
"""null, zero, full, random, urandom; tty, console, ptmx."""

_PTY_MAJORS = range(136, 144)
_KERNEL_OBJECTS = {
    "eventpoll": "an epoll queue",
    "eventfd": "an event counter (eventfd)",
    "inotify": "a file watch (inotify)",
    "fanotify": "a file watch (fanotify)",
    "timerfd": "a timer (timerfd)",
    "signalfd": "a signal queue (signalfd)",
    "io_uring": "an io_uring queue",
}
_DELETED = " (deleted)"


@dataclass(frozen=True)
class Descriptor:
    """An open descriptor, as ``/proc/self/fd`` names it."""

    fd: int
    path: str
    found: os.stat_result

    @property
    def writable(self) -> bool:
        """Whether it is open for writing."""
        return fcntl.fcntl(self.fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def descriptors(ours: Collection[int]) -> list[Descriptor]:
    """What is open, except for what is the agent's own."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        if int(name) in ours:
            continue
        try:
            found.append(Descriptor(int(name), os.readlink(f"/proc/self/fd/{name}"), os.fstat(int(name))))
        except OSError:  # the descriptor of this listing itself, or one that another thread has just closed
            continue
    return found


def wal_databases(opened: Collection[Descriptor]) -> frozenset[str]:
    """The paths of open files that have a write-ahead log of sqlite beside them."""
    paths = {each.path for each in opened if stat.S_ISREG(each.found.st_mode)}
    return frozenset(path for path in paths if f"{path}-wal" in paths or os.path.exists(f"{path}-wal"))


def rows(root: str, opened: Collection[Descriptor], databases: Collection[str], mapped: Collection[str]) -> list[Row]:
    """
    The rows for open descriptors.

    Args:
        root: The runtime's directory, without links in its path.
        opened: From `descriptors`.
        databases: From `wal_databases`.
        mapped: Paths that have a row already, as shared memory.

    """
    found = [row("sqlite-wal", f"sqlite database {_short(path, root)} in WAL mode") for path in sorted(databases)]
    logs = {f"{path}{suffix}" for path in databases for suffix in ("", "-wal", "-shm")}
    pipes = _pipe_ends(opened)
    for each in opened:
        kind = stat.S_IFMT(each.found.st_mode)
        if kind == stat.S_IFSOCK:
            found.append(row("socket", _socket(each.fd)))
        elif kind == stat.S_IFIFO:
            found.append(row("pipe", _pipe(each, pipes)))
        elif kind in {stat.S_IFCHR, stat.S_IFBLK}:
            found += _device(each, kind)
        elif kind == stat.S_IFDIR and _inside(each.path, root):
            found.append(row("directory", f"open directory {_short(each.path, root)} (the source's, also in a fork)"))
        elif kind == stat.S_IFREG and each.path not in logs and each.path not in mapped:
            found += _file(each, root)
        elif not kind and each.path.startswith("anon_inode:"):
            found += _kernel_object(each)
    return found


def _file(each: Descriptor, root: str) -> Iterator[Row]:
    if each.path.startswith("/memfd:"):
        yield row("shared-mapping", f"memory file {each.path.removeprefix('/memfd:').removesuffix(_DELETED)!r}")
    elif not each.found.st_nlink:
        yield row("deleted-file", f"{_short(each.path.removesuffix(_DELETED), root)}, deleted and still open")
    elif each.writable and not _inside(each.path, root):
        yield row("shared-file", f"{each.path}, open for writing")


def _device(each: Descriptor, kind: int) -> Iterator[Row]:
    major, minor = os.major(each.found.st_rdev), os.minor(each.found.st_rdev)
    if each.path.startswith("/dev/nvidia"):
        yield row("gpu", "a GPU is in use")
    elif kind == stat.S_IFBLK or not ((major, minor) in _HARMLESS_DEVICES or major in _PTY_MAJORS):
        yield row("device", each.path)


def _kernel_object(each: Descriptor) -> Iterator[Row]:
    name = each.path.removeprefix("anon_inode:").strip("[]")
    if name != "pidfd":  # a name for a process, and true in a fork as well
        yield row("kernel-object", f"{_KERNEL_OBJECTS.get(name, name)} (descriptor {each.fd})")


def _pipe_ends(opened: Collection[Descriptor]) -> dict[str, set[bool]]:
    ends: dict[str, set[bool]] = {}
    for each in opened:
        if stat.S_ISFIFO(each.found.st_mode):
            ends.setdefault(each.path, set()).add(each.writable)
    return ends


def _pipe(each: Descriptor, ends: dict[str, set[bool]]) -> str:
    if each.path.startswith("/"):
        return f"fifo {each.path}"
    number = each.path.removeprefix("pipe:").strip("[]")
    if len(ends[each.path]) == 2:
        return f"pipe {number} within the process"
    return f"pipe {number} {'to' if each.writable else 'from'} another process"


def _socket(fd: int) -> str:
    """What a socket is connected to, in words."""
    blocking = os.get_blocking(fd)
    try:
        opened = socket.socket(fileno=fd)
    except OSError as error:
        return f"a socket that cannot be looked at: {error.strerror}"
    try:
        if os.get_blocking(fd) != blocking:  # socket.setdefaulttimeout() is about new sockets, and this is none
            os.set_blocking(fd, blocking)
        return _describe(opened)
    finally:
        opened.detach()


def _describe(opened: socket.socket) -> str:
    family = opened.family
    kind = {socket.AF_INET: "", socket.AF_INET6: "", socket.AF_UNIX: "unix "}.get(family, f"{_family(family)} ")
    own = _address(opened.getsockname())
    try:
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f"{kind}socket that listens on {own}"
        peer = _address(opened.getpeername())
    except OSError:  # not connected
        return f"{kind}socket bound to {own}" if own else f"{kind}socket, not connected"
    if peer or own:
        return f"{kind}connection to {peer or f'a peer of {own}'}"
    return f"one end of a {kind}socket pair (descriptor {opened.fileno()})"


def _family(family: int) -> str:
    return family.name if isinstance(family, socket.AddressFamily) else f"family {family}"


def _address(address: object) -> str:
    if isinstance(address, bytes):
        return "@" + address.decode("utf-8", "replace").lstrip("\0") if address else ""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address)


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _short(path: str, root: str) -> str:
    """A path as the user knows it: relative to the runtime's directory when it is in there."""
    return os.path.relpath(path, root) if _inside(path, root) else path
