"""Processes by identity, not by number: a pid is reused, a pid with its start time is not."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from contextlib import suppress
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_EXITS = "exits"

EXIT_CUT_OFF = 70
"""The exit code of a worker that cannot be served any more (EX_SOFTWARE of sysexits.h)."""


class ProcessId(NamedTuple):
    """A process: its pid, and its start time in clock ticks since boot (``/proc/PID/stat``, field 22)."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Whether this very process runs (a zombie does not)."""
        found = _stat(self.pid)
        return found is not None and found.start_time == self.start_time and found.state not in {"Z", "X"}

    def signal(self, number: int) -> bool:
        """Send a signal to this very process; False when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor pins whoever has the pid now; the start time tells whether that is the one meant.
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


class _Stat(NamedTuple):
    state: str
    start_time: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return _Stat(fields[0].decode(), int(fields[19]))


def process_id(pid: int) -> ProcessId | None:
    """The identity of a running process, or None when there is none."""
    found = _stat(pid)
    return None if found is None else ProcessId(pid, found.start_time)


def own_process_id() -> ProcessId:
    """The identity of the calling process."""
    found = process_id(os.getpid())
    if found is None:
        raise OSError("/proc does not show this process; the agent needs it mounted")
    return found


def become_subreaper() -> None:
    """Make this process the parent of its descendants' orphans.

    Raises:
        OSError: The kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def reap(state_dir: str) -> bool:
    """Reap every child that ended and note how, for `exit_sentence`; whether children are left."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if ended is None:
            return True
        _note_exit(state_dir, ended.si_pid, ended.si_status, signaled=ended.si_code != os.CLD_EXITED)
        os.waitpid(ended.si_pid, os.WNOHANG)


def _note_exit(state_dir: str, pid: int, status: int, *, signaled: bool) -> None:
    identity = process_id(pid)
    if identity is None:
        return
    directory = os.path.join(state_dir, _EXITS)
    path = os.path.join(directory, f"{identity.pid}.{identity.start_time}")
    try:
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)  # never its parent: a removed state directory stays removed
        with open(f"{path}.new", "w", encoding="ascii") as file:
            json.dump({"status": status, "signaled": signaled}, file)
        os.replace(f"{path}.new", path)
    except FileNotFoundError:
        return  # the state directory is gone, and with it whoever would ask


def exit_sentence(state_dir: str, identity: ProcessId) -> str | None:
    """How a process ended, in a sentence; None when nobody noted it (yet). The note is taken away."""
    path = os.path.join(state_dir, _EXITS, f"{identity.pid}.{identity.start_time}")
    try:
        with open(path, encoding="ascii") as file:
            note = json.load(file)
        os.unlink(path)
    except FileNotFoundError:
        return None
    if not note["signaled"] and note["status"] == EXIT_CUT_OFF:
        return "its code closed the descriptors that the runtime is served through"
    if not note["signaled"]:
        return f"its process ended by itself with exit code {note['status']}"
    name = signal.Signals(note["status"]).name
    hint = {
        "SIGKILL": " (killed by somebody, or the machine ran out of memory)",
        "SIGSEGV": " (a crash in native code)",
        "SIGABRT": " (a crash in native code)",
        "SIGBUS": " (a crash in native code, or a mapped file that shrank)",
    }.get(name, "")
    return f"its process was ended by {name}{hint}"
