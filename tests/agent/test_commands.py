"""Commands end when they should, with all that they started, and never hold up or lose what they wrote."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict

import pytest

from jupyter_sandbox.agent import commands
from jupyter_sandbox.agent.errors import AgentError

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid):
    while alive(pid):
        await asyncio.sleep(0.01)
    return True


class Run:
    """One command: its output collected, and events for what it said."""

    def __init__(self, root, **how):
        self.output = defaultdict(bytes)
        self.said = asyncio.Event()
        self.sid = None
        how = {"env": ENV, "root": str(root), "on_output": self.on_output, "on_start": self.on_start} | how
        self.task = asyncio.ensure_future(commands.run(**how))

    async def on_output(self, stream, data):
        self.output[stream] += data
        self.said.set()

    def on_start(self, sid):
        self.sid = sid

    def __await__(self):
        return self.task.__await__()

    async def number(self):
        """The number that it prints first."""
        while b"\n" not in self.output["stdout"]:
            self.said.clear()
            await self.said.wait()
        return int(self.output["stdout"].split()[0])


@pytest.fixture(params=["pidfd", "polled"], autouse=True)
def how_the_end_is_seen(request, monkeypatch):
    if request.param == "polled":

        def refuse(_pid, _flags=0):
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)


async def test_output_exit_code_and_environment(tmp_path):
    run = Run(tmp_path, shell='echo "$A" >&2; printf "%s" "$HOME$B"; exit 7', env={**ENV, "A": "é", "B": "x=y"})
    assert await run == (7, False)
    assert run.output == {"stdout": b"x=y", "stderr": "é\n".encode()}


async def test_argv_is_no_shell(tmp_path):
    run = Run(tmp_path, argv=["printf", "%s|", "a b", "$HOME", "", "é", "\udcff"])
    assert await run == (0, False)
    assert run.output["stdout"] == b"a b|$HOME||\xc3\xa9|\xff|"


async def test_signals_are_negative_codes(tmp_path):
    assert await Run(tmp_path, shell="kill -9 $$") == (-9, False)


async def test_it_has_a_session_and_no_descriptor_of_ours(tmp_path):
    run = Run(tmp_path, argv=["cut", "-d ", "-f1,6", "/proc/self/stat"])
    await run
    pid, sid = map(int, run.output["stdout"].split())
    assert pid == sid == run.sid != os.getsid(0)
    run = Run(tmp_path, argv=["ls", "/proc/self/fd"])
    await run
    assert run.output["stdout"].split() == [b"0", b"1", b"2", b"3"]  # the last is what ls reads


async def test_the_directory(tmp_path):
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/out").symlink_to("..")
    (tmp_path / "root/d/tool").write_text("#!/bin/sh\npwd -P")
    (tmp_path / "root/d/tool").chmod(0o755)
    run = Run(tmp_path / "root", argv=["./tool"], cwd="d")
    await run
    assert run.output["stdout"].decode().strip() == str((tmp_path / "root/d").resolve())
    for cwd, code in (
        ("gone", "PathNotFound"),
        ("..", "InvalidRequest"),
        ("out", "InvalidRequest"),
        ("/", "InvalidRequest"),
    ):
        with pytest.raises(AgentError) as caught:
            await Run(tmp_path / "root", shell="true", cwd=cwd)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ({"argv": ["no-such-program-here"]}, "InvalidRequest", "no-such-program-here"),
        ({"argv": ["./plain"]}, "InvalidRequest", "Permission denied"),
        ({"argv": ["./format"]}, "InvalidRequest", "Exec format error"),
        ({"argv": ["./script"]}, "InvalidRequest", "interpreter"),
        ({"argv": ["."]}, "InvalidRequest", "Permission denied"),
        ({"argv": ["a\0b"]}, "InvalidRequest", "null"),
        ({"argv": ["a", "\ud800"]}, "InvalidRequest", "encode"),
        ({"shell": "true", "env": {"A=B": "c"}}, "InvalidRequest", "environment"),
        ({"argv": ["true", "x" * 200_000]}, "TooLarge", "too long"),
        ({"argv": []}, "InvalidRequest", "exactly one"),
        ({"argv": ["true"], "shell": "true"}, "InvalidRequest", "exactly one"),
        ({}, "InvalidRequest", "exactly one"),
    ],
)
async def test_what_cannot_start(tmp_path, how, code, text):
    (tmp_path / "plain").write_text("echo")
    for name, content in (("format", b"\x7fELF junk"), ("script", b"#!/no/such/interpreter\n")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AgentError, match=text) as caught:
        await Run(tmp_path, **how)
    assert caught.value.code == code
    assert len(os.listdir("/proc/self/fd")) == before


async def test_stdin(tmp_path):
    data = os.urandom(3_000_000)
    run = Run(tmp_path, argv=["cat"], stdin=data)
    assert await run == (0, False)
    assert run.output["stdout"] == data
    run = Run(tmp_path, argv=["cat"])
    assert await run == (0, False)
    assert run.output["stdout"] == b""


async def test_stdin_of_a_program_that_does_not_read(tmp_path):
    assert await Run(tmp_path, argv=["true"], stdin=b"x" * 10_000_000) == (0, False)
    assert await Run(tmp_path, shell="exec <&-; echo; sleep 0.05", stdin=b"x" * 10_000_000) == (0, False)
    run = Run(tmp_path, shell="sleep 300 <&0 & echo $!", stdin=b"x" * 10_000_000)
    assert await run == (0, False)
    os.kill(await run.number(), signal.SIGKILL)


async def test_much_output_on_both_streams(tmp_path):
    code = "import sys\nfor i in range(20000): print('o'*99); print('e'*49, file=sys.stderr)"
    run = Run(tmp_path, argv=[sys.executable, "-c", code])
    assert await run == (0, False)
    assert {stream: len(data) for stream, data in run.output.items()} == {"stdout": 2_000_000, "stderr": 1_000_000}


async def test_bytes_come_as_they_are(tmp_path):
    run = Run(tmp_path, argv=["printf", r"\377\000\303"])
    await run
    assert run.output["stdout"] == b"\xff\0\xc3"


async def test_a_slow_reader_slows_the_command_and_loses_nothing(tmp_path):
    got = []
    began, go = asyncio.Event(), asyncio.Event()

    async def slow(_stream, data):
        began.set()
        await go.wait()
        got.append(len(data))

    run = Run(tmp_path, argv=["head", "-c", "1000000", "/dev/zero"], on_output=slow)
    await began.wait()
    assert alive(run.sid)  # it cannot have written all
    go.set()
    assert await run == (0, False)
    assert sum(got) == 1_000_000


async def test_a_timeout_ends_grandchildren_too(tmp_path):
    run = Run(tmp_path, shell="sh -c 'sleep 300 & echo $!; wait' & wait", timeout_s=0.3)
    code, timed_out = await run
    assert (code, timed_out) == (-signal.SIGTERM, True)
    assert await gone(await run.number())


async def test_a_timeout_ends_other_process_groups_of_the_session(tmp_path):
    run = Run(tmp_path, shell="set -m; sleep 300 & echo $!; wait", timeout_s=0.3)
    assert (await run)[1]
    assert await gone(await run.number())


async def test_a_timeout_kills_who_ignores_it(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "GRACE_S", 0.2)
    run = Run(tmp_path, shell="trap '' TERM; echo $$; while :; do sleep 1; done", timeout_s=0.3)
    assert await run == (-signal.SIGKILL, True)
    assert await gone(await run.number())


async def test_a_timeout_lets_it_say_its_last_word(tmp_path):
    run = Run(tmp_path, shell="trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done", timeout_s=0.3)
    assert await run == (3, True)
    assert run.output["stdout"] == b"bye\n"


async def test_cancelling_ends_everything_at_once(tmp_path):
    run = Run(tmp_path, shell="trap '' TERM; sleep 300 & echo $!; wait; wait")
    child = await run.number()
    before = len(asyncio.all_tasks())
    run.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not alive(run.sid)
    assert await gone(child)
    assert len(asyncio.all_tasks()) < before


async def test_cancelling_twice_still_cleans_up(tmp_path):
    run = Run(tmp_path, shell="echo 1; sleep 300")
    await run.number()
    run.task.cancel()
    await asyncio.sleep(0)
    run.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    while commands._tidying:
        await asyncio.sleep(0.01)
    with pytest.raises(ChildProcessError):  # reaped
        os.waitpid(run.sid, os.WNOHANG)


async def test_a_receiver_that_fails_ends_the_command(tmp_path):
    async def fail(_stream, _data):
        raise ConnectionResetError("the client went away")

    run = Run(tmp_path, shell="echo; sleep 300", on_output=fail)
    with pytest.raises(ConnectionResetError):
        await run
    assert not alive(run.sid)


async def test_what_it_leaves_in_the_background_does_not_hold_it(tmp_path):
    before = commands.draining()
    run = Run(tmp_path, shell="echo first; (sleep 300; echo never) & echo $! >pid; echo last")
    assert await run == (0, False)
    assert run.output["stdout"] == b"first\nlast\n"
    child = int((tmp_path / "pid").read_text())
    assert alive(child)
    assert len(commands.draining() - before) == 2
    os.killpg(run.sid, signal.SIGKILL)
    assert await gone(child)
    while commands.draining() - before:
        await asyncio.sleep(0.01)


async def test_what_runs_on_may_go_on_writing(tmp_path):
    """Our end of its pipe stays open: it is neither blocked nor killed by SIGPIPE."""
    before = commands.draining()
    script = "(while :; do cat block; echo x >>beat; done) & echo $!"
    (tmp_path / "block").write_bytes(b"x" * 50_000)
    run = Run(tmp_path, shell=script)
    assert await run == (0, False)
    beat = tmp_path / "beat"
    start = len(beat.read_text()) if beat.exists() else 0
    while not beat.exists() or len(beat.read_text()) < start + 20:
        await asyncio.sleep(0.01)
    os.killpg(run.sid, signal.SIGKILL)
    while commands.draining() - before:
        await asyncio.sleep(0.01)


async def test_no_descriptor_and_no_child_is_left(tmp_path):
    await Run(tmp_path, shell="true")
    before = sorted(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(Run(tmp_path, shell="echo; echo >&2", stdin=b"x").task for _ in range(20)))
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_a_child_that_somebody_else_reaped_is_no_success(tmp_path):
    run = Run(tmp_path, shell="exit 3")
    await asyncio.sleep(0)
    os.waitpid(run.sid, 0)
    with pytest.raises((AgentError, ChildProcessError, ProcessLookupError)):
        await run
