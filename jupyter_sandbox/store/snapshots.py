"""Rows of provider snapshots. How many checkpoints refer to one is counted, never stored."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jupyter_sandbox.models import now_ms
from jupyter_sandbox.store import statements
from jupyter_sandbox.store.schema import checkpoints, provider_snapshots

_REFERRED = sa.exists().where(checkpoints.c.snapshot_id == provider_snapshots.c.snapshot_id)


def insert(connection: sa.Connection, snapshot_id: str, engine: str, snapshot: dict[str, Any]) -> None:
    """Add a snapshot: what the engine gave, as JSON."""
    row = {"snapshot_id": snapshot_id, "engine": engine, "snapshot": snapshot}
    statements.insert(connection, provider_snapshots, row | {"doomed": False, "created_at_ms": now_ms()})


def get(connection: sa.Connection, snapshot_id: str) -> dict[str, Any] | None:
    """What the engine gave; None when the snapshot is gone or going."""
    row = connection.execute(statements.by_key(provider_snapshots), {statements.KEY: snapshot_id}).one_or_none()
    return None if row is None or row.doomed else dict(row.snapshot)


def references(connection: sa.Connection, snapshot_id: str) -> int:
    """How many checkpoints refer to it."""
    query = sa.select(sa.func.count()).where(checkpoints.c.snapshot_id == snapshot_id)
    return connection.execute(query).scalar_one()


def doom(connection: sa.Connection, engine: str) -> list[tuple[str, dict[str, Any]]]:
    """Mark what no checkpoint of an engine refers to; returns (snapshot id, what the engine gave) of all marked."""
    mine = provider_snapshots.c.engine == engine
    connection.execute(provider_snapshots.update().where(mine, ~_REFERRED).values(doomed=True))
    query = sa.select(provider_snapshots.c.snapshot_id, provider_snapshots.c.snapshot)
    rows = connection.execute(query.where(mine, provider_snapshots.c.doomed.is_(True)))
    return [(row.snapshot_id, row.snapshot) for row in rows]


def set_doomed(connection: sa.Connection, snapshot_id: str, *, doomed: bool) -> None:
    """Mark one snapshot as being deleted, or take that back."""
    statements.update(connection, provider_snapshots, snapshot_id, {"doomed": doomed})


def remove(connection: sa.Connection, snapshot_id: str) -> None:
    """Forget a snapshot that is gone and that nothing refers to."""
    connection.execute(provider_snapshots.delete().where(provider_snapshots.c.snapshot_id == snapshot_id))


def ids(connection: sa.Connection, engine: str) -> set[str]:
    """The snapshots of an engine, those being deleted too."""
    query = sa.select(provider_snapshots.c.snapshot_id).where(provider_snapshots.c.engine == engine)
    return set(connection.execute(query).scalars())


def held(connection: sa.Connection) -> int:
    """How many provider snapshots checkpoints hold, over all engines."""
    return connection.execute(sa.select(sa.func.count()).select_from(provider_snapshots).where(_REFERRED)).scalar_one()
