from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import (
    EngineNotFound,
    Forbidden,
    InvalidRequest,
    NameTaken,
    ProviderError,
    RuntimeFailed,
    RuntimeNotFound,
    SessionBusy,
    WrongStatus,
)
from jupyter_sandbox.models import CellRequest, Isolation, RuntimeCreateRequest, RuntimeUpdateRequest
from tests.service.conftest import Plane


async def test_create_gives_what_was_asked_and_empty_identity_when_absent(plane: Plane) -> None:
    made = await plane.cp.create(RuntimeCreateRequest(engine="toy", name="exp", metadata={"a": 1}, env={"K": "v"}))
    runtime = made.runtime
    assert made.created
    assert (runtime.name, runtime.engine, runtime.status, runtime.metadata) == ("exp", "toy", "idle", {"a": 1})
    assert (runtime.conversation_id, runtime.sender_id) == ("", "")
    assert runtime.head_checkpoint_id is None
    assert runtime.memory is not None
    assert (await plane.backend("exp")).env == {"K": "v"}


async def test_a_values_of_env_are_not_in_the_store(plane: Plane) -> None:
    await plane.create("exp", env={"K": "very-secret-value"})
    await plane.cp.aclose()
    stored = b"".join(f.read_bytes() for f in plane.store_dir.iterdir() if f.is_file())
    await plane.open()
    assert b"very-secret-value" not in stored


async def test_an_unknown_engine_is_named(plane: Plane) -> None:
    with pytest.raises(EngineNotFound, match="no engine nope") as caught:
        await plane.create(engine="nope")
    assert "toy" in caught.value.remedy


async def test_a_taken_name_says_which_kind_holds_it(plane: Plane) -> None:
    first = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    with pytest.raises(NameTaken) as caught:
        await plane.create("exp")
    assert caught.value.context == {"name": "exp", "kind": "runtime", "id": first}
    with pytest.raises(NameTaken) as caught:
        await plane.create("base")
    assert caught.value.context["kind"] == "checkpoint"
    assert len(plane.toy.backends) == 1


async def test_exist_ok_attaches_to_a_live_runtime(plane: Plane) -> None:
    first = await plane.create("exp")
    again = await plane.cp.create(RuntimeCreateRequest(engine="toy", name="exp", exist_ok=True))
    assert (again.created, again.runtime.runtime_id) == (False, first)
    await plane.checkpoint("exp", "base")
    with pytest.raises(NameTaken):
        await plane.create("base", exist_ok=True)


async def test_two_at_once_with_exist_ok_make_one(plane: Plane) -> None:
    ids = await asyncio.gather(*(plane.create("exp", exist_ok=True) for _ in range(4)))
    assert len(set(ids)) == 1
    assert plane.toy.calls.count("create") == 1


async def test_a_failed_create_leaves_neither_name_nor_backend(plane: Plane) -> None:
    plane.toy.fail("create", ProviderError("no room"))
    with pytest.raises(ProviderError):
        await plane.create("exp")
    assert (await plane.cp.runtimes(include_closed=True)).runtimes == ()
    await plane.create("exp")


async def test_an_engines_own_exception_becomes_an_error_of_ours(plane: Plane) -> None:
    plane.toy.fail("create", RuntimeError("bug in there"))
    with pytest.raises(ProviderError, match="bug in there"):
        await plane.create("exp")


async def test_a_wrong_field_is_named(plane: Plane) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await plane.create("exp", cwd="/nowhere/at/all")
    assert caught.value.context["field"] == "cwd"


async def test_min_isolation_refuses_weaker_engines(plane: Plane) -> None:
    weak = await plane.create("weak")
    await plane.checkpoint("weak", "base")
    plane.min_isolation = Isolation.container
    await plane.reopen()
    with pytest.raises(Forbidden, match="isolates by none"):
        await plane.create("exp")
    with pytest.raises(Forbidden):
        await plane.fork("base", "kid")
    await plane.create("ok", engine="toy-files")
    assert await plane.status(weak) == "idle"


async def test_attach_to_shares_files_memory_and_order(plane: Plane) -> None:
    first = await plane.create("exp")
    await plane.run("exp", "x = 1")
    second = await plane.create("twin", attach_to="exp")
    assert second.partition(".")[0] != first.partition(".")[0]
    assert await plane.run("twin", "x") == "1"
    assert len(plane.toy.backends) == 1
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("twin", "x = 2"))
    await gate.entered.wait()
    with pytest.raises(SessionBusy):  # the state is one: a snapshot of it now would not be a stable point
        await plane.checkpoint("exp")
    gate.open.set()
    await cell
    await plane.close(first)
    assert await plane.run("twin", "x") == "2"
    await plane.close(second)
    assert plane.toy.backends == {}


