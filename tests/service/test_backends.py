from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import RuntimeFailed
from tests.service.conftest import Plane


async def test_death_fails_every_session_on_the_backend(plane: Plane) -> None:
    await plane.create("exp")
    await plane.create("twin", attach_to="exp")
    (await plane.backend("exp")).die("out of memory")
    for name in ("exp", "twin"):
        assert (await plane.until(name, lambda r: r.status == "failed")).reason == "out of memory"


async def test_a_released_backend_is_not_a_dead_one(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.pause(runtime_id)
    assert await plane.status("exp") == "paused"
    await plane.resume(runtime_id)
    await plane.close(runtime_id)
    assert await plane.status(runtime_id) == "closed"


async def test_the_end_of_a_backend_during_a_checkpoint_is_told(plane: Plane) -> None:
    await plane.create("exp")
    await plane.run("exp", "x = 1")
    backend = await plane.backend("exp")
    gate = plane.toy.hold("checkpoint")
    taking = asyncio.create_task(plane.checkpoint("exp", "base"))
    await gate.entered.wait()
    backend.die("killed")
    await plane.until("exp", lambda r: r.status == "failed")
    gate.open.set()
    await taking  # the snapshot was whole
    await plane.fork("base", "kid")
    assert await plane.run("kid", "x") == "1"


async def test_a_backend_that_ends_during_pause_leaves_it_failed_not_paused(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    backend = await plane.backend("exp")
    gate = plane.toy.hold("checkpoint")
    pausing = asyncio.create_task(plane.pause(runtime_id))
    await gate.entered.wait()
    backend.die("killed")
    await plane.until("exp", lambda r: r.status == "failed")
    gate.open.set()
    with pytest.raises(RuntimeFailed):
        await pausing
    assert plane.toy.snapshots == {}
