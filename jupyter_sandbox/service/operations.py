"""Operations: the intent is a row before an engine is asked; the end, and the time in parts, follow.

What an operation did before it failed is taken back by the steps that it pushed on ``undo``.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import sqlalchemy as sa

from jupyter_sandbox.errors import ProviderError, SandboxError, StorageFull
from jupyter_sandbox.models import Timings, new_id, now_ms
from jupyter_sandbox.store import operations as rows
from jupyter_sandbox.store.database import Store

T = TypeVar("T")

log = logging.getLogger(__name__)

idempotency_key: ContextVar[str | None] = ContextVar("idempotency_key", default=None)
"""The key of the request that is being answered, for the intents' rows."""


class Operation:
    """One operation under way. Ids of what it makes are derived from its own, so that leftovers can be traced."""

    def __init__(self, store: Store, word: str) -> None:
        self.word = word
        self.id = new_id("op")
        self.engine = ""
        self.durable = False
        self.state_bytes: int | None = None
        self._store = store
        self._started_at_ms = now_ms()
        self._started = time.perf_counter()
        self._queue = 0.0
        self._engine = 0.0
        self._provider_ms = 0.0
        self.intended = False
        self._undo: list[Callable[[], Awaitable[object]]] = []

    @property
    def backend_id(self) -> str:
        """The id for the backend that this operation makes."""
        return f"be_{self.id.partition('_')[2]}"

    @property
    def snapshot_id(self) -> str:
        """The id for the provider snapshot that this operation makes."""
        return f"sn_{self.id.partition('_')[2]}"

    # -- the clock

    @asynccontextmanager
    async def waiting(self, turn: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
        """Enter ``turn``; the time until it lets us in is queue time."""
        began = time.perf_counter()
        async with turn:
            self._queue += time.perf_counter() - began
            yield

    @contextmanager
    def in_engine(self) -> Iterator[None]:
        """The time in here is the engine's; what it raises becomes an error of ours."""
        began = time.perf_counter()
        try:
            yield
        except SandboxError:
            raise
        except Exception as error:
            raise _from_engine(self.engine, error) from error
        finally:
            self._engine += time.perf_counter() - began

    def provider_took(self, milliseconds: float) -> None:
        """So much of the engine's time was spent in somebody else's API."""
        self._provider_ms += milliseconds

    def timings(self) -> Timings:
        """The time until now, in parts."""
        total = (time.perf_counter() - self._started) * 1000
        queue, engine = self._queue * 1000, max(0.0, self._engine * 1000 - self._provider_ms)
        service = max(0.0, total - queue - engine - self._provider_ms)
        return Timings(queue_ms=queue, service_ms=service, engine_ms=engine, provider_ms=self._provider_ms)

    # -- the rows

    async def intend(
        self,
        work: Callable[[sa.Connection], T] | None = None,
        *,
        engine: str,
        durable: bool,
        runtime_id: str | None = None,
        checkpoint_id: str | None = None,
    ) -> T | None:
        """Write the intent, with what else must be said before an engine is asked (a reserved name)."""
        self.engine, self.durable = engine, durable
        key = idempotency_key.get()

        def transaction(connection: sa.Connection) -> T | None:
            rows.insert(
                connection,
                operation_id=self.id,
                operation=self.word,
                engine=engine,
                runtime_id=runtime_id,
                checkpoint_id=checkpoint_id,
                idempotency_key=key,
                started_at_ms=self._started_at_ms,
            )
            return work(connection) if work else None

        result = await self._store.run(transaction, durable=durable)
        self.intended = True
        return result

    async def commit(self, work: Callable[[sa.Connection], T]) -> T:
        """Make it true: ``work`` and the word that the operation has happened, in one transaction."""

        def transaction(connection: sa.Connection) -> T:
            result = work(connection)
            rows.commit(connection, self.id)
            return result

        result = await self._store.run(transaction, durable=self.durable)
        self.kept()
        return result

    async def write(self, work: Callable[[sa.Connection], T]) -> T:
        """A transaction on the way."""
        return await self._store.run(work, durable=self.durable)

    def undo(self, step: Callable[[], Awaitable[object]]) -> None:
        """Should the operation fail before it is committed, run ``step``; the last pushed runs first."""
        self._undo.append(step)

    def kept(self) -> None:
        """What was done so far stays, whatever happens next."""
        self._undo.clear()

    async def end(self, error: BaseException | None) -> None:
        """Take back what a failed operation did, and write the end."""
        for step in reversed(self._undo):
            try:
                await step()
            except SandboxError as failure:  # what is left is removed when the store is opened again
                log.warning("Taking back %s %s: %s", self.word, self.id, failure)
        self.kept()
        if self.intended:
            timings, state_bytes, body = self.timings(), self.state_bytes, _body(error)
            await self._store.run(lambda c: rows.finish(c, self.id, timings, state_bytes, body))


def _from_engine(engine: str, error: Exception) -> SandboxError:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"Engine {engine} found no room left: {error}", remedy="Free some space")
    return ProviderError(f"Engine {engine} failed: {type(error).__name__}: {error}", remedy="Try again")


def _body(error: BaseException | None) -> dict[str, Any] | None:
    if error is None:
        return None
    if isinstance(error, SandboxError):
        return error.to_dict()
    return SandboxError(f"{type(error).__name__}: {error}").to_dict()


@asynccontextmanager
async def operation(store: Store, word: str) -> AsyncIterator[Operation]:
    """Begin an operation; its clock runs from here. However the block ends, so does the operation's row."""
    running = Operation(store, word)
    try:
        yield running
    except BaseException as error:
        await running.end(error)
        raise
    await running.end(None)
