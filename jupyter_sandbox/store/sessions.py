"""Rows of sessions."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from jupyter_sandbox.models import SessionLifecycleStatus, SessionRecord, now_ms
from jupyter_sandbox.store import statements
from jupyter_sandbox.store.schema import sessions


def _values(record: SessionRecord) -> dict[str, Any]:
    return record.model_dump(mode="json") | {"engine": record.settings.engine}


def insert(connection: sa.Connection, record: SessionRecord) -> None:
    """Add a new session."""
    statements.insert(connection, sessions, _values(record))


def get(connection: sa.Connection, session_id: str) -> SessionRecord | None:
    """The session of that id, closed ones too."""
    row = connection.execute(statements.by_key(sessions), {statements.KEY: session_id}).mappings().one_or_none()
    return SessionRecord.model_validate(dict(row)) if row else None


def every(connection: sa.Connection, *, include_closed: bool = True) -> list[SessionRecord]:
    """All sessions, oldest first."""
    query = sessions.select().order_by(sessions.c.created_at_ms, sa.literal_column("sessions.rowid"))
    if not include_closed:
        query = query.where(sessions.c.status != SessionLifecycleStatus.closed)
    return [SessionRecord.model_validate(dict(row)) for row in connection.execute(query).mappings()]


def update(connection: sa.Connection, session_id: str, **changes: Any) -> SessionRecord:
    """Change columns of a session (JSON values), note the time, and return it as it is now."""
    changes.setdefault("updated_at_ms", now_ms())
    statements.update(connection, sessions, session_id, changes)
    record = get(connection, session_id)
    if record is None:
        raise LookupError(session_id)
    return record


def descendants(connection: sa.Connection, session_id: str) -> list[str]:
    """The ids of the sessions that were branched from it, and from those, and so on: the deepest first."""
    below = (
        sa.select(sessions.c.session_id, sa.literal(1).label("depth"))
        .where(sessions.c.parent_runtime_id == session_id)
        .cte("below", recursive=True)
    )
    below = below.union_all(
        sa.select(sessions.c.session_id, below.c.depth + 1).where(sessions.c.parent_runtime_id == below.c.session_id)
    )
    return list(connection.execute(sa.select(below.c.session_id).order_by(below.c.depth.desc())).scalars())


def bound_backends(connection: sa.Connection, engine: str) -> set[str]:
    """The ids of the backends that sessions of an engine are bound to, failed sessions too."""
    query = sa.select(sessions.c.backend_instance).where(
        sessions.c.engine == engine, sessions.c.backend_instance.is_not(None)
    )
    return set(connection.execute(query).scalars())
