from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import ServerUnavailable
from jupyter_sandbox.service.tasks import Tasks


async def test_shielded_work_goes_on_and_closing_waits_for_it() -> None:
    tasks, go, done = Tasks(), asyncio.Event(), []

    async def work() -> None:
        await go.wait()
        done.append(1)

    caller = asyncio.create_task(tasks.shielded(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    closing = asyncio.create_task(tasks.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    go.set()
    await closing
    assert done == [1]


async def test_spawned_work_is_cancelled_and_nothing_begins_after_closing() -> None:
    tasks = Tasks()
    spawned = tasks.spawn(asyncio.Event().wait())
    detached = asyncio.create_task(tasks.detached(asyncio.Event().wait()))
    await asyncio.sleep(0)
    await tasks.aclose()
    assert spawned.cancelled()
    with pytest.raises(ServerUnavailable):
        await detached
    with pytest.raises(ServerUnavailable):
        await tasks.shielded(asyncio.sleep(0))


async def test_a_bug_whose_caller_went_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks, go = Tasks(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise ZeroDivisionError

    caller = asyncio.create_task(tasks.shielded(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go.set()
    await tasks.aclose()
    await asyncio.sleep(0)
    assert "ZeroDivisionError" in caplog.text
