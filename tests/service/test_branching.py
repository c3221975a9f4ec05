from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import (
    CheckpointLost,
    CheckpointNotFound,
    NameTaken,
    ProviderError,
    RuntimeFailed,
    SessionBusy,
)
from jupyter_sandbox.models import SessionForkRequest
from tests.service.conftest import Plane


async def test_forks_go_on_from_the_checkpoint_and_are_independent(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = [1]")
    await plane.cp.write_bytes("exp", "notes.txt", b"v1")
    await plane.checkpoint("exp", "base")
    await plane.run("exp", "x.append(2)")
    await plane.fork("base", "a")
    await plane.fork("base", "b")
    await plane.run("a", "x.append('a')")
    await plane.cp.write_bytes("a", "notes.txt", b"from a")
    assert await plane.run("a", "x") == "[1, 'a']"
    assert await plane.run("b", "x") == "[1]"
    assert await plane.run("exp", "x") == "[1, 2]"
    assert await plane.cp.read_bytes("b", "notes.txt") == b"v1"
    assert (await plane.record("base")).forks == 2


async def test_a_childs_id_has_the_stem_of_its_source(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.checkpoint("exp", "base")
    kid = (await plane.fork("base", "kid")).runtime
    grandkid = (await plane.fork("kid", "grandkid")).runtime
    assert kid.runtime_id.startswith(f"{runtime_id}.")
    assert grandkid.runtime_id.startswith(f"{runtime_id}.")
    assert grandkid.parent_runtime_id == kid.runtime_id


async def test_context_is_copied_unless_overridden(plane: Plane) -> None:
    await plane.create("exp", conversation_id="c1", sender_id="s1", metadata={"k": 1})
    await plane.checkpoint("exp", "base")
    same = (await plane.checkout("base")).runtime
    assert (same.conversation_id, same.sender_id) == ("c1", "s1")
    assert (await plane.cp.runtime(same.runtime_id)).metadata == {"k": 1}
    other = (await plane.checkout("base", conversation_id="c2", sender_id="", metadata={})).runtime
    assert (other.conversation_id, other.sender_id) == ("c2", "")
    assert (await plane.cp.runtime(other.runtime_id)).metadata == {}


async def test_settings_are_copied_and_reseed_can_be_overridden(plane: Plane) -> None:
    await plane.create("exp", image="toy:7")
    await plane.checkpoint("exp", "base")
    await plane.checkout("base", name="a")
    await plane.checkout("base", name="b", reseed=False)
    assert (await plane.backend("a")).settings == (await plane.backend("exp")).settings
    assert not (await plane.backend("b")).settings.reseed
    assert (await plane.cp.runtime("b")).image == "toy:7"


async def test_checkout_waits_for_an_idle_source_unless_allowed(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("exp", "x = 1"))
    await gate.entered.wait()
    with pytest.raises(SessionBusy):
        await plane.checkout("base")
    await plane.checkout("base", allow_busy_source=True)
    await plane.fork("base", "kid")  # a fork from a checkpoint does not care
    with pytest.raises(SessionBusy) as caught:
        await plane.fork("exp", "kid2")
    assert "Wait until it is idle, or fork its newest checkpoint" in caught.value.remedy
    gate.open.set()
    await cell


@pytest.mark.parametrize("end", ["closed", "paused", "failed"])
async def test_checkout_from_a_source_that_ended(plane: Plane, end: str) -> None:
    runtime_id = await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "base")
    if end == "closed":
        await plane.close(runtime_id)
    elif end == "paused":
        await plane.pause(runtime_id)
    else:
        (await plane.backend("exp")).die("killed")
        await plane.until("exp", lambda r: r.status == "failed")
    kid = await plane.checkout("base", name="kid")
    assert await plane.run("kid", "x") == "1"
    assert kid.source_runtime_id == runtime_id


async def test_fork_of_a_runtime_sees_its_last_write(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "base")
    await plane.run("exp", "x = 2")
    forked = await plane.fork("exp", "kid")
    assert await plane.run("kid", "x") == "2"
    assert (await plane.cp.runtime("exp")).head_checkpoint_id == forked.checkpoint_id
    assert (await plane.record(forked.checkpoint_id)).name is None


async def test_fork_of_a_paused_runtime_does_not_resume_it(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.run("exp", "x = 1")
    paused = await plane.pause(runtime_id)
    forked = await plane.fork("exp", "kid")
    assert forked.checkpoint_id == paused.checkpoint_id
    assert await plane.run("kid", "x") == "1"
    assert await plane.status("exp") == "paused"


async def test_fork_of_a_failed_runtime_says_so(plane: Plane) -> None:
    await plane.create("exp")
    (await plane.backend("exp")).die("killed by the kernel")
    await plane.until("exp", lambda r: r.status == "failed")
    with pytest.raises(RuntimeFailed, match="killed by the kernel"):
        await plane.fork("exp", "kid")


async def test_fork_is_one_operation_with_its_own_timing(plane: Plane) -> None:
    await plane.create("exp")
    await plane.fork("exp", "kid")
    operations = {row.operation: row.n for row in (await plane.cp.latency()).rows}
    assert operations == {"create": 1, "fork": 1}


async def test_the_ids_of_what_an_operation_makes_are_traced_to_it(plane: Plane) -> None:
    await plane.create("exp")
    await plane.fork("exp", "kid")
    (snapshot,) = plane.toy.snapshots
    assert f"be_{snapshot.removeprefix('sn_')}" in plane.toy.backends


async def test_a_missing_source_is_named(plane: Plane) -> None:
    with pytest.raises(CheckpointNotFound, match="no checkpoint nowhere"):
        await plane.fork("nowhere", "kid")


async def test_a_taken_name_is_refused_before_any_work(plane: Plane) -> None:
    await plane.create("exp")
    await plane.create("other")
    await plane.checkpoint("exp", "base")
    for source in ("base", "exp"):
        for name in ("other", "base"):
            with pytest.raises(NameTaken):
                await plane.fork(source, name)
    assert plane.toy.calls.count("checkout") == 0
    assert len((await plane.cp.checkpoints()).checkpoints) == 1


async def test_rebind_closes_the_runtime_of_the_same_lineage(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    await plane.checkpoint("exp", "base")
    old = (await plane.fork("base", "a")).runtime.runtime_id
    await plane.run("a", "x = 9")
    again = await plane.fork("base", "a", rebind=True)
    assert again.replaced_runtime_id == old
    assert await plane.status(old) == "closed"
    assert await plane.run("a", "x") == "1"
    assert len(plane.toy.backends) == 2
    assert (await plane.fork("base", "fresh", rebind=True)).replaced_runtime_id is None


async def test_rebind_takes_a_name_over_while_the_old_one_runs(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    await plane.fork("base", "a")
    gate = plane.toy.hold("run_cell")
    cell = asyncio.create_task(plane.run("a", "1"))
    await gate.entered.wait()
    await plane.fork("base", "a", rebind=True)
    gate.open.set()
    with pytest.raises(RuntimeFailed):
        await cell


async def test_a_failed_rebind_leaves_the_old_one_untouched(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    old = (await plane.fork("base", "a")).runtime.runtime_id
    await plane.run("a", "x = 9")
    plane.toy.fail("checkout", ProviderError("no room"))
    with pytest.raises(ProviderError):
        await plane.fork("base", "a", rebind=True)
    assert (await plane.cp.runtime("a")).runtime_id == old
    assert await plane.run("a", "x") == "9"
    assert len(plane.toy.backends) == 2


async def test_rebind_refuses_strangers_checkpoints_and_the_source_itself(plane: Plane) -> None:
    await plane.create("exp")
    await plane.create("stranger")
    await plane.checkpoint("exp", "base")
    for name in ("stranger", "base", "exp"):
        with pytest.raises(NameTaken):
            await plane.fork("base", name, rebind=True)
    assert await plane.status("exp") == "idle"


async def test_a_failed_fork_of_a_runtime_takes_its_checkpoint_back(plane: Plane) -> None:
    await plane.create("exp")
    first = await plane.checkpoint("exp", "base")
    await plane.run("exp", "x = 1")
    plane.toy.fail("checkout", ProviderError("no room"))
    with pytest.raises(ProviderError):
        await plane.fork("exp", "kid")
    assert [c.name for c in (await plane.cp.checkpoints()).checkpoints] == ["base"]
    assert (await plane.cp.runtime("exp")).head_checkpoint_id == first.checkpoint_id
    assert len(plane.toy.snapshots) == 1
    assert not (await plane.checkpoint("exp")).reused
    await plane.fork("exp", "kid")


async def test_a_cancelled_caller_does_not_stop_a_fork(plane: Plane) -> None:
    await plane.create("exp")
    gate = plane.toy.hold("checkout")
    forking = asyncio.create_task(plane.fork("exp", "kid"))
    await gate.entered.wait()
    forking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forking
    gate.open.set()
    await plane.cp.aclose()  # waits for it
    await plane.open()
    assert await plane.status("kid") == "idle"


async def test_a_checkpoint_whose_snapshot_is_gone_is_lost(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "a")
    await plane.checkpoint("exp", "b")
    plane.toy.snapshots.clear()
    with pytest.raises(CheckpointLost, match="a is lost"):
        await plane.fork("a", "kid")
    assert [(await plane.record(n)).state for n in ("a", "b")] == ["lost", "lost"]
    calls = len(plane.toy.calls)
    with pytest.raises(CheckpointLost):
        await plane.fork("b", "kid")
    assert len(plane.toy.calls) == calls
    assert not (await plane.checkpoint("exp", "c")).reused
    await plane.fork("c", "kid")


async def test_the_deprecated_call_is_checkpoint_and_checkout(plane: Plane) -> None:
    runtime_id = await plane.create("exp", sender_id="s")
    await plane.run("exp", "x = 1")
    made = await plane.cp.fork_session(SessionForkRequest(session_id=runtime_id, conversation_id="c2"))
    assert (made.source_session_id, made.session.conversation_id, made.session.sender_id) == (runtime_id, "c2", "s")
    assert await plane.run(made.session.runtime_id, "x") == "1"
    assert (await plane.record(made.checkpoint_id)).runtime_id == runtime_id


async def test_a_files_only_engine_forks_files(plane: Plane) -> None:
    await plane.create("box", engine="toy-files")
    await plane.cp.write_bytes("box", "f", b"1")
    await plane.run("box", "x = 1")
    forked = await plane.fork("box", "kid")
    assert not (await plane.record(forked.checkpoint_id)).memory
    assert await plane.cp.read_bytes("kid", "f") == b"1"
    assert await plane.run("kid", "'x' in dir()") == "False"
