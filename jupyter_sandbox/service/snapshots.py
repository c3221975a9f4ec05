"""Provider snapshots in use, and the collection of those that no checkpoint refers to."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from jupyter_sandbox.engines.base import Engine, Snapshot
from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.models import BackendCheckpointRef
from jupyter_sandbox.service.hosts import Hosts
from jupyter_sandbox.store import snapshots as rows
from jupyter_sandbox.store.database import Store

log = logging.getLogger(__name__)


class Snapshots:
    """Who reads a snapshot now; nothing is deleted while it is read."""

    def __init__(self, store: Store, hosts: Hosts) -> None:
        self._store = store
        self._hosts = hosts
        self._readers: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self._collecting = asyncio.Lock()

    @asynccontextmanager
    async def reading(self, snapshot_id: str) -> AsyncIterator[None]:
        """Backends are made from a snapshot in here."""
        self._readers[snapshot_id] += 1
        try:
            yield
        finally:
            self._readers[snapshot_id] -= 1
            async with self._changed:
                self._changed.notify_all()

    async def delete(self, engine: Engine, snapshot_id: str, ref: BackendCheckpointRef) -> None:
        """Delete a doomed snapshot at its engine, once nobody reads it."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._readers[snapshot_id])
            del self._readers[snapshot_id]
        await engine.delete_snapshot(ref)

    async def collect(self, engine_name: str) -> None:
        """Delete what no checkpoint of an engine refers to, now if it can be, else at a later pass."""
        try:
            engine = await self._hosts.get(engine_name)
        except SandboxError as error:
            log.warning("Snapshots of engine %s wait for it: %s", engine_name, error)
            return
        await self.collect_at(engine_name, engine)

    async def collect_at(self, engine_name: str, engine: Engine) -> None:
        """As `collect`, on an engine that has started. One that cannot be deleted never stops the others."""
        async with self._collecting:
            for snapshot_id, raw in await self._store.run(lambda c: rows.doom(c, engine_name)):
                try:
                    await self.delete(engine, snapshot_id, Snapshot.model_validate(raw).ref)
                except SandboxError as error:
                    log.warning("Snapshot %s could not be deleted: %s", snapshot_id, error)
                else:
                    await self._store.run(partial(rows.remove, snapshot_id=snapshot_id))
