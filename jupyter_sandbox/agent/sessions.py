"""What commands leave running: processes found again by their session, whose id is the process id of its leader.

The kernel gives no session id twice while a member lives. A session whose leader lives is either a running command
(`commands` ends those) or a stranger's that got an old number, so only sessions without a leader are touched here.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

_POLL_S = 0.02
_KILL_S = 2.0
_ROUNDS = 10


class Member(NamedTuple):
    """A live process (no zombie) of a session."""

    pid: int
    sid: int
    parent: int

    @property
    def command(self) -> str:
        """Its command line, as far as it can be read."""
        return command_line(self.pid)


def command_line(pid: int | str) -> str:
    """A process's arguments, joined by spaces; its short name when it has none; empty when it is gone."""
    for file in ("cmdline", "comm"):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/{file}", "rb") as opened:
            if text := opened.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip():
                return text
    return ""


def background(sids: Collection[int]) -> list[Member]:
    """The processes that ended commands left running, by process id."""
    members = _members(frozenset(sids))
    led = {member.sid for member in members if member.pid == member.sid}
    return [member for member in members if member.sid not in led]


async def end_sessions(sids: Collection[int], *, grace_s: float = 2.0) -> None:
    """End what ended commands left running: SIGTERM, and SIGKILL after ``grace_s`` seconds."""
    loop = asyncio.get_running_loop()
    for number, wait in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)):
        end = loop.time() + wait
        told: set[int] = set()
        while members := background(sids):
            for member in members:
                if member.pid not in told:
                    _signal(member, number)
                    told.add(member.pid)
            if loop.time() >= end:
                break
            await asyncio.sleep(_POLL_S)


def kill_sessions(sids: Collection[int]) -> None:
    """
    SIGKILL, at once, for all that runs in the sessions of our commands: those that run, and what ended ones left.

    For the end of the agent; running commands are not reaped here.
    """
    for _ in range(_ROUNDS):
        members = _members(frozenset(sids))
        # A leader that is no child of ours is a stranger's, which got the number of a session that is over.
        strangers = {member.sid for member in members if member.pid == member.sid and member.parent != os.getpid()}
        ours = [member for member in members if member.sid not in strangers]
        if not ours:
            return
        for member in ours:
            _signal(member, signal.SIGKILL)


def signal_session(leader: int, number: signal.Signals) -> None:
    """
    Signal all processes of the session of a child that has not been reaped yet (so that the id is still its own).

    Those that moved to another process group are found too; those that made a session of their own are not.
    """
    with suppress(ProcessLookupError, PermissionError):  # nobody left; only processes that changed their user
        os.killpg(leader, number)
    for _ in range(_ROUNDS if number == signal.SIGKILL else 1):
        others = [member for member in _members(frozenset({leader})) if _group(member.pid) != leader]
        if not others:
            return
        for member in others:
            _signal(member, number)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _signal(member: Member, number: signal.Signals) -> None:
    """Signal a process if it is still the one that was seen."""
    with suppress(ProcessLookupError, PermissionError):
        try:
            fd = os.pidfd_open(member.pid)
        except OSError as error:
            if error.errno not in {errno.ENOSYS, errno.EPERM}:
                raise
            os.kill(member.pid, number)
            return
        try:
            if os.getsid(member.pid) == member.sid:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _members(sids: frozenset[int]) -> list[Member]:
    found = []
    for name in os.listdir("/proc") if sids else ():
        if not name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{name}/stat", "rb") as file:
            text = file.read()
            state, parent, _group_id, sid = text[text.rindex(b")") + 2 :].split(maxsplit=4)[:4]
            if int(sid) in sids and state not in {b"Z", b"X"}:
                found.append(Member(int(name), int(sid), int(parent)))
    return found
