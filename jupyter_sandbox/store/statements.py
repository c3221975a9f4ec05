"""Statements over one table, built once: building and hashing one costs more than SQLite needs to run it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa

KEY = "key_"
"""The parameter that holds the primary key."""


@cache
def by_key(table: sa.Table) -> sa.Select[Any]:
    """Select the row of a primary key."""
    return table.select().where(_primary(table) == sa.bindparam(KEY))


def insert(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> None:
    """Add one row."""
    connection.execute(_insert(table), values)


def update(connection: sa.Connection, table: sa.Table, key: str, values: Mapping[str, Any]) -> None:
    """Change columns of the row of a primary key."""
    connection.execute(_update(table, tuple(sorted(values))), {KEY: key, **values})


@cache
def _insert(table: sa.Table) -> sa.Insert:
    return table.insert()


@cache
def _update(table: sa.Table, columns: tuple[str, ...]) -> sa.Update:
    new = {column: sa.bindparam(column, type_=table.c[column].type) for column in columns}
    return table.update().where(_primary(table) == sa.bindparam(KEY)).values(new)


def _primary(table: sa.Table) -> sa.Column[Any]:
    (column,) = table.primary_key.columns
    return column
