"""The other threads of this process: whether they ran, and which library owns those that Python does not know."""

from __future__ import annotations

import bisect
import os
import struct
import threading
from typing import NamedTuple

_STACK = 1 << 14  # bytes of a thread's stack that are looked at; the owner's frame is among the first
_NOBODY = ("libc.", "libc-", "libpthread", "ld-linux", "libpython", "python", "libstdc++", "libgcc_s", "libm.")


def run_times() -> dict[int, int]:
    """For each thread but the calling one: its id, and the nanoseconds that it has run (-1 where nobody counts)."""
    found = {}
    for name in os.listdir("/proc/self/task"):
        if int(name) == threading.get_native_id():
            continue
        try:
            with open(f"/proc/self/task/{name}/schedstat", "rb") as file:
                found[int(name)] = int(file.read().split()[0])
        except FileNotFoundError:
            if os.path.exists(f"/proc/self/task/{name}"):
                found[int(name)] = -1
        except ProcessLookupError:
            continue  # it ended while we looked
    return found


class _Code(NamedTuple):
    """A mapping that holds code."""

    start: int
    end: int
    path: str


class CodeMap:
    """Which library an address of code belongs to, at the time of making this."""

    def __init__(self) -> None:
        self._mappings: list[_Code] = []
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/"):
                    start, _, end = fields[0].partition("-")
                    self._mappings.append(_Code(int(start, 16), int(end, 16), fields[5].rstrip("\n")))
        self._starts = [mapping.start for mapping in self._mappings]

    def library(self, address: int) -> str | None:
        """The file whose code is at an address."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._mappings[index].end:
            return self._mappings[index].path
        return None

    def owner(self, thread_id: int) -> str | None:
        """The library that a waiting thread belongs to; None when it runs, or nobody can be found.

        A thread's name says nothing: it is the process's. What called the system call it waits in, says all: the first
        return address on its stack that is neither the C library's nor the interpreter's.
        """
        try:
            with open(f"/proc/self/task/{thread_id}/syscall", encoding="ascii") as file:
                fields = file.read().split()
            if len(fields) < 3:  # "running"
                return None
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                memory.seek(int(fields[-2], 16))
                stack = memory.read(_STACK)
        except OSError:
            return None  # it ended, or this kernel does not show it
        for (word,) in struct.iter_unpack("=Q", stack[: len(stack) // 8 * 8]):
            path = self.library(word)
            if path is not None and not os.path.basename(path).startswith(_NOBODY):
                return path
        return None
