from __future__ import annotations

import asyncio
import io
import tarfile

import pytest

from jupyter_sandbox.errors import (
    InvalidRequest,
    PathNotFound,
    ProviderError,
    RuntimeFailed,
    RuntimeNotFound,
    ServerUnavailable,
)
from jupyter_sandbox.models import (
    CellDone,
    CellRequest,
    CompleteRequest,
    ExecDone,
    ExecOutput,
    ExecRequest,
    ExportRequest,
    PathRequest,
    SearchRequest,
    TempPathRequest,
)
from tests.service.conftest import Plane

FOREVER = "import asyncio; await asyncio.Event().wait()"


async def collect(events) -> list:
    return [event async for event in events]


async def test_outputs_come_as_they_are_written_and_done_comes_last(plane: Plane) -> None:
    await plane.create("exp")
    events = await collect(plane.cp.run_cell("exp", CellRequest(code="print('a')\n1 + 1")))
    assert [e.event for e in events] == ["output", "output", "done"]
    assert events[-1].execution_count == 1
    stream = plane.cp.run_cell("exp", CellRequest(code=f"print('early')\n{FOREVER}"))
    assert (await anext(stream)).output["text"] == "early\n"
    await plane.cp.interrupt("exp")
    (done,) = await collect(stream)
    assert done.error.ename == "KeyboardInterrupt"


async def test_an_error_in_the_code_is_a_result(plane: Plane) -> None:
    await plane.create("exp")
    *_, done = await collect(plane.cp.run_cell("exp", CellRequest(code="1/0")))
    assert (done.status, done.error.ename) == ("error", "ZeroDivisionError")


async def test_when_done_arrives_the_runtime_is_free(plane: Plane) -> None:
    await plane.create("exp")
    for _ in range(20):
        async for event in plane.cp.run_cell("exp", CellRequest(code="1")):
            if isinstance(event, CellDone):
                await plane.checkpoint("exp")
        async for event in plane.cp.exec("exp", ExecRequest(argv=("true",))):
            if isinstance(event, ExecDone):
                await plane.checkpoint("exp")


async def test_cells_run_one_at_a_time_in_order(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "seen = []")
    gate = plane.toy.hold("run_cell")
    cells = [asyncio.create_task(plane.run("exp", "seen.append(0)"))]
    await gate.entered.wait()
    cells += [asyncio.create_task(plane.run("exp", f"seen.append({n})")) for n in range(1, 6)]
    gate.open.set()
    await asyncio.gather(*cells)
    assert await plane.run("exp", "seen") == "[0, 1, 2, 3, 4, 5]"


async def test_errors_known_before_anything_runs_come_first(plane: Plane) -> None:
    with pytest.raises(RuntimeNotFound):
        await anext(plane.cp.run_cell("gone", CellRequest(code="1")))
    with pytest.raises(RuntimeNotFound):
        await anext(plane.cp.exec("gone", ExecRequest(argv=("true",))))
    with pytest.raises(RuntimeNotFound):
        await anext(plane.cp.export("gone", ExportRequest()))


async def test_a_cell_that_takes_too_long_is_interrupted(plane: Plane) -> None:
    await plane.create("exp")
    (done,) = await collect(plane.cp.run_cell("exp", CellRequest(code=FOREVER, timeout_s=0.05)))
    assert (done.status, done.timed_out) == ("error", True)
    assert await plane.status("exp") == "idle"


