"""What commands left is found by session, ended on request, and nobody else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from jupyter_sandbox.agent import sessions
from jupyter_sandbox.agent.sessions import background, command_line, end_sessions, kill_sessions, signal_session


@pytest.fixture
def left():
    """A session whose leader has ended, with one process that ignores SIGTERM and one that does not."""
    script = "(trap '' TERM; echo ready; while :; do sleep 300; done) & (exec sleep 301 >&- 2>&-) & wait -n 2>/dev/null; exit 0"
    leader = subprocess.Popen(
        ["sh", "-c", script.replace("wait -n 2>/dev/null; ", "")], start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout.readline() == b"ready\n"
    leader.wait()
    yield leader.pid
    kill_sessions({leader.pid})
    leader.stdout.close()


async def test_background_and_its_end(left):
    found = background({left, 2**22})
    assert {member.sid for member in found} == {left}
    while "sleep 301" not in [member.command for member in background({left})]:
        pass
    await end_sessions({left}, grace_s=0.2)
    assert background({left}) == []


def test_nothing_is_found_for_nothing():
    assert background(()) == []


def test_a_session_with_a_living_leader_is_not_background():
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as leader:
        assert background({leader.pid}) == []
        signal_session(leader.pid, signal.SIGTERM)
        assert leader.wait() == -signal.SIGTERM


def test_kill_sessions_spares_strangers(left):
    script = "import subprocess; p = subprocess.Popen(['sleep', '300'], start_new_session=True); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        stranger = int(other.stdout.readline())
        with subprocess.Popen(["sleep", "300"], start_new_session=True) as running:
            kill_sessions({left, running.pid, stranger})
            assert running.wait() == -signal.SIGKILL
        assert background({left}) == []
        os.kill(stranger, 0)
        assert other.poll() is None
        os.kill(stranger, signal.SIGKILL)


def test_without_pidfds(left, monkeypatch):
    def refuse(_pid, _flags=0):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    kill_sessions({left})
    assert sessions.background({left}) == []


def test_command_lines():
    assert command_line(os.getpid()).startswith(sys.executable) or "python" in command_line(os.getpid())
    assert command_line(2**22 + 1) == ""
