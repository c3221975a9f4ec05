"""Retries under an idempotency key: the first answer is kept and given again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa

from jupyter_sandbox.errors import Conflict, IdempotencyMismatch, SandboxError, ServerUnavailable, from_dict
from jupyter_sandbox.models import Record
from jupyter_sandbox.service.operations import idempotency_key
from jupyter_sandbox.store import idempotency as rows
from jupyter_sandbox.store import operations
from jupyter_sandbox.store.database import Store


class Replay:
    """The answers of one store, by key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def once(self, key: str, fingerprint: str, call: Callable[[], Awaitable[Record]]) -> dict[str, Any]:
        """Call, or give the answer of the first call under this key; a second one at the same time waits for it.

        Raises:
            IdempotencyMismatch: The key came with another request.
            Conflict: The first call did its work, and its answer was lost with the server that ran it.
            SandboxError: What the first call raised.
        """
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            before = await self._store.run(lambda c: _begin(c, key, fingerprint), durable=True)
            if before is None:
                return await self._first(key, call)
            if before.fingerprint != fingerprint:
                raise IdempotencyMismatch(
                    f"The idempotency key {key!r} was used for another request", remedy="Use a fresh key", key=key
                )
            if before.error is not None:
                raise from_dict(before.error, before.http_status or 500)
            if before.result is not None:
                return before.result
            return await self._after_crash(key, call)

    async def _first(self, key: str, call: Callable[[], Awaitable[Record]]) -> dict[str, Any]:
        token = idempotency_key.set(key)
        try:
            result = (await call()).model_dump(mode="json")
        except ServerUnavailable:
            await self._store.run(lambda c: rows.forget(c, key), durable=True)  # it never began: a retry may
            raise
        except SandboxError as error:
            body, status = error.to_dict(), error.http_status
            await self._store.run(lambda c: rows.finish(c, key, error=body, http_status=status), durable=True)
            raise
        except BaseException:
            await self._store.run(lambda c: rows.forget(c, key), durable=True)
            raise
        finally:
            idempotency_key.reset(token)
        await self._store.run(lambda c: rows.finish(c, key, result=result), durable=True)
        return result

    async def _after_crash(self, key: str, call: Callable[[], Awaitable[Record]]) -> dict[str, Any]:
        """The server ended before the first answer was kept: what was not committed never happened and may run."""
        done = [row for row in await self._store.run(lambda c: operations.of_key(c, key)) if row["state"] == "ok"]
        if not done:
            return await self._first(key, call)
        last = done[-1]
        raise Conflict(
            f"The first request with this key did its work ({last['operation']}), and the server ended before it answered",
            remedy="Look at the runtime and checkpoint named in the context; do not send it again",
            runtime_id=last["runtime_id"],
            checkpoint_id=last["checkpoint_id"],
            operation=last["operation"],
        )


def _begin(connection: sa.Connection, key: str, fingerprint: str) -> rows.Stored | None:
    there = rows.get(connection, key)
    if there is None:
        rows.begin(connection, key, fingerprint)
    return there
