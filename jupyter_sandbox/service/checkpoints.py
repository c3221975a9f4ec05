"""Checkpoints: taking, deleting, pinning, pruning, and giving a provider snapshot back."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from pydantic import Field

from jupyter_sandbox.engines.base import Snapshot
from jupyter_sandbox.errors import CheckpointInUse, CheckpointNotFound, CheckpointPinned, WrongStatus
from jupyter_sandbox.lifecycle import Event
from jupyter_sandbox.models import (
    CheckpointDeleteResult,
    CheckpointList,
    CheckpointRecord,
    CheckpointState,
    Metadata,
    PruneResult,
    Record,
    RuntimeCheckpointRequest,
    RuntimeCheckpointResult,
    RuntimeCheckpointSnapshotDeleteResult,
    SessionRecord,
    new_id,
    now_ms,
)
from jupyter_sandbox.service import names
from jupyter_sandbox.service.backends import Binding
from jupyter_sandbox.service.core import Core
from jupyter_sandbox.service.locks import Writes
from jupyter_sandbox.service.operations import Operation
from jupyter_sandbox.store import checkpoints as rows
from jupyter_sandbox.store import names as name_rows
from jupyter_sandbox.store import sessions
from jupyter_sandbox.store import snapshots as snapshot_rows
from jupyter_sandbox.store.checkpoints import StoredCheckpoint


class Wanted(Record):
    """What a caller wants of a new checkpoint."""

    name: str | None = None
    metadata: Metadata = Field(default_factory=dict)
    rebind: bool = False
    pin: bool = False


class Taken(Record):
    """A new checkpoint, its runtime's session after it, and whether the provider snapshot was there already."""

    stored: StoredCheckpoint
    session: SessionRecord
    reused: bool


