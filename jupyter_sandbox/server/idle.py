"""When a private server has nothing left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


class Activity:
    """Requests under way, and the time since the last one."""

    def __init__(self) -> None:
        self.under_way = 0
        self._quiet_since: float | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request, from its first byte to its last."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self._quiet_since = asyncio.get_running_loop().time()

    def quiet_for(self) -> float:
        """Seconds since the last request ended (since the first call of this, before any); 0.0 while one runs."""
        now = asyncio.get_running_loop().time()
        if self._quiet_since is None:
            self._quiet_since = now
        return 0.0 if self.under_way else now - self._quiet_since


async def stop_when_idle(
    activity: Activity, live: Callable[[], Awaitable[bool]], stop: Callable[[], None], timeout_s: float
) -> None:
    """Call ``stop`` once nothing is ``live`` and no request came for ``timeout_s`` seconds; then return."""
    while True:
        quiet = activity.quiet_for()
        if quiet >= timeout_s and not await live() and not activity.under_way:
            stop()
            return
        await asyncio.sleep(max(timeout_s - quiet, timeout_s / 10))
