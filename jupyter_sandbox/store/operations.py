"""Rows of operations: the intent before the engine is asked, the end and the time it took after."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jupyter_sandbox.models import OperationTiming, Timings, now_ms
from jupyter_sandbox.store import statements
from jupyter_sandbox.store.schema import checkpoints, operations

_KEPT = 100_000  # rows; older ones are dropped when the store is opened


def insert(connection: sa.Connection, **values: Any) -> None:
    """Write an intent."""
    statements.insert(connection, operations, values | {"state": "intent"})


def commit(connection: sa.Connection, operation_id: str) -> None:
    """Say, in the transaction that makes it true, that the operation has happened."""
    statements.update(connection, operations, operation_id, {"state": "committed"})


def finish(
    connection: sa.Connection,
    operation_id: str,
    timings: Timings,
    state_bytes: int | None,
    error: dict[str, Any] | None,
) -> None:
    """Write how an operation ended, and its time in parts."""
    state = "failed" if error else "ok"
    end = {"state": state, "error": error, "state_bytes": state_bytes, "finished_at_ms": now_ms()}
    statements.update(connection, operations, operation_id, timings.model_dump() | end)


def finished(connection: sa.Connection, since_ms: int | None = None) -> list[OperationTiming]:
    """The finished operations, oldest first, that began at or after ``since_ms``."""
    query = operations.select().where(operations.c.finished_at_ms.is_not(None)).order_by(operations.c.started_at_ms)
    if since_ms is not None:
        query = query.where(operations.c.started_at_ms >= since_ms)
    return [
        OperationTiming.model_validate(
            dict(row) | {"ok": row["state"] == "ok", "timings": {part: row[part] for part in Timings.model_fields}}
        )
        for row in connection.execute(query).mappings()
        if row["service_ms"] is not None
    ]


def half_forked(connection: sa.Connection) -> list[str]:
    """The checkpoints that were made only for forks which an earlier process left open before their child was there."""
    query = (
        sa.select(checkpoints.c.checkpoint_id)
        .join(operations, operations.c.checkpoint_id == checkpoints.c.checkpoint_id)
        .where(
            operations.c.state == "intent",
            operations.c.operation == "fork",
            # the row of a fork from a checkpoint that was there before names the child instead
            operations.c.runtime_id == checkpoints.c.runtime_id,
        )
    )
    return list(connection.execute(query).scalars())


def settle_unfinished(connection: sa.Connection) -> int:
    """End what an earlier process left open: what was committed happened, the rest failed. Returns how many failed."""
    open_ones = operations.c.finished_at_ms.is_(None)
    connection.execute(
        operations.update()
        .where(open_ones, operations.c.state == "committed")
        .values(state="ok", finished_at_ms=now_ms())
    )
    error = {
        "code": "ServerUnavailable",
        "message": "The server ended while it ran",
        "remedy": "Do it again",
        "context": {},
    }
    failed = connection.execute(
        operations.update().where(open_ones).values(state="failed", error=error, finished_at_ms=now_ms())
    )
    return failed.rowcount


def of_key(connection: sa.Connection, key: str) -> list[dict[str, Any]]:
    """The operations that ran under an idempotency key, oldest first."""
    query = operations.select().where(operations.c.idempotency_key == key).order_by(operations.c.started_at_ms)
    return [dict(row) for row in connection.execute(query).mappings()]


def trim(connection: sa.Connection) -> None:
    """Keep the newest rows only."""
    newest = sa.select(operations.c.operation_id).order_by(operations.c.started_at_ms.desc()).limit(_KEPT)
    total = connection.execute(sa.select(sa.func.count()).select_from(operations)).scalar_one()
    if total > _KEPT:
        connection.execute(operations.delete().where(operations.c.operation_id.not_in(newest)))