class Checkpoints:
    """Operations on checkpoints."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- taking

    async def checkpoint(self, request: RuntimeCheckpointRequest, *, pin: bool = False) -> RuntimeCheckpointResult:
        """Take a checkpoint of an idle runtime, which goes on."""
        wanted = Wanted(name=request.name, metadata=request.metadata, rebind=request.rebind, pin=pin)
        async with self._core.operation("checkpoint") as op:
            async with self._core.alone(op, request.runtime_id, Event.checkpoint, writes=Writes.land) as session:
                taken = await self.take(op, session, wanted)
            timings = op.timings()
        record = taken.stored.record
        return RuntimeCheckpointResult(
            checkpoint_id=record.checkpoint_id,
            runtime=self._core.public(taken.session),
            parent_checkpoint_id=record.parent_checkpoint_id,
            created_at_ms=record.created_at_ms,
            name=record.name,
            metadata=record.metadata,
            reused=taken.reused,
            checkpoint=record,
            timings=timings,
        )

    async def take(
        self,
        op: Operation,
        session: SessionRecord,
        wanted: Wanted,
        *,
        also: Callable[[sa.Connection], object] | None = None,
        commits: bool = True,
    ) -> Taken:
        """Take a checkpoint of a runtime that the operation has alone.

        Args:
            op: The operation; its failure after this takes the checkpoint back, unless this commits it.
            session: The runtime's session.
            wanted: Name, metadata, pin.
            also: More to write in the transaction that makes the checkpoint ready.
            commits: Whether the operation has happened with it.
        """
        core = self._core
        binding = core.backends.of(session.session_id)
        capabilities = binding.engine.capabilities
        creating = self._creating(session, wanted, binding)
        checkpoint_id = creating.record.checkpoint_id

        def intend(connection: sa.Connection) -> None:
            if wanted.name is not None and wanted.rebind:
                names.movable_checkpoint(connection, wanted.name, session.session_id)  # moved when it is ready
            else:
                name_rows.take(connection, wanted.name, "checkpoint", checkpoint_id)
            rows.insert(connection, creating)

        await op.intend(
            intend,
            engine=session.settings.engine,
            durable=capabilities.durable,
            runtime_id=session.session_id,
            checkpoint_id=checkpoint_id,
        )
        op.undo(lambda: op.write(lambda c: rows.remove(c, checkpoint_id)))
        snapshot_id = await self._reuse(op, binding, checkpoint_id)
        reused = snapshot_id is not None
        snapshot: Snapshot | None = None
        generation = binding.dirty.generation
        if not reused and (capabilities.memory or capabilities.files or capabilities.processes):
            snapshot_id = op.snapshot_id
            with op.in_engine():
                snapshot = await binding.engine.checkpoint(binding.backend, snapshot_id)
            op.provider_took(snapshot.provider_ms)
            ref = snapshot.ref
            op.undo(lambda: binding.engine.delete_snapshot(ref))

        def ready(connection: sa.Connection) -> tuple[StoredCheckpoint, SessionRecord]:
            stored = _make_ready(connection, creating, wanted, snapshot_id, snapshot)
            record = sessions.update(connection, session.session_id, head_checkpoint_id=checkpoint_id)
            if also is not None:
                also(connection)
                record = sessions.get(connection, session.session_id) or record
            return stored, record

        stored, record = await (op.commit(ready) if commits else op.write(ready))
        if snapshot is not None:
            binding.dirty.taken(op.snapshot_id, generation)
        op.state_bytes = stored.record.bytes
        return Taken(stored=stored, session=record, reused=reused)

    async def _reuse(self, op: Operation, binding: Binding, checkpoint_id: str) -> str | None:
        """Refer to the provider snapshot that the backend still equals; None when there is no such snapshot."""
        if binding.dirty.clean_on is None:
            return None
        if binding.engine.capabilities.memory:
            with op.in_engine():
                quiet = await binding.backend.quiescent()
            if not quiet:
                return None
        snapshot_id = binding.dirty.clean_on  # asked again: a write may have landed meanwhile
        if snapshot_id is None:
            return None

        def refer(connection: sa.Connection) -> bool:
            if snapshot_rows.get(connection, snapshot_id) is None:
                return False
            rows.update(connection, checkpoint_id, snapshot_id=snapshot_id)
            return True

        return snapshot_id if await op.write(refer) else None

    def _creating(self, session: SessionRecord, wanted: Wanted, binding: Binding) -> StoredCheckpoint:
        capabilities = binding.engine.capabilities
        record = CheckpointRecord(
            checkpoint_id=new_id("cp"),
            runtime_id=session.session_id,
            source=session.name or session.session_id,
            name=None if wanted.rebind else wanted.name,
            state=CheckpointState.creating,
            parent_checkpoint_id=session.head_checkpoint_id,
            created_at_ms=now_ms(),
            engine=session.settings.engine,
            image=session.settings.image,
            memory=capabilities.memory,
            files=False,
            processes=capabilities.processes,
            shared_memory=capabilities.shares_memory,
            pinned=wanted.pin,
            metadata=wanted.metadata,
        )
        return StoredCheckpoint(record=record, session=session)

    # -- reading

    async def get(self, ref: str) -> CheckpointRecord:
        """The checkpoint that a reference means."""
        return (await self.stored(ref)).record

    async def stored(self, ref: str) -> StoredCheckpoint:
        """As `get`, with what callers do not see.

        Raises:
            CheckpointNotFound: There is none.
        """
        return await self._core.store.run(lambda c: names.checkpoint(c, ref))

    async def every(self, *, include_auto: bool) -> CheckpointList:
        """All checkpoints, oldest first."""
        stored = await self._core.store.run(rows.every)
        return CheckpointList(checkpoints=tuple(s.record for s in stored if include_auto or not s.record.auto))

    # -- keeping and letting go

    async def pin(self, ref: str, *, pinned: bool) -> CheckpointRecord:
        """Keep a checkpoint, or stop keeping it."""

        def work(connection: sa.Connection) -> StoredCheckpoint:
            stored = names.checkpoint(connection, ref)
            return rows.update(connection, stored.record.checkpoint_id, pinned=pinned)

        durable = self._durable(await self.stored(ref))
        return (await self._core.store.run(work, durable=durable)).record

    async def delete(self, ref: str) -> CheckpointDeleteResult:
        """Delete a checkpoint; its name is free at once, its bytes go when nothing refers to them."""
        stored = await self.stored(ref)
        async with self._core.operation("delete") as op:
            await self._intend(op, stored)

            def bury(connection: sa.Connection) -> StoredCheckpoint:
                there = names.checkpoint(connection, stored.record.checkpoint_id)
                _refuse_held(connection, there)
                rows.bury(connection, there)
                return there

            buried = await op.commit(bury)
            with op.in_engine():
                await self._core.snapshots.collect(stored.record.engine)
        return CheckpointDeleteResult(checkpoint=buried.record, deleted_at_ms=now_ms())

    async def prune(self) -> PruneResult:
        """Delete every checkpoint that is not pinned and that no paused runtime resumes from."""
        deleted = []
        for stored in await self._core.store.run(rows.every):
            if stored.record.auto:
                continue
            try:
                await self.delete(stored.record.checkpoint_id)
            except (CheckpointPinned, CheckpointInUse, WrongStatus, CheckpointNotFound):
                continue  # kept, still being made, or gone since the list was read
            deleted.append(stored.record.name or stored.record.checkpoint_id)
        return PruneResult(deleted=tuple(deleted))

    async def delete_snapshot(self, checkpoint_id: str) -> RuntimeCheckpointSnapshotDeleteResult:
        """Drop a checkpoint's reference; the provider snapshot goes with its last one. The record stays."""
        core = self._core
        stored = await self.stored(checkpoint_id)
        engine_name = stored.record.engine
        if stored.snapshot_id is None:
            return _snapshot_result(stored, None, deleted=False)
        async with core.operation("delete-snapshot") as op:
            engine = await core.hosts.get(engine_name)

            def claim(connection: sa.Connection) -> tuple[Snapshot | None, bool]:
                there = names.checkpoint(connection, checkpoint_id)
                _refuse_held(connection, there)
                if there.snapshot_id is None or (raw := snapshot_rows.get(connection, there.snapshot_id)) is None:
                    return None, False  # somebody else was quicker
                last = snapshot_rows.references(connection, there.snapshot_id) == 1
                snapshot_rows.set_doomed(connection, there.snapshot_id, doomed=last)
                return Snapshot.model_validate(raw), last

            await self._intend(op, stored)
            snapshot, last = await op.write(claim)
            snapshot_id = stored.snapshot_id
            if last and snapshot is not None:
                op.undo(lambda: op.write(lambda c: snapshot_rows.set_doomed(c, snapshot_id, doomed=False)))
                with op.in_engine():
                    await core.snapshots.delete(engine, snapshot_id, snapshot.ref)

            def drop(connection: sa.Connection) -> StoredCheckpoint:
                there = names.checkpoint(connection, checkpoint_id)
                if snapshot is None:
                    return there
                there = rows.update(
                    connection,
                    checkpoint_id,
                    snapshot_id=None,
                    state=CheckpointState.snapshot_deleted,
                    snapshot_deleted_at_ms=now_ms(),
                )
                if last:
                    snapshot_rows.remove(connection, snapshot_id)
                return there

            stored = await op.commit(drop)
        return _snapshot_result(stored, snapshot, deleted=last)

    async def _intend(self, op: Operation, stored: StoredCheckpoint) -> None:
        await op.intend(
            engine=stored.record.engine,
            durable=self._durable(stored),
            runtime_id=stored.record.runtime_id,
            checkpoint_id=stored.record.checkpoint_id,
        )

    def _durable(self, stored: StoredCheckpoint) -> bool:
        return self._core.hosts.capabilities(stored.record.engine).durable


