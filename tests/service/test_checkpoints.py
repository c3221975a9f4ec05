from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import (
    CheckpointInUse,
    CheckpointNotFound,
    CheckpointPinned,
    NameTaken,
    ProviderError,
    SessionBusy,
    SnapshotDeleted,
)
from jupyter_sandbox.models import (
    CompleteRequest,
    ExecRequest,
    ExportRequest,
    PathRequest,
    SandboxCheckpointRequest,
    SearchRequest,
    TempPathRequest,
)
from tests.service.conftest import Plane


async def drain(events) -> list:
    return [event async for event in events]


CHANGES = {
    "cell": lambda cp: drain(cp.run_cell("exp", _cell())),
    "exec": lambda cp: drain(cp.exec("exp", ExecRequest(argv=("true",)))),
    "complete": lambda cp: cp.complete("exp", CompleteRequest(code="x")),
    "write_bytes": lambda cp: cp.write_bytes("exp", "f", b"1"),
    "create_dir_all": lambda cp: cp.create_dir_all("exp", PathRequest(path="d")),
    "temp_path": lambda cp: cp.temp_path("exp", TempPathRequest()),
    "remove": lambda cp: cp.remove("exp", "there"),
}
READS = {
    "stat": lambda cp: cp.stat("exp", PathRequest(path="there")),
    "read_bytes": lambda cp: cp.read_bytes("exp", "there"),
    "search": lambda cp: cp.search("exp", SearchRequest()),
    "export": lambda cp: drain(cp.export("exp", ExportRequest())),
}


def _cell():
    from jupyter_sandbox.models import CellRequest

    return CellRequest(code="pass")


