"""Work that must not stop half way because the one who asked went away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from jupyter_sandbox.errors import SandboxError, ServerUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one control plane: ``shielded`` ones are waited for when it closes, ``spawned`` ones cancelled."""

    def __init__(self) -> None:
        self._shielded: set[asyncio.Task[Any]] = set()
        self._spawned: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end even if the caller is cancelled; the caller then stops waiting."""
        task = self._start(work, self._shielded)
        return await asyncio.shield(task)

    async def detached(self, work: Coroutine[Any, Any, T]) -> T:
        """As `shielded`, for what may wait for user code: it is cancelled when the control plane closes."""
        task = self.spawn(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ServerUnavailable("The server closed while this ran", remedy="Start it again") from None
            raise

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` beside the caller until it ends or the control plane closes."""
        return self._start(work, self._spawned)

    def _start(self, work: Coroutine[Any, Any, T], among: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
        if self._closed:
            work.close()
            raise ServerUnavailable("The control plane is closing", remedy="Start the server again")
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_looked_at)
        return task

    async def aclose(self) -> None:
        """Accept nothing more, wait for what is shielded, cancel the rest."""
        self._closed = True
        while self._shielded:
            await asyncio.wait(self._shielded)
        for task in self._spawned:
            task.cancel()
        while self._spawned:
            await asyncio.wait(self._spawned)


def _looked_at(task: asyncio.Task[Any]) -> None:
    """A failure whose caller has gone is not lost: an operation wrote it to its row, and it is logged."""
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, SandboxError):
        log.debug("A task ended: %s", error)
    elif error is not None:
        log.error("A task of the control plane failed", exc_info=error)