async def test_a_shared_runtime_that_was_paused_comes_back_on_its_own(plane: Plane) -> None:
    first = await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.create("twin", attach_to="exp")
    await plane.pause(first)
    assert await plane.run("twin", "x") == "1"
    await plane.resume(first)
    await plane.run("exp", "x = 5")
    assert await plane.run("twin", "x") == "1"
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("twin", "x"))
    await gate.entered.wait()
    await plane.checkpoint("exp")  # their orders are apart now
    gate.open.set()
    await cell


async def test_reference_by_id_and_name_and_what_is_missing(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    assert (await plane.cp.runtime("exp")).runtime_id == (await plane.cp.runtime(runtime_id)).runtime_id
    with pytest.raises(RuntimeNotFound, match="no runtime gone"):
        await plane.cp.runtime("gone")
    await plane.checkpoint("exp", "base")
    with pytest.raises(RuntimeNotFound, match="base is a checkpoint"):
        await plane.cp.runtime("base")


async def test_update_renames_and_frees_the_old_name(plane: Plane) -> None:
    await plane.create("a")
    await plane.create("b")
    renamed = await plane.cp.update("a", RuntimeUpdateRequest(name="c", metadata={"k": 1}))
    assert (renamed.name, renamed.metadata) == ("c", {"k": 1})
    with pytest.raises(NameTaken):
        await plane.cp.update("c", RuntimeUpdateRequest(name="b"))
    assert (await plane.cp.runtime("c")).name == "c"
    await plane.create("a")


async def test_attach_returns_the_snapshot_and_makes_nothing(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    calls = list(plane.toy.calls)
    attached = await plane.cp.attach("exp")
    assert attached.runtime.runtime_id == runtime_id
    assert plane.toy.calls == calls
    await plane.pause(runtime_id)
    with pytest.raises(WrongStatus):
        await plane.cp.attach("exp")


async def test_pause_and_resume_keep_id_files_memory_and_free_the_backend(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    for cycle in range(20):
        await plane.run("exp", f"x = {cycle}")
        await plane.cp.write_bytes("exp", "notes.txt", f"v{cycle}".encode())
        paused = await plane.pause(runtime_id)
        assert paused.runtime.status == "paused"
        assert plane.toy.backends == {}
        resumed = await plane.resume(runtime_id)
        assert (resumed.runtime.runtime_id, resumed.runtime.status) == (runtime_id, "idle")
        assert await plane.run("exp", "x") == str(cycle)
        assert await plane.cp.read_bytes("exp", "notes.txt") == f"v{cycle}".encode()


async def test_pause_of_a_clean_backend_reuses_the_snapshot(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    await plane.pause(runtime_id, name="night")
    assert plane.snapshots_taken() == 1
    await plane.cp.delete_checkpoint("base")
    await plane.resume(runtime_id)  # the snapshot served both


async def test_a_failed_pause_leaves_the_runtime_live_and_idle(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.run("exp", "x = 1")
    plane.toy.fail("checkpoint", ProviderError("no"))
    with pytest.raises(ProviderError):
        await plane.pause(runtime_id, name="night")
    assert await plane.status("exp") == "idle"
    assert await plane.run("exp", "x") == "1"
    assert (await plane.cp.checkpoints()).checkpoints == ()
    await plane.pause(runtime_id, name="night")


async def test_a_backend_that_cannot_be_released_is_released_later(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    plane.toy.fail("release", ProviderError("later"))
    await plane.pause(runtime_id)
    assert await plane.status("exp") == "paused"
    assert len(plane.toy.backends) == 1
    await plane.resume(runtime_id)
    await plane.close(runtime_id)
    assert plane.toy.backends == {}


async def test_a_failed_resume_leaves_it_paused(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.pause(runtime_id)
    plane.toy.fail("checkout", ProviderError("quota"))
    with pytest.raises(ProviderError):
        await plane.resume(runtime_id)
    assert await plane.status("exp") == "paused"
    await plane.resume(runtime_id, metadata={"again": True})
    assert (await plane.cp.runtime("exp")).metadata == {"again": True}
    assert await plane.run("exp", "x") == "1"


async def test_a_write_that_was_acknowledged_before_pause_is_in_it(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    taking = plane.toy.hold("checkpoint")
    first = asyncio.create_task(plane.checkpoint("exp"))
    await taking.entered.wait()
    pausing = asyncio.create_task(plane.pause(runtime_id))  # it waits behind the checkpoint
    await plane.settle()
    writing = plane.toy.hold("write_bytes")
    write = asyncio.create_task(plane.cp.write_bytes("exp", "late.txt", b"late"))
    await writing.entered.wait()
    taking.open.set()
    await first
    assert not pausing.done()
    writing.open.set()
    await write
    await pausing
    await plane.resume(runtime_id)
    assert await plane.cp.read_bytes("exp", "late.txt") == b"late"


async def test_a_write_during_pause_waits_and_is_told(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    taking = plane.toy.hold("checkpoint")
    pausing = asyncio.create_task(plane.pause(runtime_id))
    await taking.entered.wait()
    write = asyncio.create_task(plane.cp.write_bytes("exp", "late.txt", b"late"))
    await plane.until("exp", lambda r: r.status == "running")
    taking.open.set()
    await pausing
    with pytest.raises(WrongStatus, match="paused"):
        await write


async def test_close_frees_the_name_and_the_backend_and_keeps_the_record(plane: Plane) -> None:
    first = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    closed = await plane.close(first)
    assert closed.runtime.status == "closed"
    assert plane.toy.backends == {}
    assert (await plane.cp.runtime(first)).name == "exp"
    with pytest.raises(RuntimeNotFound):
        await plane.cp.runtime("exp")
    assert (await plane.cp.runtimes()).runtimes == ()
    assert len((await plane.cp.runtimes(include_closed=True)).runtimes) == 1
    second = await plane.create("exp")
    assert second != first
    assert (await plane.close(first)).runtime.status == "closed"  # a second time changes nothing
    assert await plane.status("exp") == "idle"
    await plane.fork("base", "kid")  # checkpoints survive


async def test_close_of_a_running_runtime_ends_its_cell(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("exp", "x"))
    queued = asyncio.create_task(plane.run("exp", "y"))
    await gate.entered.wait()
    await plane.close(runtime_id)
    gate.open.set()
    with pytest.raises(RuntimeFailed, match="was closed while this ran"):
        await cell
    with pytest.raises((WrongStatus, RuntimeNotFound)):
        await queued
    assert await plane.status(runtime_id) == "closed"


async def test_cascade_closes_what_was_branched_from_it_and_deletes_all_their_unpinned_checkpoints(
    plane: Plane,
) -> None:
    top = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    kid = (await plane.fork("base", "kid")).runtime.runtime_id
    await plane.checkpoint("kid", "kid-cp")
    await plane.checkpoint("kid", "kept")
    await plane.cp.pin_checkpoint("kept", True)
    grandkid = (await plane.fork("kid-cp", "grandkid")).runtime.runtime_id
    await plane.pause(grandkid, name="night")
    other = await plane.create("other")
    await plane.close(top, cascade=True)
    statuses = {r.runtime_id: r.status.value for r in (await plane.cp.runtimes(include_closed=True)).runtimes}
    assert statuses == {top: "closed", kid: "closed", grandkid: "closed", other: "idle"}
    assert [c.name for c in (await plane.cp.checkpoints()).checkpoints] == ["kept"]


async def test_without_cascade_children_live_on(plane: Plane) -> None:
    top = await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "base")
    await plane.fork("base", "kid")
    await plane.close(top)
    assert await plane.run("kid", "x") == "1"


@pytest.mark.parametrize(
    ("status", "verb", "error"),
    [
        ("paused", "pause", WrongStatus),
        ("paused", "checkpoint", WrongStatus),
        ("paused", "cell", WrongStatus),
        ("paused", "read", WrongStatus),
        ("idle", "resume", WrongStatus),
        ("closed", "resume", WrongStatus),
        ("closed", "pause", WrongStatus),
        ("closed", "checkpoint", WrongStatus),
        ("closed", "cell", WrongStatus),
        ("closed", "read", WrongStatus),
        ("failed", "cell", RuntimeFailed),
        ("failed", "checkpoint", RuntimeFailed),
        ("failed", "pause", RuntimeFailed),
        ("failed", "resume", RuntimeFailed),
        ("failed", "read", RuntimeFailed),
    ],
)
async def test_what_does_not_fit_the_status_is_refused(plane: Plane, status: str, verb: str, error: type) -> None:
    runtime_id = await plane.create("exp")
    if status == "paused":
        await plane.pause(runtime_id)
    elif status == "closed":
        await plane.close(runtime_id)
    elif status == "failed":
        (await plane.backend(runtime_id)).die("it was killed")
        await plane.until(runtime_id, lambda r: r.status == "failed")
    calls = {
        "pause": lambda: plane.pause(runtime_id),
        "resume": lambda: plane.resume(runtime_id),
        "checkpoint": lambda: plane.checkpoint(runtime_id),
        "cell": lambda: anext(plane.cp.run_cell(runtime_id, CellRequest(code="1"))),
        "read": lambda: plane.cp.read_bytes(runtime_id, "x"),
    }
    before = [c for c in plane.toy.calls if c != "quiescent"]
    with pytest.raises(error) as caught:
        await calls[verb]()
    assert caught.value.remedy
    assert [c for c in plane.toy.calls if c != "quiescent"] == before
    assert await plane.status(runtime_id) == status