async def test_one_that_does_not_stop_is_said_to_run_on(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    (await plane.backend("exp")).stubborn = True
    (done,) = await collect(plane.cp.run_cell("exp", CellRequest(code=FOREVER, timeout_s=0.05)))
    assert (done.status, done.timed_out) == ("aborted", True)
    assert "still runs" in done.error.evalue
    assert await plane.status("exp") == "running"
    await plane.close(runtime_id)
    assert await plane.status(runtime_id) == "closed"


async def test_a_time_limit_does_not_count_the_queue(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("run_cell")
    first = asyncio.create_task(plane.run("exp", "1"))
    await gate.entered.wait()
    second = asyncio.create_task(plane.run("exp", "2", timeout_s=30))
    gate.open.set()
    await first
    assert await second == "2"


@pytest.mark.parametrize("how", ["aclose", "cancel"])
async def test_when_the_listener_goes_the_cell_is_interrupted(plane: Plane, how: str) -> None:
    await plane.create("exp")
    stream = plane.cp.run_cell("exp", CellRequest(code=f"print('on')\n{FOREVER}"))
    await anext(stream)
    if how == "aclose":
        await stream.aclose()
    else:
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    await plane.until("exp", lambda r: r.status == "idle")
    assert await plane.run("exp", "1") == "1"


async def test_it_is_idle_only_when_the_cell_really_ended(plane: Plane) -> None:
    await plane.create("exp")
    backend = await plane.backend("exp")
    backend.stubborn = True
    stream = plane.cp.run_cell("exp", CellRequest(code=f"print('on')\n{FOREVER}"))
    await anext(stream)
    await stream.aclose()
    while plane.toy.calls.count("interrupt") < 2:  # it is told again while it does not stop
        assert await plane.status("exp") == "running"
    backend.stubborn = False
    await plane.until("exp", lambda r: r.status == "idle")


async def test_a_queued_cell_whose_listener_went_never_runs(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 0")
    gate = plane.toy.hold("run_cell")
    first = asyncio.create_task(plane.run("exp", "1"))
    await gate.entered.wait()
    second = asyncio.create_task(plane.run("exp", "x = 1"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open.set()
    await first
    await plane.until("exp", lambda r: r.status == "idle")
    assert await plane.run("exp", "x") == "0"


async def test_a_slow_listener_gets_everything(plane: Plane) -> None:
    await plane.create("exp")
    stream = plane.cp.run_cell("exp", CellRequest(code="for n in range(2000): print(n)"))
    texts = []
    async for event in stream:
        texts.append(getattr(event, "output", {}).get("text"))
        await asyncio.sleep(0)
    assert texts[:-1] == [f"{n}\n" for n in range(2000)]


async def test_a_backend_that_dies_ends_the_cell_and_fails_the_runtime(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    stream = plane.cp.run_cell("exp", CellRequest(code=f"print('on')\n{FOREVER}"))
    await anext(stream)
    (await plane.backend("exp")).die("Its process was killed by signal 9")
    with pytest.raises(RuntimeFailed):
        await anext(stream)
    summary = await plane.until("exp", lambda r: r.status == "failed")
    assert summary.reason == "Its process was killed by signal 9"
    assert summary.cwd is None
    with pytest.raises(RuntimeFailed, match="signal 9"):
        await plane.run("exp", "1")
    await plane.close(runtime_id)
    assert plane.toy.backends == {}


async def test_exec_runs_beside_a_cell_and_makes_it_running(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("exp", "1"))
    await gate.entered.wait()
    events = await collect(plane.cp.exec("exp", ExecRequest(shell="echo out; echo err >&2; exit 3")))
    assert {e.stream: e.text for e in events if isinstance(e, ExecOutput)} == {"stdout": "out\n", "stderr": "err\n"}
    assert events[-1].exit_code == 3
    gate.open.set()
    await cell
    gate = plane.toy.hold("exec")
    command = asyncio.create_task(collect(plane.cp.exec("exp", ExecRequest(argv=("true",)))))
    await gate.entered.wait()
    summary = await plane.cp.runtime("exp")
    assert (summary.status, summary.busy_with) == ("running", "exec")
    gate.open.set()
    await command


async def test_exec_passes_what_it_was_given(plane: Plane) -> None:
    await plane.create("exp", env={"A": "1"})
    request = ExecRequest(shell='read line; echo "$A$B$line"', env={"B": "2"}, stdin="3\n")
    out, done = await collect(plane.cp.exec("exp", request))
    assert (out.text, done.exit_code) == ("123\n", 0)
    (done,) = await collect(plane.cp.exec("exp", ExecRequest(shell="sleep 60", timeout_s=0.05)))
    assert done.timed_out


async def test_when_the_listener_goes_the_command_ends(plane: Plane) -> None:
    await plane.create("exp")
    waiting = asyncio.create_task(anext(plane.cp.exec("exp", ExecRequest(shell="sleep 600"))))
    await plane.until("exp", lambda r: r.status == "running")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await plane.until("exp", lambda r: r.status == "idle")


async def test_complete_waits_for_the_cell(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("exp", "value = 1"))
    await gate.entered.wait()
    completing = asyncio.create_task(plane.cp.complete("exp", CompleteRequest(code="val")))
    gate.open.set()
    await cell
    assert (await completing).matches == ("value",)


async def test_closing_the_control_plane_does_not_wait_for_code(plane: Plane) -> None:
    await plane.create("exp")
    stream = plane.cp.run_cell("exp", CellRequest(code=f"print('on')\n{FOREVER}"))
    await anext(stream)
    completing = asyncio.create_task(plane.cp.complete("exp", CompleteRequest(code="x")))
    await asyncio.sleep(0)
    await plane.cp.aclose()
    with pytest.raises(ServerUnavailable):
        await anext(stream)
    with pytest.raises(ServerUnavailable):
        await completing
    with pytest.raises(ServerUnavailable):
        await plane.create("more")
    await plane.open()


async def test_files(plane: Plane) -> None:
    await plane.create("exp")
    await plane.cp.write_bytes("exp", "a/b.txt", b"hello\nworld\n")
    assert await plane.cp.read_bytes("exp", "a/b.txt") == b"hello\nworld\n"
    assert (await plane.cp.stat("exp", PathRequest(path="a/b.txt"))).size == 12
    assert (await plane.cp.create_dir_all("exp", PathRequest(path="c/d"))).path == "c/d"
    temporary = await plane.cp.temp_path("exp", TempPathRequest(suffix=".txt"))
    assert (await plane.cp.stat("exp", PathRequest(path=temporary.path))).size == 0
    found = await plane.cp.search("exp", SearchRequest(glob="**/*.txt", text="wor"))
    assert [(m.path, m.line) for m in found.matches] == [("a/b.txt", 2)]
    tar = b"".join(await collect(plane.cp.export("exp", ExportRequest(path="a"))))
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        assert "a/b.txt" in archive.getnames()
    await plane.cp.remove("exp", "a")
    with pytest.raises(PathNotFound):
        await plane.cp.read_bytes("exp", "a/b.txt")
    with pytest.raises(InvalidRequest):
        await plane.cp.write_bytes("exp", "../out", b"")


async def test_a_failed_cell_call_leaves_the_runtime_idle(plane: Plane) -> None:
    await plane.create("exp")
    plane.toy.fail("run_cell", ProviderError("lost contact"))
    with pytest.raises(ProviderError):
        await plane.run("exp", "1")
    assert await plane.status("exp") == "idle"
    assert await plane.run("exp", "1") == "1"
