"""Rows of idempotency keys: the first answer to a request, to be given again."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from jupyter_sandbox.models import now_ms
from jupyter_sandbox.store.schema import idempotency_keys as keys

_KEPT_MS = 24 * 3600 * 1000


class Stored(NamedTuple):
    """A key that was seen; without result and error its first request has not ended (or its server did)."""

    fingerprint: str
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    http_status: int | None


def get(connection: sa.Connection, key: str) -> Stored | None:
    """What is known of a key."""
    row = connection.execute(keys.select().where(keys.c.key == key)).one_or_none()
    return Stored(row.fingerprint, row.result, row.error, row.http_status) if row else None


def begin(connection: sa.Connection, key: str, fingerprint: str) -> None:
    """Note that a request under this key begins."""
    connection.execute(keys.insert().values(key=key, fingerprint=fingerprint, created_at_ms=now_ms()))


def finish(connection: sa.Connection, key: str, **answer: Any) -> None:
    """Keep the answer: ``result``, or ``error`` and ``http_status``."""
    connection.execute(keys.update().where(keys.c.key == key).values(answer))


def forget(connection: sa.Connection, key: str) -> None:
    """Forget a key, so that its request may run again."""
    connection.execute(keys.delete().where(keys.c.key == key))


def trim(connection: sa.Connection) -> None:
    """Forget keys older than a day."""
    connection.execute(keys.delete().where(keys.c.created_at_ms < now_ms() - _KEPT_MS))
