from __future__ import annotations

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from jupyter_sandbox.agent.processes import ProcessId, exit_sentence, own_process_id, process_id, reap


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_alive_until_it_is_a_zombie(sleeper):
    identity = process_id(sleeper.pid)
    assert identity.alive()
    assert identity.signal(signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()


def test_a_reused_pid_is_never_signalled(sleeper):
    before = process_id(sleeper.pid)
    stranger = ProcessId(sleeper.pid, before.start_time - 1)
    assert not stranger.alive()
    assert not stranger.signal(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_process_that_never_was_is_gone():
    assert process_id(2**22 - 1) is None
    assert not ProcessId(2**22 - 1, 1).signal(signal.SIGTERM)


def test_own_process_id_is_ours():
    assert own_process_id().pid == os.getpid()
    assert own_process_id().alive()


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (lambda: os._exit(3), "its process ended by itself with exit code 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its process was ended by SIGKILL (killed by somebody"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "its process was ended by SIGSEGV (a crash in native code)"),
    ],
)
def test_how_a_child_ended_is_noted_once(tmp_path, end, sentence):
    # In a process of its own: reap takes every child, and pytest has some.
    readable, writable = os.pipe()
    parent = os.fork()
    if parent == 0:
        faulthandler.disable()  # a crash is the point
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        child = os.fork()
        if child == 0:
            end()
        identity = process_id(child)
        deadline = time.monotonic() + 20
        while reap(str(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.005)
        os.write(writable, b"%d %d" % identity)
        os._exit(0)
    os.waitpid(parent, 0)
    identity = ProcessId(*map(int, os.read(readable, 100).split()))
    os.close(readable)
    os.close(writable)
    assert exit_sentence(str(tmp_path), identity).startswith(sentence)
    assert exit_sentence(str(tmp_path), identity) is None
