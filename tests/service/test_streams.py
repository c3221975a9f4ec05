from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import ProviderError, ServerUnavailable
from jupyter_sandbox.service.streams import Stream


async def test_yields_what_is_put_and_raises_what_is_raised() -> None:
    async def source(stream: Stream[int]) -> None:
        await stream.put(1)
        raise ProviderError("broke")

    events = Stream[int]().listen(source, asyncio.create_task)
    assert await anext(events) == 1
    with pytest.raises(ProviderError):
        await anext(events)


async def test_a_source_that_waits_for_room_goes_on_when_the_listener_goes() -> None:
    ended = asyncio.Event()

    async def source(stream: Stream[int]) -> None:
        for n in range(5000):
            await stream.put(n)
        ended.set()

    events = Stream[int]().listen(source, asyncio.create_task)
    assert await anext(events) == 0
    assert not ended.is_set()
    await events.aclose()
    await ended.wait()


async def test_end_lets_the_listener_go_while_the_source_goes_on() -> None:
    go = asyncio.Event()
    tasks = []

    async def source(stream: Stream[int]) -> None:
        await stream.end(7)
        await go.wait()
        await stream.put(8)

    def spawn(work):
        tasks.append(asyncio.create_task(work))
        return tasks[0]

    assert [e async for e in Stream[int]().listen(source, spawn)] == [7]
    assert not tasks[0].done()
    go.set()
    await tasks[0]


async def test_a_cancelled_source_is_a_closed_server() -> None:
    async def source(stream: Stream[int]) -> None:
        await asyncio.Event().wait()

    tasks = []

    def spawn(work):
        tasks.append(asyncio.create_task(work))
        return tasks[0]

    events = Stream[int]().listen(source, spawn)
    listening = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    tasks[0].cancel()
    with pytest.raises(ServerUnavailable):
        await listening
