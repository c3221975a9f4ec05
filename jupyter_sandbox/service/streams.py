"""A source that runs to its end in a task of its own, and a listener that may go away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Generic, TypeVar

from jupyter_sandbox.errors import ServerUnavailable

T = TypeVar("T")

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

_AHEAD = 256  # events that a source may be ahead of a slow listener before it has to wait


class Stream(Generic[T]):
    """Where a source puts its events; ``abandoned`` is set when nobody listens any more."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[T] = asyncio.Queue(_AHEAD)
        self._ended = asyncio.Event()
        self.abandoned = asyncio.Event()

    async def put(self, event: T) -> None:
        """Hand an event on; waits for a slow listener, and drops it when there is none."""
        if not self.abandoned.is_set() and not self._ended.is_set():
            await self._events.put(event)

    async def end(self, event: T) -> None:
        """Hand on the last event: the listener stops with it, although the source goes on."""
        await self.put(event)
        self._ended.set()

    async def listen(self, source: Callable[[Stream[T]], Coroutine[Any, Any, None]], spawn: Spawn) -> AsyncGenerator[T]:
        """Start ``source`` in a task and yield what it puts; raises what it raises.

        When the listener goes first the source goes on, told by ``abandoned``.
        """
        task = spawn(source(self))
        ended = asyncio.create_task(self._ended.wait())
        try:
            while True:
                event = asyncio.create_task(self._events.get())
                try:
                    await asyncio.wait({event, task, ended}, return_when=asyncio.FIRST_COMPLETED)
                    if not event.done():
                        break
                    yield event.result()
                finally:
                    event.cancel()
            while not self._events.empty():
                yield self._events.get_nowait()
            if task.cancelled():
                raise ServerUnavailable("The server closed while this ran", remedy="Start it again")
            if task.done():
                task.result()
        finally:
            ended.cancel()
            self.abandoned.set()
            while not self._events.empty():  # lets a source that waits for room go on
                self._events.get_nowait()
