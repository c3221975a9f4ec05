"""A runtime's calls: what they send, and how cells and commands arrive. Both faces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_sandbox.errors import CellFailed, CommandFailed, InvalidRequest, PathNotFound, RuntimeFailed, SessionBusy
from jupyter_sandbox.models import CellDone, CellOutput
from tests.client import samples
from tests.client.faces import Face, Script, lines, stream
from tests.client.test_client import CHECKPOINTED, FORKED, RUNTIME, TIMINGS

CELLS = f"POST runtimes/{samples.RT}/cells"
EXEC = f"POST runtimes/{samples.RT}/exec"
BARE = {k: RUNTIME[k] for k in ("runtime_id", "conversation_id", "sender_id", "created_at_ms", "updated_at_ms")}
OK = {"event": "done", "status": "ok", "execution_count": 3, "elapsed_ms": 1.5}
ERROR = {
    "event": "done",
    "status": "error",
    "error": {"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["Traceback", "1/0"]},
}


def out(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"event": "output", "output": {"output_type": "stream", "name": name, "text": text}}


def value(text: str) -> dict[str, Any]:
    return {
        "event": "output",
        "output": {"output_type": "execute_result", "data": {"text/plain": text}, "metadata": {}},
    }


async def made(face: Face, script: Script) -> Any:
    script.answers[f"GET runtimes/{samples.RT}"] = RUNTIME
    runtime = await face(face.client(script).runtimes.get(samples.RT))
    script.requests.clear()
    return runtime


async def test_run_collects_the_cell(face: Face) -> None:
    events = [out("41 1\n"), out("more", "stderr"), out("a"), out("b\n"), value("'v'"), OK]
    script = Script(**{CELLS: stream(lines(*events))})
    seen: list[Any] = []
    result = await face((await made(face, script)).run("code", 2.5, seen.append))
    assert script.bodies == [{"code": "code", "timeout_s": 2.5}]
    assert script.requests[0].headers["Accept"] == "application/x-ndjson"
    assert "Idempotency-Key" not in script.requests[0].headers
    assert (result.status, result.text, result.execution_count) == ("ok", "41 1\nab\n'v'", 3)
    assert [o["output_type"] for o in result.outputs] == ["stream", "stream", "stream", "execute_result"]
    assert [type(event) for event in seen] == [CellOutput] * 5 + [CellDone]


async def test_an_error_of_the_code_is_a_result(face: Face) -> None:
    runtime = await made(face, Script(**{CELLS: stream(lines(ERROR))}))
    result = await face(runtime.run("1/0"))
    assert result.status == "error"
    assert result.error.ename == "ZeroDivisionError"
    with pytest.raises(CellFailed, match="division by zero") as caught:
        await face(runtime.run("1/0", check=True))
    assert caught.value.result == result
    assert caught.value._render_traceback_() == ["Traceback", "1/0"]


async def test_events_arrive_however_the_bytes_are_cut(face: Face) -> None:
    whole = lines(out("a\u2028b\x85c"), OK)  # line ends to Unicode, not to JSON lines
    pieces = [whole[i : i + 1] for i in range(len(whole))]
    runtime = await made(face, Script(**{CELLS: stream(*pieces)}))
    events = await face.all(runtime.stream("x"))
    assert events[0].output["text"] == "a\u2028b\x85c"
    assert isinstance(events[1], CellDone)


async def test_a_failed_event_is_raised_as_what_it_is(face: Face) -> None:
    failed = {
        "event": "failed",
        "http_status": 409,
        "error": {"code": "RuntimeFailed", "message": "its process was killed", "remedy": "Check out", "context": {}},
    }
    runtime = await made(face, Script(**{CELLS: stream(lines(out("a"), failed))}))
    with pytest.raises(RuntimeFailed, match=r"its process was killed\. Check out"):
        await face(runtime.run("x"))


async def test_a_refusal_before_the_first_event(face: Face) -> None:
    body = {"code": "SessionBusy", "message": "busy", "remedy": "wait", "context": {"operation": "cell"}}
    runtime = await made(face, Script(**{CELLS: httpx.Response(409, json=body)}))
    with pytest.raises(SessionBusy) as caught:
        await face(runtime.run("x"))
    assert caught.value.context == {"operation": "cell"}


async def test_exec(face: Face) -> None:
    events = [
        {"event": "output", "stream": "stdout", "text": "a"},
        {"event": "output", "stream": "stderr", "text": "oh no\n"},
        {"event": "output", "stream": "stdout", "text": "b"},
        {"event": "done", "exit_code": 3, "elapsed_ms": 2.0},
    ]
    script = Script(**{EXEC: stream(lines(*events))})
    runtime = await made(face, script)
    seen: list[Any] = []
    result = await face(runtime.exec(["ls", "-l"], env={"A": "1"}, cwd="d", stdin="i", timeout=9, on_event=seen.append))
    assert script.bodies == [{"argv": ["ls", "-l"], "env": {"A": "1"}, "cwd": "d", "stdin": "i", "timeout_s": 9.0}]
    assert (result.exit_code, result.stdout, result.stderr) == (3, "ab", "oh no\n")
    assert len(seen) == 4
    with pytest.raises(CommandFailed, match="exit code 3: oh no"):
        await face(runtime.exec(shell="false", check=True))
    assert script.bodies[-1] == {"shell": "false"}
    assert len(await face.all(runtime.exec_stream(["x"]))) == 4


async def test_a_command_is_words_or_a_line_never_both(face: Face) -> None:
    runtime = await made(face, Script())
    with pytest.raises(InvalidRequest, match="list of words"):
        await face(runtime.exec("ls -l"))
    with pytest.raises(InvalidRequest, match="exactly one"):
        await face(runtime.exec(["a"], shell="b"))
    with pytest.raises(InvalidRequest, match="exactly one"):
        await face(runtime.exec())


async def test_checkpoint_moves_the_head(face: Face) -> None:
    answer = CHECKPOINTED | {"checkpoint_id": samples.CP2}
    script = Script(**{f"POST sandboxes/{samples.RT}/checkpoint": answer})
    runtime = await made(face, script)
    await face(runtime.checkpoint("base", True, {"m": 1}))
    assert script.bodies == [{"checkpoint": "base", "rebind": True, "metadata": {"m": 1}}]
    assert runtime.record.head_checkpoint_id == samples.CP2


async def test_fork_from_a_runtime(face: Face) -> None:
    script = Script(**{f"POST sandboxes/{samples.RT}/fork": FORKED})
    kid = await face((await made(face, script)).fork("kid"))
    assert (kid.id, script.bodies) == (samples.KID, [{"name": "kid"}])


async def test_pause_resume_close(face: Face) -> None:
    paused = {
        "runtime": BARE | {"status": "paused"},
        "checkpoint_id": samples.CP2,
        "created_at_ms": 1,
        "name": None,
        "metadata": {},
        "checkpoint": CHECKPOINTED["checkpoint"],
        "timings": TIMINGS,
    }
    script = Script(
        **{
            "POST runtimes/pause": paused,
            "POST runtimes/resume": {"runtime": BARE | {"status": "idle"}, "timings": TIMINGS},
            "POST runtimes/close": {"runtime": BARE | {"status": "closed"}, "timings": TIMINGS},
        }
    )
    runtime = await made(face, script)
    at = await face(runtime.pause("lunch"))
    assert (runtime.status, at.timings, runtime.record.head_checkpoint_id) == ("paused", samples.TIMINGS, samples.CP2)
    assert await face(runtime.resume()) is runtime
    assert runtime.status == "idle"
    await face(runtime.close(cascade=True))
    assert runtime.status == "closed"
    assert runtime.name == "exp"
    assert script.bodies == [
        {"runtime_id": samples.RT, "name": "lunch"},
        {"runtime_id": samples.RT},
        {"runtime_id": samples.RT, "cascade": True},
    ]


async def test_refresh_update_attach_interrupt_complete(face: Face) -> None:
    base = f"runtimes/{samples.RT}"
    script = Script(
        **{
            f"PATCH {base}": RUNTIME | {"name": "new"},
            f"POST {base}/attach": {"runtime": BARE | {"status": "running"}, "timings": TIMINGS},
            f"POST {base}/interrupt": httpx.Response(204),
            f"POST {base}/complete": {"matches": ["append"], "cursor_start": 2, "cursor_end": 4},
        }
    )
    runtime = await made(face, script)
    await face(runtime.update(name="new"))
    assert (runtime.name, script.bodies[-1]) == ("new", {"name": "new"})
    assert (await face(runtime.attach())).status == "running"
    assert (await face(runtime.refresh())).status == "idle"
    assert await face(runtime.interrupt()) is None
    assert (await face(runtime.complete("x.ap", 4))).matches == ("append",)
    assert script.bodies[-1] == {"code": "x.ap", "cursor_pos": 4}


async def test_files(face: Face) -> None:
    files = f"runtimes/{samples.RT}/files"
    script = Script(
        **{
            f"PUT {files}/d/%C3%BC%20%23%3F.txt": httpx.Response(204),
            f"GET {files}/d/%C3%BC%20%23%3F.txt": httpx.Response(200, content=b"\x00\xff"),
            f"DELETE {files}/d": httpx.Response(204),
            f"GET {files}/a/%2E%2E/%2E%2E/b": httpx.Response(
                404, json={"code": "PathNotFound", "message": "no such file"}
            ),
            f"GET {files}//etc/passwd": httpx.Response(400, json={"code": "InvalidRequest", "message": "stay below"}),
        }
    )
    runtime = await made(face, script)
    await face(runtime.write("d/ü #?.txt", "é"))
    assert script.requests[0].content == "é".encode()
    assert script.requests[0].headers["Content-Type"] == "application/octet-stream"
    assert await face(runtime.read("d/ü #?.txt")) == b"\x00\xff"
    await face(runtime.remove("d"))
    with pytest.raises(PathNotFound):
        await face(runtime.read("a/../../b"))
    with pytest.raises(InvalidRequest, match="stay below"):
        await face(runtime.read("/etc/passwd"))
    with pytest.raises(InvalidRequest, match="empty"):
        await face(runtime.read(""))


async def test_paths_and_search(face: Face) -> None:
    base = f"POST runtimes/{samples.RT}"
    stat = {"path": "f", "type": "file", "size": 3, "mode": 420, "modified_at_ms": 1}
    script = Script(
        **{
            f"{base}/mkdir": {"path": "a/b"},
            f"{base}/stat": stat,
            f"{base}/temp-path": {"path": "tmpx"},
            f"{base}/search": {"matches": [{"path": "f", "line": 1, "text": "x"}], "truncated": False},
        }
    )
    runtime = await made(face, script)
    assert await face(runtime.mkdir("a/b")) == "a/b"
    assert (await face(runtime.stat("f"))).size == 3
    assert await face(runtime.temp_path(suffix=".csv", directory=True)) == "tmpx"
    assert (await face(runtime.search("*.py", "def"))).matches[0].line == 1
    assert script.bodies == [
        {"path": "a/b"},
        {"path": "f"},
        {"suffix": ".csv", "directory": True},
        {"glob": "*.py", "text": "def"},
    ]


async def test_export_appears_whole_or_not_at_all(face: Face, tmp_path: Path) -> None:
    route = f"POST runtimes/{samples.RT}/export"
    script = Script(**{route: [stream(b"ab", b"c")(None), stream(b"ab", httpx.ReadError("gone"))(None)]})
    runtime = await made(face, script)
    target = tmp_path / "out.tar"
    assert await face(runtime.export("data", target)) == target
    assert target.read_bytes() == b"abc"
    assert script.bodies == [{"path": "data"}]
    target.unlink()
    with pytest.raises(ConnectionError, match="ended before"):
        await face(runtime.export("data", target))
    assert list(tmp_path.iterdir()) == []


async def test_repr_is_one_line_with_the_isolation(face: Face) -> None:
    text = repr(await made(face, Script()))
    assert "\n" not in text
    for part in ("exp", "idle", "fork", "isolation none", "head cp_cccccccc"):
        assert part in text
