"""What a fork of this very process would not hold, or would share with it: looked for just before a checkpoint.

Runs inside the runtime's process, between cells, in a few milliseconds: it reads ``/proc/self`` and asks modules that
are loaded already. It imports nothing and changes nothing.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from . import descriptors
from .not_captured import Row, row
from .sessions import command_line
from .threads import CodeMap, run_times

_SAFE_OWNERS = ("openblas",)
"""Libraries that start their threads anew in a fork by themselves."""

_WRITABLE_SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) .w.s \S+ \S+ \S+ *(.*)$", re.MULTILINE)


def scan(root: str, *, ours: Collection[int] = (), own_pids: Collection[int] = ()) -> list[Row]:
    """
    What was seen and is not captured.

    Args:
        root: The runtime's root directory, which a checkpoint copies.
        ours: Descriptors of the agent itself.
        own_pids: Child processes of the agent itself.

    Returns:
        Rows (kinds in `not_captured`), the same thing never twice; empty when a fork holds all there is.

    """
    root = os.path.realpath(root)
    opened = descriptors.descriptors(frozenset(ours))
    databases = descriptors.wal_databases(opened)
    mappings, mapped = _mappings(databases)
    rows = [*_python_threads(), *_native_threads(), *_children(own_pids), *_gpu(), *_working_directory(root), *mappings]
    rows += descriptors.rows(root, opened, databases, mapped)
    return list({(each["kind"], each["what"]): each for each in rows}.values())


def quiescent(run_times_before: Mapping[int, int], *, own_pids: Collection[int] = ()) -> bool:
    """
    Whether nothing but the calling thread can have changed this process's memory or files since an earlier moment.

    Tasks of an event loop are the caller's business.

    Args:
        run_times_before: `threads.run_times` at that moment, when no thread was Python's; a thread of a library that
            has not run since has changed nothing.
        own_pids: Child processes of the agent itself.

    """
    now = run_times()
    if threading.active_count() > 1 or now != run_times_before or -1 in now.values():
        return False
    return not any(alive for pid, alive in _child_pids() if pid not in own_pids)


def _python_threads() -> Iterator[Row]:
    spared = {threading.main_thread(), threading.current_thread()}
    for thread in threading.enumerate():
        if thread not in spared:
            yield row("thread", f"thread {thread.name}{' (daemon)' if thread.daemon else ''}")


def _native_threads() -> Iterator[Row]:
    known = {thread.native_id for thread in threading.enumerate()} | {threading.get_native_id(), os.getpid()}
    unknown = [int(task) for task in os.listdir("/proc/self/task") if int(task) not in known]
    if not unknown:
        return
    code = CodeMap()
    owners = Counter(os.path.basename(code.owner(thread) or "") for thread in unknown)
    for owner, count in sorted(owners.items()):
        if not any(name in owner for name in _SAFE_OWNERS):
            threads = f"{count} thread{'s' if count > 1 else ''} of "
            yield row("native-thread", threads + (owner or "native code"))


def _children(own_pids: Collection[int]) -> Iterator[Row]:
    for pid, alive in _child_pids():
        if pid not in own_pids:
            yield row("process", f"process {pid} ({command_line(pid)}){'' if alive else ', ended and not waited for'}")


def _child_pids() -> list[tuple[int, bool]]:
    """Our children: process id, and whether it still runs."""
    pids: list[int] = []
    if os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children"):
        for task in os.listdir("/proc/self/task"):
            with (
                suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/self/task/{task}/children", "rb") as file,
            ):
                pids += [int(pid) for pid in file.read().split()]
    else:  # a kernel without that list
        pids += [int(name) for name in os.listdir("/proc") if name.isdigit()]
    children = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
            state, parent = text[text.rindex(b")") + 2 :].split(maxsplit=2)[:2]
            if int(parent) == os.getpid():
                children.append((pid, state not in {b"Z", b"X"}))
    return children


def _gpu() -> Iterator[Row]:
    """CUDA, as far as a module that is loaded knows; open devices are seen by their descriptors."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if callable(asked := getattr(cuda, "is_initialized", None)) and asked():
        yield row("gpu", "CUDA is initialised (torch)")


def _working_directory(root: str) -> Iterator[Row]:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        yield row("directory", "the process's current directory, which was deleted")
        return
    if os.path.commonpath([root, here]) != root:
        yield row("directory", f"the process's current directory {here}, outside the runtime's")


def _mappings(databases: Collection[str]) -> tuple[list[Row], frozenset[str]]:
    """Writable shared memory, and the paths that are mapped so."""
    with open("/proc/self/maps", "rb") as file:
        text = file.read()
    if b"w-s " not in text and b"wxs " not in text:  # as good as always; the expression takes milliseconds
        return [], frozenset()
    sizes: Counter[str] = Counter()
    for start, end, path in _WRITABLE_SHARED.findall(text):
        sizes[os.fsdecode(path)] += int(end, 16) - int(start, 16)
    rows = []
    for path, size in sorted(sizes.items()):
        name = path.removesuffix(" (deleted)")
        if name.endswith("-shm") and name.removesuffix("-shm") in databases:
            continue  # sqlite's; the database has a row of its own
        if name.startswith("/dev/nvidia"):
            rows.append(row("gpu", "a GPU is in use"))
        elif name in {"", "/dev/zero"} or name.startswith("[anon_shmem"):
            rows.append(row("shared-mapping", f"shared anonymous memory, {_mib(size)}"))
        elif name.startswith("/dev/") and not name.startswith("/dev/shm/"):  # noqa: S108 nothing is made there
            rows.append(row("device", name))
        elif not name.startswith("anon_inode:"):  # its descriptor has a row
            rows.append(row("shared-mapping", f"{name.removeprefix('/memfd:')}, {_mib(size)}"))
    return rows, frozenset(path for path in sizes if path)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
