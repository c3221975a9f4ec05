"""Order on one backend: what uses it, what needs it alone, and who is named when somebody must wait.

*Uses* (cells, commands, writes) run beside each other, cells one at a time in order of arrival. An *exclusive*
operation (checkpoint, pause, resume, close) runs alone among its kind; later uses wait for it. One that needs the
backend idle is refused by its caller when `Gate.use` names a use at its arrival, so it never waits for user code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from typing import NamedTuple


class Writes(Enum):
    """What an exclusive operation means for writes."""

    land = "land"  # they go on beside it
    drain = "drain"  # it starts when those under way have ended; later ones wait
    cut = "cut"  # later ones wait, and it does not wait for those under way


class Use(NamedTuple):
    """Something that runs, or waits to run."""

    operation: str
    operation_id: str


class Gate:
    """The order on one backend (or, without one, on one session)."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # fair: waiters get it in order of arrival
        self._cells = asyncio.Lock()
        self._uses: dict[str, Use] = {}
        self._holder: Use | None = None
        self._admits_writes = True
        self._writes = 0
        self._no_writes = asyncio.Event()
        self._no_writes.set()

    @property
    def use(self) -> Use | None:
        """The oldest use that runs or waits: with one, the runtime is running."""
        return next(iter(self._uses.values()), None)

    @property
    def busy_with(self) -> str | None:
        """What holds it now, in a word."""
        first = self.use or self._holder
        return first.operation if first else None

    @asynccontextmanager
    async def cell(self, operation: str, operation_id: str) -> AsyncIterator[None]:
        """One at a time, in order of arrival."""
        with self._using(operation, operation_id):
            async with self._cells:
                async with self._turn:
                    pass
                yield

    @asynccontextmanager
    async def command(self, operation: str, operation_id: str) -> AsyncIterator[None]:
        """Beside cells and other commands, but after an exclusive operation that came first."""
        with self._using(operation, operation_id):
            async with self._turn:
                pass
            yield

    @asynccontextmanager
    async def write(self, operation: str, operation_id: str) -> AsyncIterator[None]:
        """Short; beside everything, a checkpoint too (which leaves the backend dirty), but not beside the rest."""
        with self._using(operation, operation_id):
            if not self._admits_writes:
                async with self._turn:
                    pass
            self._writes += 1
            self._no_writes.clear()
            try:
                yield
            finally:
                self._writes -= 1
                if not self._writes:
                    self._no_writes.set()

    @asynccontextmanager
    async def exclusive(self, operation: str, operation_id: str, *, writes: Writes) -> AsyncIterator[None]:
        """Alone among exclusive operations, in order of arrival.

        Args:
            operation: Its word, for those who are told what they wait for.
            operation_id: Its id.
            writes: What becomes of writes that arrive while it runs.
        """
        async with self._turn:
            self._holder, self._admits_writes = Use(operation, operation_id), writes is Writes.land
            try:
                if writes is Writes.drain:
                    await self._no_writes.wait()
                yield
            finally:
                self._holder, self._admits_writes = None, True

    @contextmanager
    def _using(self, operation: str, operation_id: str) -> Iterator[None]:
        self._uses[operation_id] = Use(operation, operation_id)
        try:
            yield
        finally:
            del self._uses[operation_id]


class Gates:
    """The gate of every session; sessions on one backend share theirs."""

    def __init__(self) -> None:
        self._of: dict[str, Gate] = {}

    def of(self, session_id: str) -> Gate:
        """The session's gate, made on first use."""
        return self._of.setdefault(session_id, Gate())

    def share(self, session_id: str, other: str) -> None:
        """Bind a new session to the gate of another one's backend."""
        self._of[session_id] = self.of(other)

    def part(self, session_id: str) -> None:
        """The session left its backend: it gets a gate of its own. Who waits at the old one looks again."""
        self._of.pop(session_id, None)
