"""A file or directory as a tar stream, made on the fly: no temporary file, and memory that does not grow with the tree."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import tarfile
from collections.abc import Generator, Iterator

from .errors import AgentError, from_os_error, os_errors, shown
from .paths import GONE, check, open_beneath, open_regular_at, opened

CHUNK = 1 << 17
"""Bytes; pieces of the stream have about this size."""

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


def export(root: str, path: str = ".", *, chunk: int = CHUNK) -> Iterator[bytes]:
    """
    A tar (pax format, uncompressed) of what is at a path.

    Members are named from the last name of the path (``data/sub`` gives ``sub/…``); those of the root itself, or of a
    path that ends in ``..``, have no common directory. Names are relative always. Symbolic links are kept as links,
    the one that the path itself may be is followed. Hard links within the tree stay hard links. Sockets, fifos and
    devices are left out, set-id bits and the names of owners too. A file that shrinks while it is read is filled up
    with zeros, of one that grows the rest is left out, what vanishes is left out.

    Args:
        root: The runtime's root directory.
        path: A file or directory beneath it.
        chunk: Bytes that are gathered before a piece is yielded.

    Yields:
        Pieces of the stream. Close the generator to stop early.

    Raises:
        AgentError: From the first step: ``PathNotFound``, ``InvalidRequest``. Later: ``Forbidden`` for what cannot be
            read, since an archive that silently lacks files is worse than none.

    """
    buffer = bytearray()
    for piece in _members(root, path):
        buffer += piece
        if len(buffer) >= chunk:
            yield bytes(buffer)
            buffer.clear()
    buffer += _END
    yield bytes(buffer)


def _members(root: str, path: str) -> Iterator[bytes]:
    top = posixpath.basename(check(path).rstrip("/"))
    top = "" if top in {".", ".."} else top
    with opened(root, path, os.O_PATH) as base:
        found = os.fstat(base)
        if stat.S_ISREG(found.st_mode):
            with opened(root, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
                yield from _file(fd, top, path)
            return
        if not stat.S_ISDIR(found.st_mode):
            raise AgentError(
                "InvalidRequest",
                f"{shown(path)} is neither a file nor a directory",
                "Name a file or a directory.",
                field="path",
            )
        if top:
            yield _header(top, found, tarfile.DIRTYPE)
        yield from _tree(base, top)


def _tree(base: int, top: str) -> Iterator[bytes]:
    """The members below an open directory; directories wait in a list, files do not."""
    first_names: dict[tuple[int, int], str] = {}
    pending = [""]
    while pending:
        below = pending.pop()
        inside = below + "/" if below else ""
        try:
            fd = open_beneath(base, below or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in GONE:
                continue
            raise from_os_error(error, below or top) from error
        try:
            with os_errors(below or "."), os.scandir(fd) as entries:
                for entry in entries:
                    name = f"{top}/{inside}{entry.name}" if top else inside + entry.name
                    if (yield from _entry(fd, entry, name, first_names)):
                        pending.append(inside + entry.name)
        finally:
            os.close(fd)


def _entry(
    dir_fd: int, entry: os.DirEntry[str], name: str, first_names: dict[tuple[int, int], str]
) -> Generator[bytes, None, bool]:
    """The member for one entry of a directory; True for a directory, whose own entries come later."""
    try:
        found = entry.stat(follow_symlinks=False)
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFDIR:
            yield _header(name, found, tarfile.DIRTYPE)
            return True
        if kind == stat.S_IFLNK:
            yield _header(name, found, tarfile.SYMTYPE, link=os.readlink(entry.name, dir_fd=dir_fd))
            return False
        if kind != stat.S_IFREG:
            return False
        if found.st_nlink > 1:
            inode = (found.st_dev, found.st_ino)
            if inode in first_names:
                yield _header(name, found, tarfile.LNKTYPE, link=first_names[inode])
                return False
        fd = open_regular_at(dir_fd, entry.name)
    except OSError as error:
        if error.errno in GONE | {errno.EINVAL}:  # EINVAL: a link that is none any more
            return False
        raise from_os_error(error, name) from error
    if fd is None:
        return False
    if found.st_nlink > 1:
        first_names[inode] = name
    try:
        yield from _file(fd, name, name)
    finally:
        os.close(fd)
    return False


def _file(fd: int, name: str, path: str) -> Iterator[bytes]:
    """Exactly as many bytes as the header says, whatever happens to the file."""
    with os_errors(path):
        found = os.fstat(fd)
        yield _header(name, found, tarfile.REGTYPE, size=found.st_size)
        left = found.st_size
        while left and (data := os.read(fd, min(left, CHUNK))):
            yield data
            left -= len(data)
    while left > CHUNK:
        yield bytes(CHUNK)
        left -= CHUNK
    yield bytes(left + -found.st_size % _BLOCK)


def _header(name: str, found: os.stat_result, kind: bytes, *, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = size
    info.linkname = link
    info.mode = stat.S_IMODE(found.st_mode) & 0o1777
    info.uid, info.gid = found.st_uid, found.st_gid
    info.mtime = int(found.st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
