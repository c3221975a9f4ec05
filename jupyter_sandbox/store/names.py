"""One namespace for runtimes and checkpoints: who holds a name."""

from __future__ import annotations

from typing import Literal, NamedTuple

import sqlalchemy as sa

from jupyter_sandbox.errors import NameTaken
from jupyter_sandbox.store import statements
from jupyter_sandbox.store.schema import checkpoints, names, sessions

Kind = Literal["runtime", "checkpoint"]


class Holder(NamedTuple):
    """What holds a name: its kind and its id."""

    kind: Kind
    id: str


def holder(connection: sa.Connection, name: str) -> Holder | None:
    """Who holds ``name``; a runtime that is being made holds its name before its row exists."""
    row = connection.execute(statements.by_key(names), {statements.KEY: name}).one_or_none()
    return Holder(row.kind, row.holder) if row else None


def take(connection: sa.Connection, name: str | None, kind: Kind, holder_id: str) -> None:
    """Give a free name to ``holder_id``; None takes nothing, and a name that it holds already stays.

    Raises:
        NameTaken: Something else holds it; the message and ``context["kind"]`` say what.
    """
    if name is None:
        return
    there = holder(connection, name)
    if there == (kind, holder_id):
        return
    if there is not None:
        raise taken(name, there)
    statements.insert(connection, names, {"name": name, "kind": kind, "holder": holder_id})


def taken(name: str, by: Holder) -> NameTaken:
    """The error that says who holds a name."""
    remedy = "Choose another name, or close it first" if by.kind == "runtime" else "Choose another name, or delete it"
    return NameTaken(f"The name {name} is taken by {by.kind} {by.id}", remedy=remedy, name=name, kind=by.kind, id=by.id)


def free(connection: sa.Connection, holder_id: str) -> None:
    """Free whatever name ``holder_id`` holds."""
    connection.execute(names.delete().where(names.c.holder == holder_id))


def free_orphans(connection: sa.Connection) -> None:
    """Free the names of things that were never finished."""
    known = sa.union_all(sa.select(sessions.c.session_id), sa.select(checkpoints.c.checkpoint_id))
    connection.execute(names.delete().where(names.c.holder.not_in(known)))