def _make_ready(
    connection: sa.Connection,
    creating: StoredCheckpoint,
    wanted: Wanted,
    snapshot_id: str | None,
    fresh: Snapshot | None,
) -> StoredCheckpoint:
    """Finish the row: what the snapshot holds, and the name if it moves here."""
    checkpoint_id = creating.record.checkpoint_id
    if wanted.rebind and wanted.name is not None:
        old = names.movable_checkpoint(connection, wanted.name, creating.record.runtime_id)
        if old is not None:
            name_rows.free(connection, old.record.checkpoint_id)
            rows.update(connection, old.record.checkpoint_id, name=None)
        name_rows.take(connection, wanted.name, "checkpoint", checkpoint_id)
    facts = fresh
    if fresh is not None and snapshot_id is not None:
        snapshot_rows.insert(connection, snapshot_id, creating.record.engine, fresh.model_dump(mode="json"))
    elif snapshot_id is not None and (raw := snapshot_rows.get(connection, snapshot_id)) is not None:
        facts = Snapshot.model_validate(raw)
    held = (
        {
            "files": facts.files,
            "bytes": facts.memory_bytes,
            "file_bytes": facts.file_bytes,
            "not_captured": [seen.model_dump(mode="json") for seen in facts.not_captured],
        }
        if facts
        else {}
    )
    return rows.update(
        connection, checkpoint_id, name=wanted.name, state=CheckpointState.ready, snapshot_id=snapshot_id, **held
    )


def _refuse_held(connection: sa.Connection, stored: StoredCheckpoint) -> None:
    """Raise when a checkpoint must stay: it is being made, pinned, or what a paused runtime resumes from."""
    record = stored.record
    label = record.name or record.checkpoint_id
    if record.state is CheckpointState.creating:
        raise WrongStatus(f"Checkpoint {label} is still being made", remedy="Wait until it is ready", checkpoint=label)
    if record.pinned:
        raise CheckpointPinned(f"Checkpoint {label} is pinned", remedy="Unpin it first", checkpoint=label)
    runtime = rows.paused_at(connection, record.checkpoint_id)
    if runtime is not None:
        raise CheckpointInUse(
            f"Paused runtime {runtime} resumes from checkpoint {label}",
            remedy="Resume or close the runtime first",
            checkpoint=label,
            runtime=runtime,
        )


def _snapshot_result(
    stored: StoredCheckpoint, snapshot: Snapshot | None, *, deleted: bool
) -> RuntimeCheckpointSnapshotDeleteResult:
    ref = snapshot.ref if snapshot else None
    return RuntimeCheckpointSnapshotDeleteResult(
        checkpoint_id=stored.record.checkpoint_id,
        runtime_id=stored.record.runtime_id,
        provider=ref.engine if ref else None,
        provider_snapshot_id=ref.provider_snapshot_id if ref else None,
        provider_snapshot_names=tuple(ref.payload.get("names", ())) if ref else (),
        deleted_provider_snapshot=deleted,
        deleted_at_ms=stored.snapshot_deleted_at_ms,
    )
