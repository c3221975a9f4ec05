"""Rows of checkpoints: the record that callers see, the session as it was, and which provider snapshot it refers to."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jupyter_sandbox.models import (
    CheckpointRecord,
    CheckpointState,
    Record,
    SessionLifecycleStatus,
    SessionRecord,
    now_ms,
)
from jupyter_sandbox.store import statements
from jupyter_sandbox.store.schema import checkpoints, names, sessions


class StoredCheckpoint(Record):
    """A checkpoint with what callers do not see.

    Attributes:
        session: The session at that time; checkout copies it.
        snapshot_id: The provider snapshot's row, None when there is none (any more).
    """

    record: CheckpointRecord
    session: SessionRecord
    snapshot_id: str | None = None
    snapshot_deleted_at_ms: int | None = None
    deleted_at_ms: int | None = None


_FORKS = (
    sa.select(sa.func.count())
    .where(
        sessions.c.parent_checkpoint_id == checkpoints.c.checkpoint_id,
        sessions.c.status != SessionLifecycleStatus.closed.value,
    )
    .scalar_subquery()
)
_ALL = sa.select(checkpoints, _FORKS.label("forks"))
_BY_ID = _ALL.where(checkpoints.c.checkpoint_id == sa.bindparam(statements.KEY))
_HELD_BY_RECORD = {"engine", "image", "forks"}  # they come from the session snapshot, or are counted


def insert(connection: sa.Connection, stored: StoredCheckpoint) -> None:
    """Add a checkpoint."""
    values = stored.record.model_dump(mode="json", exclude=_HELD_BY_RECORD)
    values |= {"session": stored.session.model_dump(mode="json"), "snapshot_id": stored.snapshot_id}
    statements.insert(connection, checkpoints, values)


def get(connection: sa.Connection, checkpoint_id: str) -> StoredCheckpoint | None:
    """The checkpoint of that id; of a deleted one a tombstone."""
    row = connection.execute(_BY_ID, {statements.KEY: checkpoint_id}).mappings().one_or_none()
    return _stored(dict(row)) if row else None


def every(connection: sa.Connection) -> list[StoredCheckpoint]:
    """All checkpoints that are not deleted, oldest first."""
    return _select(connection, checkpoints.c.deleted_at_ms.is_(None))


def of_runtime(connection: sa.Connection, runtime_id: str) -> list[StoredCheckpoint]:
    """The checkpoints taken from a runtime, oldest first."""
    return _select(connection, checkpoints.c.deleted_at_ms.is_(None), checkpoints.c.runtime_id == runtime_id)


def on_snapshot(connection: sa.Connection, snapshot_id: str) -> list[StoredCheckpoint]:
    """The checkpoints that refer to a provider snapshot."""
    return _select(connection, checkpoints.c.snapshot_id == snapshot_id)


def parents(connection: sa.Connection) -> dict[str, str | None]:
    """The parent of every checkpoint, tombstones too: a runtime may hang below one."""
    rows = connection.execute(sa.select(checkpoints.c.checkpoint_id, checkpoints.c.parent_checkpoint_id))
    return {row.checkpoint_id: row.parent_checkpoint_id for row in rows}


def _select(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[StoredCheckpoint]:
    query = _ALL.where(*conditions).order_by(checkpoints.c.created_at_ms, sa.literal_column("checkpoints.rowid"))
    return [_stored(dict(row)) for row in connection.execute(query).mappings()]


def _stored(row: dict[str, Any]) -> StoredCheckpoint:
    session = SessionRecord.model_validate(row.pop("session"))
    record = CheckpointRecord.model_validate(
        row | {"engine": session.settings.engine, "image": session.settings.image},
    )
    return StoredCheckpoint.model_validate(row | {"record": record, "session": session})


def update(connection: sa.Connection, checkpoint_id: str, **changes: Any) -> StoredCheckpoint:
    """Change columns of a checkpoint (JSON values) and return it as it is now."""
    statements.update(connection, checkpoints, checkpoint_id, changes)
    stored = get(connection, checkpoint_id)
    if stored is None:
        raise LookupError(checkpoint_id)
    return stored


def paused_at(connection: sa.Connection, checkpoint_id: str) -> str | None:
    """The name or id of a paused runtime that resumes from it."""
    query = sa.select(sessions.c.name, sessions.c.session_id).where(
        sessions.c.status == SessionLifecycleStatus.paused, sessions.c.head_checkpoint_id == checkpoint_id
    )
    row = connection.execute(query).first()
    return (row.name or row.session_id) if row else None


def bury(connection: sa.Connection, stored: StoredCheckpoint) -> None:
    """Delete a checkpoint: its name is free, its reference is dropped, and what pointed at it points at its parent.

    A tombstone stays, for the runtimes that were branched from it.
    """
    checkpoint_id, parent = stored.record.checkpoint_id, stored.record.parent_checkpoint_id
    connection.execute(names.delete().where(names.c.holder == checkpoint_id))
    connection.execute(
        sessions.update().where(sessions.c.head_checkpoint_id == checkpoint_id).values(head_checkpoint_id=parent)
    )
    connection.execute(
        checkpoints.update()
        .where(checkpoints.c.parent_checkpoint_id == checkpoint_id)
        .values(parent_checkpoint_id=parent)
    )
    update(connection, checkpoint_id, snapshot_id=None, deleted_at_ms=now_ms())


def remove(connection: sa.Connection, checkpoint_id: str) -> None:
    """Take back a checkpoint that was never finished."""
    connection.execute(names.delete().where(names.c.holder == checkpoint_id))
    connection.execute(checkpoints.delete().where(checkpoints.c.checkpoint_id == checkpoint_id))


def remove_unfinished(connection: sa.Connection) -> None:
    """Take back all that an earlier process left half made."""
    connection.execute(checkpoints.delete().where(checkpoints.c.state == CheckpointState.creating))
