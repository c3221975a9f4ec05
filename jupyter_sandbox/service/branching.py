"""Branches: a new runtime from a checkpoint (checkout), checkpoint and checkout in one step (fork), and resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from jupyter_sandbox.engines.base import Backend, Child, Engine, Snapshot
from jupyter_sandbox.errors import (
    CheckpointLost,
    SandboxError,
    SessionBusy,
    SnapshotDeleted,
    UnsupportedBackend,
    WrongStatus,
)
from jupyter_sandbox.lifecycle import Event
from jupyter_sandbox.models import (
    CheckpointState,
    Metadata,
    Record,
    RuntimeCheckoutRequest,
    RuntimeCheckoutResult,
    RuntimeResult,
    RuntimeResumeRequest,
    SandboxForkRequest,
    SandboxForkResult,
    SessionForkRequest,
    SessionForkResult,
    SessionLifecycleStatus,
    SessionRecord,
    SessionSettings,
    child_runtime_id,
    now_ms,
)
from jupyter_sandbox.service import names, reconcile
from jupyter_sandbox.service.checkpoints import Checkpoints, Wanted
from jupyter_sandbox.service.core import Core
from jupyter_sandbox.service.locks import Writes
from jupyter_sandbox.service.operations import Operation
from jupyter_sandbox.store import checkpoints as checkpoint_rows
from jupyter_sandbox.store import names as name_rows
from jupyter_sandbox.store import sessions
from jupyter_sandbox.store import snapshots as snapshot_rows
from jupyter_sandbox.store.checkpoints import StoredCheckpoint

T = TypeVar("T")


class Overrides(Record):
    """What a child has of its own; what is None is copied from the checkpointed session."""

    conversation_id: str | None = None
    sender_id: str | None = None
    metadata: Metadata | None = None
    reseed: bool | None = None
    name: str | None = None
    rebind: bool = False


class Branched(Record):
    """A child, and the runtime that gave it its name."""

    session: SessionRecord
    replaced: str | None = None


class Branching:
    """Operations that make runtimes from checkpoints."""

    def __init__(self, core: Core, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints

    async def checkout(self, request: RuntimeCheckoutRequest) -> RuntimeCheckoutResult:
        """A new runtime from a checkpoint, which does not change."""
        overrides = Overrides.model_validate(
            request.model_dump(include=set(Overrides.model_fields)),
        )
        async with self._core.operation("checkout") as op:
            stored = await self._checkpoints.stored(request.checkpoint_id)
            if not request.allow_busy_source:
                self._core.admit(await self._core.session(stored.record.runtime_id), Event.checkout)
            branched = await self._branch(op, stored, overrides)
            timings = op.timings()
        return RuntimeCheckoutResult(
            checkpoint_id=stored.record.checkpoint_id,
            source_runtime_id=stored.record.runtime_id,
            runtime=self._core.public(branched.session),
            timings=timings,
        )

    async def fork(self, source_ref: str, request: SandboxForkRequest) -> SandboxForkResult:
        """A new runtime from a runtime (checkpointed now; a paused one from where it was paused) or a checkpoint."""
        overrides = Overrides.model_validate(request.model_dump())
        source = await self._core.store.run(lambda c: names.find_runtime(c, source_ref))
        async with self._core.operation("fork") as op:
            if source is None:
                stored = await self._checkpoints.stored(source_ref)
            else:
                stored = await self._fork_point(op, source, overrides)
            branched = await self._branch(op, stored, overrides)
            timings = op.timings()
        return SandboxForkResult(
            checkpoint_id=stored.record.checkpoint_id,
            source_runtime_id=stored.record.runtime_id,
            runtime=await self._core.summary(branched.session),
            replaced_runtime_id=branched.replaced,
            timings=timings,
        )

    async def fork_session(self, request: SessionForkRequest) -> SessionForkResult:
        """The first seed's compatibility call; deprecated."""
        source = await self._core.session(request.session_id)
        overrides = Overrides.model_validate(request.model_dump(exclude={"session_id"}))
        async with self._core.operation("fork") as op:
            stored = await self._fork_point(op, source, overrides)
            branched = await self._branch(op, stored, overrides)
        return SessionForkResult(
            session=self._core.public(branched.session),
            source_session_id=source.session_id,
            checkpoint_id=stored.record.checkpoint_id,
        )

    async def resume(self, request: RuntimeResumeRequest) -> RuntimeResult:
        """Bring a paused runtime back, under its id; when that fails it stays paused."""
        core = self._core
        async with core.operation("resume") as op:
            async with core.alone(op, request.runtime_id, Event.resume, writes=Writes.drain) as session:
                status = core.admit_row(session, Event.resume)
                if session.head_checkpoint_id is None:
                    raise CheckpointLost(f"Runtime {session.session_id} has no checkpoint to resume from")
                stored = await self._checkpoints.stored(session.head_checkpoint_id)
                await self._intend(op, stored, session.session_id)
                engine, backend = await self._make(op, stored, session.settings)
                changes = {
                    "status": status,
                    "status_reason": None,
                    "backend_instance": backend.backend_id,
                    "metadata": session.metadata if request.metadata is None else request.metadata,
                }
                resumed = await op.commit(lambda c: sessions.update(c, session.session_id, **changes))
                core.backends.bind(session.session_id, engine, backend, clean_on=stored.snapshot_id)
                op.state_bytes = stored.record.bytes
            timings = op.timings()
        return RuntimeResult(runtime=core.public(resumed), timings=timings)

    # -- steps

    async def _fork_point(self, op: Operation, source: SessionRecord, overrides: Overrides) -> StoredCheckpoint:
        """The checkpoint to branch from: made now, or where a paused source was paused."""
        core = self._core
        if source.status is SessionLifecycleStatus.paused and source.head_checkpoint_id is not None:
            return await self._checkpoints.stored(source.head_checkpoint_id)
        await core.store.run(lambda c: _check_name(c, overrides, source.session_id))  # before any work is done
        try:
            async with core.alone(op, source.session_id, Event.checkpoint, writes=Writes.land) as session:
                taken = await self._checkpoints.take(op, session, Wanted(), commits=False)
        except SessionBusy as error:
            error.remedy = "Wait until it is idle, or fork its newest checkpoint instead"
            raise
        op.kept()
        op.undo(lambda: self._take_back(taken.stored))
        return taken.stored

    async def _take_back(self, stored: StoredCheckpoint) -> None:
        """A fork failed after its checkpoint was made."""

        def bury(connection: sa.Connection) -> None:
            there = checkpoint_rows.get(connection, stored.record.checkpoint_id)
            if there is not None and there.deleted_at_ms is None:
                checkpoint_rows.bury(connection, there)

        await self._core.store.run(bury)
        await self._core.snapshots.collect(stored.record.engine)

    async def _branch(self, op: Operation, stored: StoredCheckpoint, overrides: Overrides) -> Branched:
        """Make the child. A runtime whose name it takes over is closed only when the child is there."""
        core, was, source_id = self._core, stored.session, stored.record.runtime_id
        child_id = child_runtime_id(source_id)
        reseed = was.settings.reseed if overrides.reseed is None else overrides.reseed
        settings = was.settings.model_copy(update={"reseed": reseed})

        def reserve(connection: sa.Connection) -> SessionRecord | None:
            old = _check_name(connection, overrides, source_id)
            if old is None:
                name_rows.take(connection, overrides.name, "runtime", child_id)
            return old

        old = await self._intend(op, stored, child_id, reserve)
        op.undo(lambda: op.write(lambda c: name_rows.free(c, child_id)))
        engine, backend = await self._make(op, stored, settings)
        now = now_ms()
        child = SessionRecord(
            session_id=child_id,
            conversation_id=was.conversation_id if overrides.conversation_id is None else overrides.conversation_id,
            sender_id=was.sender_id if overrides.sender_id is None else overrides.sender_id,
            status=SessionLifecycleStatus.idle,
            settings=settings,
            backend_instance=backend.backend_id,
            name=overrides.name,
            head_checkpoint_id=stored.record.checkpoint_id,
            parent_runtime_id=source_id,
            parent_checkpoint_id=stored.record.checkpoint_id,
            metadata=was.metadata if overrides.metadata is None else overrides.metadata,
            created_at_ms=now,
            updated_at_ms=now,
        )
        replaced: SessionRecord | None = None
        if old is None:
            await op.commit(lambda c: sessions.insert(c, child))
        else:
            async with op.waiting(core.gates.of(old.session_id).exclusive("close", op.id, writes=Writes.cut)):
                replaced = await op.commit(lambda c: _take_over(c, child, overrides, source_id))
                if replaced is not None:
                    with op.in_engine():
                        await core.release(replaced)
        core.backends.bind(child_id, engine, backend, clean_on=stored.snapshot_id)
        op.state_bytes = stored.record.bytes
        return Branched(session=child, replaced=replaced.session_id if replaced else None)

    async def _intend(
        self, op: Operation, stored: StoredCheckpoint, runtime_id: str, work: Callable[[sa.Connection], T] | None = None
    ) -> T | None:
        if op.intended:  # the checkpoint of a fork said so
            return await op.write(work) if work else None
        return await op.intend(
            work,
            engine=stored.record.engine,
            durable=self._core.durable(stored.session),
            runtime_id=runtime_id,
            checkpoint_id=stored.record.checkpoint_id,
        )

    async def _make(self, op: Operation, stored: StoredCheckpoint, settings: SessionSettings) -> tuple[Engine, Backend]:
        """A backend from a checkpoint's provider snapshot."""
        core, record = self._core, stored.record
        label = record.name or record.checkpoint_id
        self._refuse_unusable(stored, label)
        engine = await core.hosts.for_new(record.engine)
        snapshot_id = stored.snapshot_id or ""
        async with core.snapshots.reading(snapshot_id):
            raw = await core.store.run(lambda c: snapshot_rows.get(c, snapshot_id))
            if raw is None:
                raise _snapshot_deleted(label)
            ref = Snapshot.model_validate(raw).ref
            with op.in_engine():
                (made,) = await engine.checkout(ref, [Child(backend_id=op.backend_id, settings=settings)])
        if isinstance(made, CheckpointLost):
            reason = made.message
            await core.store.run(lambda c: reconcile.lose(c, snapshot_id, reason), durable=core.durable(stored.session))
            await core.snapshots.collect(record.engine)
            raise _lost(label, reason)
        if isinstance(made, SandboxError):
            raise made
        op.undo(lambda: core.backends.release(engine, made.backend_id))
        return engine, made

    def _refuse_unusable(self, stored: StoredCheckpoint, label: str) -> None:
        state = stored.record.state
        if state is CheckpointState.creating:
            raise WrongStatus(f"Checkpoint {label} is still being made", remedy="Wait until it is ready")
        if state is CheckpointState.lost:
            raise _lost(label, stored.record.state_reason or "its snapshot is gone")
        if state is CheckpointState.snapshot_deleted:
            raise _snapshot_deleted(label)
        if stored.snapshot_id is None:
            raise UnsupportedBackend(
                f"Engine {stored.record.engine} keeps nothing of a runtime, so checkpoint {label} cannot be checked out",
                remedy="Use an engine that has checkpoints",
                engines=self._core.hosts.with_power("files"),
            )


