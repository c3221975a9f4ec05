"""Runtimes: create, list, change, attach, pause and close (resume is a branch from a checkpoint)."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa

from jupyter_sandbox.errors import CheckpointInUse, CheckpointNotFound, CheckpointPinned, WrongStatus
from jupyter_sandbox.lifecycle import Event
from jupyter_sandbox.models import (
    RuntimeCloseRequest,
    RuntimeCreateRequest,
    RuntimeCreateResult,
    RuntimeList,
    RuntimePauseRequest,
    RuntimePauseResult,
    RuntimeResult,
    RuntimeSummary,
    RuntimeUpdateRequest,
    SessionLifecycleStatus,
    SessionRecord,
    SessionSettings,
    Timings,
    new_id,
    now_ms,
)
from jupyter_sandbox.service import names
from jupyter_sandbox.service.checkpoints import Checkpoints, Wanted
from jupyter_sandbox.service.core import Core
from jupyter_sandbox.service.locks import Writes
from jupyter_sandbox.service.operations import Operation
from jupyter_sandbox.store import checkpoints as checkpoint_rows
from jupyter_sandbox.store import names as name_rows
from jupyter_sandbox.store import sessions

_LIVE = {SessionLifecycleStatus.idle, SessionLifecycleStatus.running, SessionLifecycleStatus.paused}


class Runtimes:
    """Operations on runtimes."""

    def __init__(self, core: Core, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints
        self._creating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- making

    async def create(self, request: RuntimeCreateRequest) -> RuntimeCreateResult:
        """A new runtime on a backend of its own, or bound to another runtime's (``attach_to``)."""
        async with self._core.operation("create") as op:
            if request.name is None or not request.exist_ok:
                session = await self._create(op, request)
                return await self._created(session, op.timings(), created=True)
            # two who want the same name at once: the second waits, and gets what the first made
            turn = self._creating.setdefault(request.name, asyncio.Lock())
            async with op.waiting(turn):
                existing = await self._existing(request.name)
                session = existing or await self._create(op, request)
                return await self._created(session, op.timings(), created=existing is None)

    async def _created(self, session: SessionRecord, timings: Timings, *, created: bool) -> RuntimeCreateResult:
        return RuntimeCreateResult(runtime=await self._core.summary(session), created=created, timings=timings)

    async def _existing(self, name: str) -> SessionRecord | None:
        """The live runtime of that name."""
        session = await self._core.store.run(lambda c: names.find_runtime(c, name))
        return session if session is not None and session.status in _LIVE else None

    async def _create(self, op: Operation, request: RuntimeCreateRequest) -> SessionRecord:
        if request.attach_to is not None:
            return await self._bind_to(op, request, request.attach_to)
        core, session_id = self._core, new_id("rt")
        engine = await core.hosts.for_new(request.engine)
        with op.in_engine():
            settings = await engine.resolve(request)
        await op.intend(
            lambda c: name_rows.take(c, request.name, "runtime", session_id),
            engine=request.engine,
            durable=engine.capabilities.durable,
            runtime_id=session_id,
        )
        op.undo(lambda: op.write(lambda c: name_rows.free(c, session_id)))
        with op.in_engine():
            backend = await engine.create(op.backend_id, settings, request.env)
        op.undo(lambda: core.backends.release(engine, backend.backend_id))
        session = _session(session_id, request, settings, backend.backend_id)
        await op.commit(lambda c: sessions.insert(c, session))
        core.backends.bind(session_id, engine, backend)
        return session

    async def _bind_to(self, op: Operation, request: RuntimeCreateRequest, ref: str) -> SessionRecord:
        """A second runtime on a live backend: its files, its memory, its order are shared."""
        core, session_id = self._core, new_id("rt")
        async with core.alone(op, ref, Event.attach, writes=Writes.land) as target:
            binding = core.backends.of(target.session_id)
            session = _session(session_id, request, target.settings, binding.backend.backend_id)

            def work(connection: sa.Connection) -> None:
                name_rows.take(connection, request.name, "runtime", session_id)
                sessions.insert(connection, session)

            await op.intend(
                engine=target.settings.engine, durable=binding.engine.capabilities.durable, runtime_id=session_id
            )
            await op.commit(work)
            core.gates.share(session_id, target.session_id)
            core.backends.share(session_id, target.session_id)
        return session

    # -- reading and changing

    async def get(self, ref: str) -> RuntimeSummary:
        """One runtime, closed ones by their id."""
        return await self._core.summary(await self._core.session(ref))

    async def every(self, *, include_closed: bool) -> RuntimeList:
        """All runtimes, oldest first."""
        records = await self._core.store.run(lambda c: sessions.every(c, include_closed=include_closed))
        return RuntimeList(runtimes=tuple(await self._core.summaries(records)))

    async def update(self, ref: str, request: RuntimeUpdateRequest) -> RuntimeSummary:
        """Rename, or replace the metadata."""
        session = await self._core.session(ref)

        def work(connection: sa.Connection) -> SessionRecord:
            there = names.runtime(connection, session.session_id)
            changes: dict[str, Any] = {}
            if request.name is not None and request.name != there.name:
                if there.status is SessionLifecycleStatus.closed:
                    raise WrongStatus(f"Runtime {there.session_id} is closed and holds no name")
                name_rows.free(connection, there.session_id)  # all of this is undone when the new name is taken
                name_rows.take(connection, request.name, "runtime", there.session_id)
                changes["name"] = request.name
            if request.metadata is not None:
                changes["metadata"] = request.metadata
            return sessions.update(connection, there.session_id, **changes) if changes else there

        return await self._core.summary(await self._core.store.run(work, durable=self._core.durable(session)))

    async def attach(self, ref: str) -> RuntimeResult:
        """The current snapshot of a live runtime's session; makes nothing, changes nothing."""
        async with self._core.operation("attach") as op:
            session = await self._core.session(ref)
            self._core.admit(session, Event.attach)
            return RuntimeResult(runtime=self._core.public(session), timings=op.timings())

    # -- letting go

    async def pause(self, request: RuntimePauseRequest) -> RuntimePauseResult:
        """Checkpoint an idle runtime and release its backend; when that fails it stays live and idle."""
        core = self._core
        wanted = Wanted(name=request.name, metadata=request.metadata)
        async with core.operation("pause") as op:
            async with core.alone(op, request.runtime_id, Event.pause, writes=Writes.drain) as session:
                status = core.admit_row(session, Event.pause)

                def paused(connection: sa.Connection) -> None:
                    there = sessions.get(connection, session.session_id)
                    if there is not None:
                        core.admit_row(there, Event.pause)  # its backend may have died after the snapshot
                    sessions.update(connection, session.session_id, status=status, backend_instance=None)

                taken = await self._checkpoints.take(op, session, wanted, also=paused)
                with op.in_engine():
                    await core.release(session)
            timings = op.timings()
        record = taken.stored.record
        return RuntimePauseResult(
            runtime=core.public(taken.session),
            checkpoint_id=record.checkpoint_id,
            created_at_ms=record.created_at_ms,
            name=record.name,
            metadata=record.metadata,
            checkpoint=record,
            timings=timings,
        )

    async def close(self, request: RuntimeCloseRequest) -> RuntimeResult:
        """Let go of a runtime, running or not; its checkpoints and children stay, unless ``cascade``."""
        core = self._core
        async with core.operation("close") as op:
            if request.cascade:
                for below in await core.store.run(lambda c: sessions.descendants(c, request.runtime_id)):
                    await self.close(RuntimeCloseRequest(runtime_id=below))
                    await self._delete_checkpoints(below)
            session = await self._close(op, request.runtime_id)
            if request.cascade:
                await self._delete_checkpoints(session.session_id)
            timings = op.timings()
        return RuntimeResult(runtime=core.public(session), timings=timings)

    async def _delete_checkpoints(self, session_id: str) -> None:
        """Delete the checkpoints of a closed runtime, except those that are kept."""
        for stored in await self._core.store.run(lambda c: checkpoint_rows.of_runtime(c, session_id)):
            try:
                await self._checkpoints.delete(stored.record.checkpoint_id)
            except (CheckpointPinned, CheckpointInUse, CheckpointNotFound):
                continue  # kept on purpose, or gone already

    async def _close(self, op: Operation, ref: str) -> SessionRecord:
        core = self._core
        async with core.alone(op, ref, Event.close, writes=Writes.cut) as session:
            if session.status is SessionLifecycleStatus.closed:
                return session
            status = core.admit_row(session, Event.close)

            def closed(connection: sa.Connection) -> SessionRecord:
                name_rows.free(connection, session.session_id)
                return sessions.update(connection, session.session_id, status=status, backend_instance=None)

            await op.intend(
                engine=session.settings.engine, durable=core.durable(session), runtime_id=session.session_id
            )
            after = await op.commit(closed)
            with op.in_engine():
                await core.release(session)
        return after


def _session(
    session_id: str, request: RuntimeCreateRequest, settings: SessionSettings, backend_id: str
) -> SessionRecord:
    now = now_ms()
    return SessionRecord(
        session_id=session_id,
        conversation_id=request.conversation_id or "",
        sender_id=request.sender_id or "",
        status=SessionLifecycleStatus.idle,
        settings=settings,
        backend_instance=backend_id,
        name=request.name,
        metadata=request.metadata,
        created_at_ms=now,
        updated_at_ms=now,
    )
