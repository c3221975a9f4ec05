from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_sandbox
from jupyter_sandbox.errors import CheckpointLost, ProviderError, RuntimeFailed, StoreLocked
from jupyter_sandbox.service import ControlPlane, ServiceConfig
from tests.service.conftest import Plane
from tests.toy_engine import FilesOnlyToy, ToyEngine


async def test_everything_is_there_and_usable_after_a_restart(plane: Plane) -> None:
    exp = await plane.create("exp", metadata={"k": 1})
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "base")
    kid = (await plane.fork("base", "kid")).runtime.runtime_id
    await plane.pause(kid, name="night")
    gone = await plane.create("gone")
    await plane.close(gone)
    before = (await plane.cp.lineage(), await plane.cp.runtimes(include_closed=True), await plane.cp.checkpoints())
    await plane.reopen()
    assert before == (
        await plane.cp.lineage(),
        await plane.cp.runtimes(include_closed=True),
        await plane.cp.checkpoints(),
    )
    assert await plane.run("exp", "x") == "1"
    assert (await plane.cp.attach(exp)).runtime.runtime_id == exp
    await plane.resume(kid)
    assert await plane.run("kid", "x") == "1"
    await plane.fork("base", "second")


async def test_an_adopted_backend_counts_as_dirty(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp")
    await plane.reopen()  # what happened to it meanwhile is unknown
    assert not (await plane.checkpoint("exp")).reused


async def test_sessions_that_share_a_backend_share_it_again(plane: Plane) -> None:
    first = await plane.create("exp")
    await plane.create("twin", attach_to="exp")
    await plane.reopen()
    await plane.run("exp", "x = 1")
    assert await plane.run("twin", "x") == "1"
    await plane.close(first)
    assert await plane.run("twin", "x") == "1"


async def test_what_died_meanwhile_is_failed_with_a_sentence(plane: Plane) -> None:
    exp = await plane.create("exp")
    other = await plane.create("other")
    await plane.cp.aclose()
    plane.toy.backends[next(iter(plane.toy.backends))].die("killed")
    del plane.toy.backends[list(plane.toy.backends)[1]]
    await plane.open()
    for runtime_id in (exp, other):
        summary = await plane.cp.runtime(runtime_id)
        assert (summary.status, summary.reason) == ("failed", "Its process ended while no server ran")
        with pytest.raises(RuntimeFailed, match="ended while no server ran"):
            await plane.run(runtime_id, "1")
    await plane.close(exp)
    await plane.close(other)
    assert plane.toy.backends == {}


async def test_after_a_restart_of_the_host_all_is_told(plane: Plane) -> None:
    exp = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    paused = await plane.create("sleeper")
    await plane.pause(paused)
    await plane.cp.aclose()
    plane.toy = ToyEngine()
    await plane.open()
    assert await plane.status(exp) == "failed"
    assert await plane.status(paused) == "failed"
    assert (await plane.record("base")).state == "lost"
    with pytest.raises(CheckpointLost):
        await plane.fork("base", "kid")
    assert {n.id for n in (await plane.cp.lineage()).nodes} >= {exp, paused}
    assert set((await plane.cp.prune_checkpoints()).deleted) >= {"base"}


async def test_orphans_are_removed_and_one_that_resists_does_not_stop_the_rest(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    await plane.cp.aclose()
    (known,) = plane.toy.snapshots
    for n in ("1", "2"):
        plane.toy.snapshots[f"sn_{n * 32}"] = plane.toy.backends[next(iter(plane.toy.backends))].freeze(None)
    plane.toy.backends[f"be_{'3' * 32}"] = next(iter(plane.toy.backends.values()))
    plane.toy.fail("delete_snapshot", ProviderError("stuck"))
    await plane.open()
    assert len(plane.toy.backends) == 1
    assert len(plane.toy.snapshots) == 2
    await plane.reopen()
    assert set(plane.toy.snapshots) == {known}


async def test_an_engine_that_cannot_start_is_tried_again_when_used(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.cp.aclose()
    plane.toy.fail("start", ProviderError("the daemon is down"))
    plane.toy.fail("start", ProviderError("the daemon is down"))
    await plane.open()
    assert await plane.status("exp") == "idle"  # nothing is lost because somebody else is down
    with pytest.raises(ProviderError, match="daemon is down"):
        await plane.create("other")
    await plane.create("other")
    assert await plane.run("exp", "x") == "1"


async def test_a_bug_in_one_engines_start_does_not_stop_the_server(plane: Plane) -> None:
    await plane.cp.aclose()
    plane.toy.fail("start", RuntimeError("bug"))
    plane.toy.fail("start", RuntimeError("bug"))
    await plane.open()
    await plane.create("box", engine="toy-files")
    (info,) = (e for e in (await plane.cp.engines()).engines if e.name == "toy")
    assert (info.available, "bug" in info.detail) == (False, True)


async def test_a_second_control_plane_is_refused(plane: Plane) -> None:
    with pytest.raises(StoreLocked):
        await ControlPlane.open(ServiceConfig(store_dir=plane.store_dir), {})


CHILD = """
import asyncio, json, sys
from pathlib import Path
from jupyter_sandbox.errors import *
from tests.service.conftest import Plane

async def main():
    plane = Plane(Path(sys.argv[1]))
    await plane.open()
    exp = await plane.create("exp", engine="toy-files")
    await plane.checkpoint("exp", "base")
    await plane.cp.write_bytes("exp", "f", b"1")
    verb = sys.argv[2]
    gate = plane.files_only.hold({"fork": "checkout"}.get(verb, verb))
    call = {
        "checkpoint": lambda: plane.checkpoint("exp", "half"),
        "create": lambda: plane.create("half", engine="toy-files"),
        "checkout": lambda: plane.fork("base", "half"),
        "fork": lambda: plane.fork("exp", "half"),
    }[verb]
    task = asyncio.create_task(call())
    await gate.entered.wait()
    print(json.dumps({"exp": exp}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("verb", ["checkpoint", "create", "checkout", "fork"])
async def test_kill_9_in_the_middle_leaves_no_half_done_operation(tmp_path: Path, verb: str) -> None:
    root = Path(jupyter_sandbox.__file__).parents[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(tmp_path / "store"), verb, cwd=root, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    told = json.loads(await process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    await process.wait()
    plane = Plane(tmp_path / "store")
    await plane.open()
    try:
        assert {r.runtime_id: r.status.value for r in (await plane.cp.runtimes()).runtimes} == {told["exp"]: "failed"}
        assert [(c.name, c.state.value) for c in (await plane.cp.checkpoints()).checkpoints] == [("base", "lost")]
        await plane.create("half")  # its name is free again
        assert all(row.operation != verb or row.n == 1 for row in (await plane.cp.latency()).rows)
        assert (await plane.cp.runtime("exp")).head_checkpoint_id == (await plane.record("base")).checkpoint_id
    finally:
        await plane.cp.aclose()


async def test_durable_engines_rows_are_synced(tmp_path: Path) -> None:
    plane = Plane(tmp_path / "store")
    plane.files_only = FilesOnlyToy()
    await plane.open()
    levels: list[str] = []
    real = plane.cp._core.store._set_synchronous
    plane.cp._core.store._set_synchronous = lambda level: (levels.append(level), real(level))[1]
    await plane.create("exp")
    assert set(levels) == {"NORMAL"}
    levels.clear()
    await plane.create("box", engine="toy-files")
    assert levels.count("FULL") == 2  # intent and the row; the timing after it may be lost
    await plane.cp.aclose()