def _check_name(connection: sa.Connection, overrides: Overrides, source_id: str) -> SessionRecord | None:
    """The runtime to close for the name; raises when the name cannot be had."""
    if overrides.name is None:
        return None
    if overrides.rebind:
        return names.replaceable_runtime(connection, overrides.name, source_id)
    holder = name_rows.holder(connection, overrides.name)
    if holder is not None:
        raise name_rows.taken(overrides.name, holder)
    return None


def _take_over(
    connection: sa.Connection, child: SessionRecord, overrides: Overrides, source_id: str
) -> SessionRecord | None:
    """The child gets the name, and the one that had it, as it was, is closed."""
    old = _check_name(connection, overrides, source_id)  # asked again: it may have been renamed or closed meanwhile
    if old is not None:
        name_rows.free(connection, old.session_id)
        closed = SessionLifecycleStatus.closed
        sessions.update(connection, old.session_id, status=closed, status_reason=None, backend_instance=None)
    name_rows.take(connection, child.name, "runtime", child.session_id)
    sessions.insert(connection, child)
    return old


def _lost(label: str, reason: str) -> CheckpointLost:
    return CheckpointLost(
        f"Checkpoint {label} is lost: {reason}", remedy="Use another checkpoint, or delete this one", checkpoint=label
    )


def _snapshot_deleted(label: str) -> SnapshotDeleted:
    return SnapshotDeleted(
        f"The snapshot of checkpoint {label} was deleted", remedy="Use another checkpoint", checkpoint=label
    )
