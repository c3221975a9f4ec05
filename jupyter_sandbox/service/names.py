"""What a reference means, and how a name moves. Functions of a connection, to be used inside a transaction."""

from __future__ import annotations

import sqlalchemy as sa

from jupyter_sandbox.errors import CheckpointNotFound, CheckpointPinned, RuntimeNotFound
from jupyter_sandbox.models import SessionLifecycleStatus, SessionRecord
from jupyter_sandbox.service import lineage
from jupyter_sandbox.store import checkpoints, names, sessions
from jupyter_sandbox.store.checkpoints import StoredCheckpoint


def runtime(connection: sa.Connection, ref: str) -> SessionRecord:
    """The session that an id (closed ones too) or a name means.

    Raises:
        RuntimeNotFound: Nothing, or a checkpoint, has this id or name.
    """
    found = find_runtime(connection, ref)
    if found is not None:
        return found
    if find_checkpoint(connection, ref) is not None:
        raise RuntimeNotFound(f"{ref} is a checkpoint, not a runtime", remedy="Fork it to get a runtime", runtime=ref)
    raise RuntimeNotFound(f"There is no runtime {ref}", remedy="List the runtimes to see what there is", runtime=ref)


def find_runtime(connection: sa.Connection, ref: str) -> SessionRecord | None:
    """As `runtime`, None for nothing."""
    holder = names.holder(connection, ref)
    if holder is not None and holder.kind == "runtime":
        return sessions.get(connection, holder.id)
    return sessions.get(connection, ref)


def checkpoint(connection: sa.Connection, ref: str) -> StoredCheckpoint:
    """The checkpoint that an id or a name means.

    Raises:
        CheckpointNotFound: Nothing, or a runtime, has this id or name; or it was deleted.
    """
    found = find_checkpoint(connection, ref)
    if found is not None and found.deleted_at_ms is None:
        return found
    if found is not None:
        message, remedy = f"Checkpoint {ref} was deleted", "Use another one"
    elif find_runtime(connection, ref) is not None:
        message, remedy = f"{ref} is a runtime, not a checkpoint", "Take a checkpoint of it first"
    else:
        message, remedy = f"There is no checkpoint {ref}", "List the checkpoints to see what there is"
    raise CheckpointNotFound(message, remedy=remedy, checkpoint=ref)


def find_checkpoint(connection: sa.Connection, ref: str) -> StoredCheckpoint | None:
    """As `checkpoint`, None for nothing; of a deleted one its tombstone."""
    holder = names.holder(connection, ref)
    if holder is not None and holder.kind == "checkpoint":
        return checkpoints.get(connection, holder.id)
    return checkpoints.get(connection, ref)


def movable_checkpoint(connection: sa.Connection, name: str, runtime_id: str) -> StoredCheckpoint | None:
    """The checkpoint that must give up ``name`` for a new one of ``runtime_id``; None when the name is free.

    Raises:
        NameTaken: A runtime, or a checkpoint of another lineage, holds it.
        CheckpointPinned: A pinned checkpoint holds it.
    """
    holder = names.holder(connection, name)
    if holder is None:
        return None
    stored = checkpoints.get(connection, holder.id) if holder.kind == "checkpoint" else None
    if stored is None or not _same_lineage(connection, stored.record.runtime_id, runtime_id):
        raise names.taken(name, holder)
    if stored.record.pinned:
        raise CheckpointPinned(
            f"The name {name} belongs to a pinned checkpoint",
            remedy="Unpin it, or choose another name",
            checkpoint=name,
        )
    return stored


def replaceable_runtime(connection: sa.Connection, name: str, source_runtime_id: str) -> SessionRecord | None:
    """The runtime that must be closed so that a branch of ``source_runtime_id`` can have ``name``; None when free.

    Raises:
        NameTaken: A checkpoint, a runtime of another lineage, or the source itself holds it.
    """
    holder = names.holder(connection, name)
    if holder is None:
        return None
    session = sessions.get(connection, holder.id) if holder.kind == "runtime" else None
    if (
        session is None
        or not _same_lineage(connection, session.session_id, source_runtime_id)
        or holder.id == source_runtime_id
    ):
        raise names.taken(name, holder)
    return session


def _same_lineage(connection: sa.Connection, old: str, new: str) -> bool:
    """Whether a name of ``old`` may go to something of ``new``.

    A root that was closed and created again under the same name goes on with the lineage of the closed one: that is
    what running a whole notebook again does.
    """
    if lineage.root(old) == lineage.root(new):
        return True
    before, after = (sessions.get(connection, lineage.root(runtime_id)) for runtime_id in (old, new))
    return (
        before is not None
        and after is not None
        and before.status is SessionLifecycleStatus.closed
        and before.name is not None
        and before.name == after.name
    )
