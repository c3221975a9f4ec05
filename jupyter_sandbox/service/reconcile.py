"""When a control plane opens: what the rows say is compared with what exists, and the engine's word is the truth."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable
from functools import partial

import sqlalchemy as sa

from jupyter_sandbox.engines.base import Backend, Engine, Inventory
from jupyter_sandbox.errors import RuntimeFailed, SandboxError
from jupyter_sandbox.lifecycle import Event, advance
from jupyter_sandbox.models import BackendCheckpointRef, CheckpointState, SessionLifecycleStatus, SessionRecord
from jupyter_sandbox.service.backends import Backends
from jupyter_sandbox.service.locks import Gates
from jupyter_sandbox.service.snapshots import Snapshots
from jupyter_sandbox.store import checkpoints, idempotency, names, operations, sessions
from jupyter_sandbox.store import snapshots as snapshot_rows
from jupyter_sandbox.store.database import Store

log = logging.getLogger(__name__)

_LOST = "Its snapshot was gone when the server started"
_GONE = "Its process ended while no server ran"


def rows(connection: sa.Connection) -> None:
    """Settle what an earlier process left open: what it had not committed never happened."""
    checkpoints.remove_unfinished(connection)
    for checkpoint_id in operations.half_forked(connection):
        stored = checkpoints.get(connection, checkpoint_id)
        if stored is not None and stored.deleted_at_ms is None:
            checkpoints.bury(connection, stored)
    failed = operations.settle_unfinished(connection)
    if failed:
        log.warning("%d operations had not ended when the server did", failed)
    names.free_orphans(connection)
    operations.trim(connection)
    idempotency.trim(connection)


async def engine(
    name: str, engine: Engine, store: Store, backends: Backends, gates: Gates, snapshots: Snapshots
) -> None:
    """Adopt what lives, say of the rest what became of it, and remove what no row knows.

    Args:
        name: The engine's name.
        engine: The engine, started.
        store: The rows.
        backends: Where adopted backends are bound.
        gates: Where sessions on one backend share their order.
        snapshots: The collector.
    """
    inventory = await engine.inspect()
    durable = engine.capabilities.durable
    await store.run(lambda c: _lose_snapshots(c, name, inventory), durable=durable)
    records = [s for s in await store.run(sessions.every) if s.settings.engine == name]
    await _adopt(
        engine, inventory, [s for s in records if s.status is SessionLifecycleStatus.idle], store, backends, gates
    )
    known_backends = await store.run(lambda c: sessions.bound_backends(c, name))
    known_snapshots = await store.run(lambda c: snapshot_rows.ids(c, name))
    for backend_id in sorted(inventory.backends - known_backends):
        await _attempt(engine.release(backend_id), f"Backend {backend_id}")
    for snapshot_id in sorted(inventory.snapshots - known_snapshots):
        orphan = BackendCheckpointRef(engine=name, provider_snapshot_id=snapshot_id)
        await _attempt(engine.delete_snapshot(orphan), f"Snapshot {snapshot_id}")
    await snapshots.collect_at(name, engine)


async def _attempt(removal: Awaitable[object], what: str) -> None:
    """One that cannot be removed does not stop the rest; the next start tries again."""
    try:
        await removal
    except SandboxError as error:
        log.warning("%s belongs to nothing and could not be removed: %s", what, error)


def _lose_snapshots(connection: sa.Connection, engine_name: str, inventory: Inventory) -> None:
    """Checkpoints whose snapshot is gone are lost, and so is what was paused at one."""
    for snapshot_id in snapshot_rows.ids(connection, engine_name) - inventory.snapshots:
        lose(connection, snapshot_id, _LOST)
        snapshot_rows.remove(connection, snapshot_id)
    for session in sessions.every(connection):
        if session.settings.engine != engine_name or session.status is not SessionLifecycleStatus.paused:
            continue
        head = checkpoints.get(connection, session.head_checkpoint_id) if session.head_checkpoint_id else None
        if head is None or head.record.state is CheckpointState.lost:
            status = advance(session.status, Event.fail, runtime=session.session_id)
            reason = "The checkpoint that it was paused at is lost"
            sessions.update(connection, session.session_id, status=status, status_reason=reason)


def lose(connection: sa.Connection, snapshot_id: str, reason: str) -> None:
    """Mark every checkpoint on a snapshot as lost, and drop their references."""
    for stored in checkpoints.on_snapshot(connection, snapshot_id):
        checkpoints.update(
            connection,
            stored.record.checkpoint_id,
            state=CheckpointState.lost,
            state_reason=reason,
            snapshot_id=None,
        )


async def _adopt(
    engine: Engine,
    inventory: Inventory,
    records: list[SessionRecord],
    store: Store,
    backends: Backends,
    gates: Gates,
) -> None:
    by_backend: defaultdict[str, list[SessionRecord]] = defaultdict(list)
    for record in records:
        by_backend[record.backend_instance or ""].append(record)
    for backend_id, bound in by_backend.items():
        try:
            if backend_id not in inventory.backends:
                raise RuntimeFailed(_GONE)
            backend: Backend = await engine.adopt(backend_id)
        except SandboxError as error:
            await store.run(partial(_fail, records=bound, reason=error.message), durable=engine.capabilities.durable)
            continue
        first, *others = bound
        backends.bind(first.session_id, engine, backend)
        for other in others:
            gates.share(other.session_id, first.session_id)
            backends.share(other.session_id, first.session_id)


def _fail(connection: sa.Connection, records: list[SessionRecord], reason: str) -> None:
    for record in records:
        status = advance(record.status, Event.fail, runtime=record.session_id)
        sessions.update(connection, record.session_id, status=status, status_reason=reason)
