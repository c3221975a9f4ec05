from __future__ import annotations

import asyncio

from jupyter_sandbox.server.idle import Activity, stop_when_idle


async def test_a_request_under_way_is_no_silence():
    activity = Activity()
    with activity.request(), activity.request():
        assert activity.under_way == 2
        assert activity.quiet_for() == 0.0
    assert activity.under_way == 0
    before = activity.quiet_for()
    await asyncio.sleep(0.01)
    assert activity.quiet_for() > before


async def test_it_stops_when_nothing_is_live_and_nobody_asks():
    stopped = asyncio.Event()

    async def live() -> bool:
        return False

    await stop_when_idle(Activity(), live, stopped.set, 0.01)
    assert stopped.is_set()


async def test_it_goes_on_while_something_is_live():
    stopped = asyncio.Event()
    answers = [True, True, False]

    async def live() -> bool:
        return answers.pop(0)

    await stop_when_idle(Activity(), live, stopped.set, 0.01)
    assert stopped.is_set()
    assert answers == []


async def test_it_goes_on_while_a_request_is_under_way():
    activity = Activity()
    asked = asyncio.Event()
    stopped = asyncio.Event()

    async def live() -> bool:
        asked.set()
        return False

    with activity.request():
        waiting = asyncio.create_task(stop_when_idle(activity, live, stopped.set, 0.001))
        await asyncio.sleep(0.02)
        assert not asked.is_set()
        assert not stopped.is_set()
    await waiting
    assert stopped.is_set()


async def test_a_request_that_comes_during_the_last_look_is_not_cut_off():
    activity = Activity()
    stopped = asyncio.Event()
    looks = 0
    request = activity.request()

    async def live() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            request.__enter__()
        return False

    waiting = asyncio.create_task(stop_when_idle(activity, live, stopped.set, 0.001))
    while looks == 0:
        await asyncio.sleep(0)
    assert not stopped.is_set()
    request.__exit__(None, None, None)
    await waiting
    assert looks == 2
