"""What a worker says, as a file: appended by the worker, followed by whoever serves it.

A pipe or socket would block the worker when nobody reads, lose what is said while no server is there, and need a
flushing thread (which must not exist when the worker forks). Appending to a file does none of that: a record is one
``writev`` with O_APPEND, which the kernel keeps whole among threads and the user's own child processes, so no lock is
held over a fork and an interrupt cannot cut a record in two. A byte on the link tells the reader that there is more.

Output at the level of file descriptors 1 and 2 (C code, child processes) goes to two files beside the journal. Each
record notes how long those were when it was written, so the reader puts both in order.

A record is ``stdout_mark:u64 stderr_mark:u64`` and a frame. What was read is given back to the filesystem.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .frames import MAX_FRAME, BrokenFrame, Channel, Frame, decode, encode

_MARKS = struct.Struct("!QQ")
_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 18
_IOV_MAX = 1000  # buffers; writev takes no more
_SMALL = 1 << 12  # bytes; copying these is quicker than telling the kernel where they are
_RELEASE_EVERY = 1 << 22

JOURNAL, STDOUT, STDERR = "journal", "stdout", "stderr"


class JournalLost(Exception):
    """The journal's descriptor is not the journal any more: the user's code closed it, and may have reused it."""


class JournalWriter:
    """The worker's end. ``descriptors`` are the journal's, then those that stand for file descriptors 1 and 2."""

    def __init__(self, directory: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._journal, self.stdout, self.stderr = (
            os.open(os.path.join(directory, name), flags, 0o600) for name in (JOURNAL, STDOUT, STDERR)
        )
        self._identities = [(found.st_dev, found.st_ino) for found in map(os.fstat, self.descriptors)]

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self._journal, self.stdout, self.stderr

    def append(self, channel: Channel, parts: Sequence[bytes | memoryview]) -> None:
        """Write one record.

        Raises:
            OSError: The disk is full; nothing of the record is left.
            JournalLost: The descriptors are somebody else's by now; nothing was written.
        """
        try:
            found = [os.fstat(descriptor) for descriptor in self.descriptors]
        except OSError as error:
            raise JournalLost from error
        if [(each.st_dev, each.st_ino) for each in found] != self._identities:
            raise JournalLost
        marks = _MARKS.pack(found[1].st_size, found[2].st_size)
        buffers: list[bytes | memoryview] = [marks, *encode(channel, parts)]
        wanted = sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in buffers])
        if wanted < _SMALL or len(buffers) > _IOV_MAX:
            written = os.write(self._journal, b"".join(buffers))
        else:
            written = os.writev(self._journal, buffers)
        if written != wanted:
            end = os.lseek(self._journal, 0, os.SEEK_CUR)
            if os.fstat(self._journal).st_size == end:  # nobody wrote behind it
                os.ftruncate(self._journal, end - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), JOURNAL)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


class RawOutput(NamedTuple):
    """Bytes that were written to file descriptor 1 or 2."""

    name: str
    data: bytes


class JournalReader:
    """The server's end: starts behind what is already there.

    Raises:
        OSError: There is no journal in ``directory``.
    """

    def __init__(self, directory: str) -> None:
        self._files = {
            name: os.open(os.path.join(directory, name), os.O_RDWR | os.O_CLOEXEC) for name in (JOURNAL, STDOUT, STDERR)
        }
        self._read = {name: os.fstat(fd).st_size for name, fd in self._files.items()}
        self._released = dict.fromkeys(self._files, 0)

    def poll(self, *, raw: bool) -> Iterator[Frame | RawOutput]:
        """What is new, in order.

        Args:
            raw: Also give descriptor-level output that no record follows yet. Set it when the worker had time to
                write a record and did not: it is in a long call, or idle with children that print.

        Raises:
            BrokenFrame: The journal is damaged; it cannot be followed any more.
        """
        while True:
            head = self._pread(JOURNAL, _MARKS.size + _LENGTH.size)
            if len(head) < _MARKS.size + _LENGTH.size:
                break
            stdout, stderr = _MARKS.unpack_from(head)
            (length,) = _LENGTH.unpack_from(head, _MARKS.size)
            if length > MAX_FRAME:
                raise BrokenFrame(f"a journal record of {length} bytes")
            body = os.pread(self._files[JOURNAL], length, self._read[JOURNAL] + len(head))
            if len(body) < length:  # records appear whole, but be patient with odd filesystems
                break
            yield from self._raw(STDOUT, stdout)
            yield from self._raw(STDERR, stderr)
            self._advance(JOURNAL, len(head) + length)
            yield decode(body)
        if raw:
            for name in (STDOUT, STDERR):
                yield from self._raw(name, os.fstat(self._files[name]).st_size)

    def _raw(self, name: str, mark: int) -> Iterator[RawOutput]:
        while (missing := mark - self._read[name]) > 0:
            data = self._pread(name, min(missing, _PIECE))
            if not data:
                return
            self._advance(name, len(data))
            yield RawOutput(name, data)

    def _pread(self, name: str, size: int) -> bytes:
        return os.pread(self._files[name], size, self._read[name])

    def _advance(self, name: str, size: int) -> None:
        self._read[name] += size
        if self._read[name] - self._released[name] >= _RELEASE_EVERY:
            _punch_hole(self._files[name], 0, self._read[name])
            self._released[name] = self._read[name]

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()


_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def _punch_hole(descriptor: int, start: int, length: int) -> None:
    """Give the range's blocks back; a filesystem that cannot keeps them until the file goes."""
    if _libc.fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, length) != 0:
        number = ctypes.get_errno()
        if number not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM}:
            raise OSError(number, os.strerror(number))