async def test_a_checkpoint_says_what_it_is(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    taken = await plane.checkpoint("exp", "base", metadata={"k": [1]})
    record = taken.checkpoint
    assert (taken.name, taken.metadata, taken.reused, taken.parent_checkpoint_id) == ("base", {"k": [1]}, False, None)
    assert (record.state, record.source, record.runtime_id) == ("ready", "exp", runtime_id)
    assert (record.memory, record.files, record.processes, record.bytes) == (True, True, False, 4096)
    assert record == await plane.record("base") == await plane.record(taken.checkpoint_id)
    assert (await plane.cp.runtime("exp")).head_checkpoint_id == taken.checkpoint_id


async def test_a_directory_used_in_place_is_said_not_to_be_captured(plane: Plane, tmp_path) -> None:
    await plane.create("exp", cwd=str(tmp_path))
    record = (await plane.checkpoint("exp", "base")).checkpoint
    assert not record.files
    assert [seen.kind for seen in record.not_captured] == ["directory"]
    assert not (await plane.cp.runtime("exp")).capabilities.files
    reused = (await plane.checkpoint("exp")).checkpoint
    assert (reused.files, reused.not_captured, reused.bytes) == (False, record.not_captured, record.bytes)


async def test_parents_follow_the_head(plane: Plane) -> None:
    await plane.create("exp")
    first = await plane.checkpoint("exp")
    second = await plane.checkpoint("exp")
    assert second.parent_checkpoint_id == first.checkpoint_id
    kid = await plane.fork(first.checkpoint_id, "kid")
    assert kid.runtime.head_checkpoint_id == first.checkpoint_id
    assert (await plane.checkpoint("kid")).parent_checkpoint_id == first.checkpoint_id
    assert (await plane.checkpoint("exp")).parent_checkpoint_id == second.checkpoint_id


async def test_a_clean_backend_reuses_its_snapshot_without_a_call(plane: Plane) -> None:
    await plane.create("exp")
    assert not (await plane.checkpoint("exp", "a")).reused
    assert (await plane.checkpoint("exp", "b")).reused
    assert plane.snapshots_taken() == 1


@pytest.mark.parametrize("change", CHANGES)
async def test_what_may_change_it_makes_it_dirty(plane: Plane, change: str) -> None:
    await plane.create("exp")
    await plane.cp.write_bytes("exp", "there", b"1")
    await plane.checkpoint("exp")
    await CHANGES[change](plane.cp)
    assert not (await plane.checkpoint("exp")).reused


@pytest.mark.parametrize("change", CHANGES)
async def test_also_when_it_fails(plane: Plane, change: str) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp")
    plane.toy.fail({"cell": "run_cell"}.get(change, change), ProviderError("half way"))
    with pytest.raises(ProviderError):
        await CHANGES[change](plane.cp)
    assert await plane.status("exp") == "idle"
    assert not (await plane.checkpoint("exp")).reused


@pytest.mark.parametrize("read", READS)
async def test_reads_leave_it_clean(plane: Plane, read: str) -> None:
    await plane.create("exp")
    await plane.cp.write_bytes("exp", "there", b"1")
    await plane.checkpoint("exp")
    await READS[read](plane.cp)
    assert (await plane.checkpoint("exp")).reused


async def test_a_restless_backend_is_never_reused(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp")
    (await plane.backend("exp")).restless = True
    assert not (await plane.checkpoint("exp")).reused


async def test_without_memory_nobody_is_asked_for_quiet(plane: Plane) -> None:
    await plane.create("box", engine="toy-files")
    await plane.checkpoint("box")
    (await plane.backend("box")).restless = True
    assert (await plane.checkpoint("box")).reused
    assert "quiescent" not in plane.files_only.calls


async def test_a_write_while_quiet_is_asked_for_is_seen(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp")
    gate = plane.toy.hold("quiescent")
    taking = asyncio.create_task(plane.checkpoint("exp"))
    await gate.entered.wait()
    await plane.cp.write_bytes("exp", "f", b"1")
    gate.open.set()
    assert not (await taking).reused


async def test_a_write_that_lands_during_the_snapshot_leaves_it_dirty(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("checkpoint")
    taking = asyncio.create_task(plane.checkpoint("exp", "a"))
    await gate.entered.wait()
    await plane.cp.write_bytes("exp", "late", b"1")
    gate.open.set()
    await taking
    assert not (await plane.checkpoint("exp", "b")).reused
    await plane.fork("b", "kid")
    assert await plane.cp.read_bytes("kid", "late") == b"1"


async def test_a_write_that_began_before_the_snapshot_and_ends_after_it_leaves_it_dirty(plane: Plane) -> None:
    await plane.create("exp")
    first_gate = plane.toy.hold("checkpoint")
    first = asyncio.create_task(plane.checkpoint("exp", "a"))
    await first_gate.entered.wait()
    second = asyncio.create_task(plane.checkpoint("exp", "b"))
    await plane.settle()  # it waits for its turn
    writing = plane.toy.hold("write_bytes")
    write = asyncio.create_task(plane.cp.write_bytes("exp", "late", b"1"))
    await writing.entered.wait()
    first_gate.open.set()
    await first
    await second
    writing.open.set()
    await write
    assert not (await plane.checkpoint("exp", "c")).reused


async def test_a_child_starts_clean_on_its_parents_snapshot(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    await plane.fork("base", "kid")
    assert (await plane.checkpoint("kid")).reused
    await plane.run("kid", "x = 1")
    assert not (await plane.checkpoint("kid")).reused


async def test_one_snapshot_serves_several_checkpoints_and_goes_with_the_last(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "a")
    await plane.checkpoint("exp", "b")
    await plane.cp.delete_checkpoint("a")
    assert len(plane.toy.snapshots) == 1
    await plane.fork("b", "kid")
    assert await plane.run("kid", "x") == "1"
    await plane.cp.delete_checkpoint("b")
    assert plane.toy.snapshots == {}
    assert await plane.run("kid", "x") == "1"  # forks keep running


async def test_what_is_clean_on_a_deleted_snapshot_takes_a_new_one(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "a")
    await plane.cp.delete_checkpoint("a")
    again = await plane.checkpoint("exp", "a")
    assert not again.reused
    await plane.fork("a", "kid")


async def test_checkpoint_needs_idle_and_names_what_holds_it(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("exp", "x = 1"))
    await gate.entered.wait()
    with pytest.raises(SessionBusy, match="exp is running cell") as caught:
        await plane.checkpoint("exp", "base")
    assert caught.value.context["operation"] == "cell"
    assert caught.value.context["operation_id"].startswith("op_")
    assert "interrupt it" in caught.value.remedy
    summary = await plane.cp.runtime("exp")
    assert (summary.status, summary.busy_with) == ("running", "cell")
    gate.open.set()
    await cell
    summary = await plane.cp.runtime("exp")
    assert (summary.status, summary.busy_with) == ("idle", None)
    await plane.checkpoint("exp", "base")


async def test_checkpoint_needs_an_empty_queue(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("checkpoint")
    taking = asyncio.create_task(plane.checkpoint("exp", "a"))
    await gate.entered.wait()
    queued = asyncio.create_task(plane.run("exp", "x = 1"))
    await plane.until("exp", lambda r: r.busy_with == "cell")
    with pytest.raises(SessionBusy):
        await plane.checkpoint("exp", "b")
    gate.open.set()
    await taking
    await queued


async def test_checkpoints_wait_for_each_other(plane: Plane) -> None:
    await plane.create("exp")
    taken = await asyncio.gather(*(plane.checkpoint("exp") for _ in range(5)))
    parents = {t.checkpoint_id: t.parent_checkpoint_id for t in taken}
    assert len(set(parents.values())) == 5  # one line, no branches
    assert sum(t.reused for t in taken) == 4


async def test_a_failed_checkpoint_leaves_nothing(plane: Plane) -> None:
    await plane.create("exp")
    first = await plane.checkpoint("exp", "a")
    await plane.run("exp", "x = 1")
    plane.toy.fail("checkpoint", OSError(28, "No space left on device"))
    with pytest.raises(Exception, match="no room left") as caught:
        await plane.checkpoint("exp", "b")
    assert caught.value.code == "StorageFull"
    assert [c.name for c in (await plane.cp.checkpoints()).checkpoints] == ["a"]
    summary = await plane.cp.runtime("exp")
    assert (summary.status, summary.head_checkpoint_id) == ("idle", first.checkpoint_id)
    assert len(plane.toy.snapshots) == 1
    assert not (await plane.checkpoint("exp", "b")).reused


async def test_a_cancelled_caller_does_not_stop_a_checkpoint(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("checkpoint")
    taking = asyncio.create_task(plane.checkpoint("exp", "a"))
    await gate.entered.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    gate.open.set()
    await plane.until("exp", lambda r: r.busy_with is None)
    assert (await plane.record("a")).state == "ready"


async def test_a_name_moves_within_a_lineage_only_when_asked(plane: Plane) -> None:
    await plane.create("exp")
    old = await plane.checkpoint("exp", "base")
    await plane.run("exp", "x = 1")
    with pytest.raises(NameTaken):
        await plane.checkpoint("exp", "base")
    new = await plane.checkpoint("exp", "base", rebind=True)
    assert (await plane.record("base")).checkpoint_id == new.checkpoint_id
    assert (await plane.record(old.checkpoint_id)).name is None
    await plane.fork("base", "kid")
    await plane.checkpoint("kid", "base", rebind=True)  # a fork is of the same lineage
    await plane.create("stranger")
    with pytest.raises(NameTaken):
        await plane.checkpoint("stranger", "base", rebind=True)
    with pytest.raises(NameTaken) as caught:
        await plane.checkpoint("exp", "kid", rebind=True)
    assert caught.value.context["kind"] == "runtime"


async def test_a_pinned_name_does_not_move(plane: Plane) -> None:
    await plane.create("exp")
    await plane.cp.checkpoint_sandbox("exp", SandboxCheckpointRequest(checkpoint="base", pin=True))
    with pytest.raises(CheckpointPinned):
        await plane.checkpoint("exp", "base", rebind=True)
    assert len((await plane.cp.checkpoints()).checkpoints) == 1


async def test_a_failed_rebind_leaves_the_name_where_it_was(plane: Plane) -> None:
    await plane.create("exp")
    old = await plane.checkpoint("exp", "base")
    await plane.run("exp", "x = 1")
    plane.toy.fail("checkpoint", ProviderError("no"))
    with pytest.raises(ProviderError):
        await plane.checkpoint("exp", "base", rebind=True)
    assert (await plane.record("base")).checkpoint_id == old.checkpoint_id


async def test_delete_frees_the_name_and_links_over_the_gap(plane: Plane) -> None:
    await plane.create("exp")
    first = await plane.checkpoint("exp", "a")
    middle = await plane.checkpoint("exp", "b")
    last = await plane.checkpoint("exp", "c")
    deleted = await plane.cp.delete_checkpoint("b")
    assert deleted.checkpoint.checkpoint_id == middle.checkpoint_id
    assert (await plane.record("c")).parent_checkpoint_id == first.checkpoint_id
    with pytest.raises(CheckpointNotFound, match="was deleted"):
        await plane.record(middle.checkpoint_id)
    await plane.cp.delete_checkpoint(last.checkpoint_id)
    assert (await plane.cp.runtime("exp")).head_checkpoint_id == first.checkpoint_id
    assert (await plane.checkpoint("exp", "b")).parent_checkpoint_id == first.checkpoint_id


async def test_delete_refuses_a_pinned_one_until_it_is_unpinned(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    assert (await plane.cp.pin_checkpoint("base", True)).pinned
    with pytest.raises(CheckpointPinned):
        await plane.cp.delete_checkpoint("base")
    with pytest.raises(CheckpointPinned):
        await plane.delete_snapshot((await plane.record("base")).checkpoint_id)
    assert not (await plane.cp.pin_checkpoint("base", False)).pinned
    await plane.cp.delete_checkpoint("base")


async def test_what_a_paused_runtime_resumes_from_stays(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    paused = await plane.pause(runtime_id, name="night")
    with pytest.raises(CheckpointInUse, match="exp"):
        await plane.cp.delete_checkpoint("night")
    with pytest.raises(CheckpointInUse):
        await plane.delete_snapshot(paused.checkpoint_id)
    await plane.resume(runtime_id)
    await plane.cp.delete_checkpoint("night")


async def test_prune_deletes_the_rest_and_returns_names(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.checkpoint("exp", "kept")
    await plane.cp.pin_checkpoint("kept", True)
    await plane.checkpoint("exp", "a")
    unnamed = await plane.checkpoint("exp")
    await plane.pause(runtime_id, name="night")
    assert (await plane.cp.prune_checkpoints()).deleted == ("a", unnamed.checkpoint_id)
    assert [c.name for c in (await plane.cp.checkpoints()).checkpoints] == ["kept", "night"]


async def test_delete_snapshot_drops_this_reference_and_keeps_the_record(plane: Plane) -> None:
    await plane.create("exp")
    first = await plane.checkpoint("exp", "a")
    second = await plane.checkpoint("exp", "b")
    dropped = await plane.delete_snapshot(first.checkpoint_id)
    assert (dropped.provider, dropped.deleted_provider_snapshot) == ("toy", False)
    assert len(plane.toy.snapshots) == 1
    assert (await plane.record("a")).state == "snapshot_deleted"
    with pytest.raises(SnapshotDeleted):
        await plane.fork("a", "kid")
    await plane.fork("b", "kid")
    gone = await plane.delete_snapshot(second.checkpoint_id)
    assert gone.deleted_provider_snapshot
    assert gone.provider_snapshot_id is not None
    assert plane.toy.snapshots == {}
    again = await plane.delete_snapshot(second.checkpoint_id)
    assert (again.deleted_provider_snapshot, again.provider_snapshot_id) == (False, None)
    assert again.deleted_at_ms == gone.deleted_at_ms
    assert plane.toy.calls.count("delete_snapshot") == 1


async def test_a_failed_delete_snapshot_changes_nothing(plane: Plane) -> None:
    await plane.create("exp")
    taken = await plane.checkpoint("exp", "a")
    plane.toy.fail("delete_snapshot", ProviderError("not now"))
    with pytest.raises(ProviderError):
        await plane.delete_snapshot(taken.checkpoint_id)
    assert (await plane.record("a")).state == "ready"
    await plane.fork("a", "kid")
    assert (await plane.checkpoint("exp")).reused
    assert not (await plane.delete_snapshot(taken.checkpoint_id)).deleted_provider_snapshot


async def test_a_snapshot_is_not_deleted_while_it_is_read(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    taken = await plane.checkpoint("exp", "a")
    gate = plane.toy.hold("checkout")
    forking = asyncio.create_task(plane.fork("a", "kid"))
    await gate.entered.wait()
    deleting = asyncio.create_task(plane.delete_snapshot(taken.checkpoint_id))

    async def fork_until_refused() -> None:
        while True:
            await plane.fork("a")

    with pytest.raises(SnapshotDeleted):  # who comes later sees it go
        await fork_until_refused()
    assert not deleting.done()
    gate.open.set()
    await forking
    assert (await deleting).deleted_provider_snapshot
    assert await plane.run("kid", "x") == "1"


async def test_one_snapshot_that_cannot_be_deleted_does_not_stop_the_rest(plane: Plane) -> None:
    await plane.create("exp")
    for name in ("a", "b"):
        await plane.run("exp", "x = 1")
        await plane.checkpoint("exp", name)
    plane.toy.fail("delete_snapshot", ProviderError("poisoned"))
    await plane.cp.delete_checkpoint("a")
    assert len(plane.toy.snapshots) == 2
    await plane.cp.delete_checkpoint("b")
    assert plane.toy.snapshots == {}


async def test_health_counts_what_is_held(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.checkpoint("exp", "a")
    health = await plane.cp.health()
    assert (health.live_runtimes, health.held_snapshots) == (1, 1)
    await plane.close(runtime_id)
    await plane.cp.delete_checkpoint("a")
    health = await plane.cp.health()
    assert (health.live_runtimes, health.held_snapshots) == (0, 0)
