"""What runs inside a runtime: cells, commands, files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import TypeVar, cast

import sqlalchemy as sa

from jupyter_sandbox.engines.base import Backend
from jupyter_sandbox.errors import ProviderError, RuntimeFailed, SandboxError
from jupyter_sandbox.lifecycle import Event
from jupyter_sandbox.models import (
    CellDone,
    CellError,
    CellEvent,
    CellRequest,
    CompleteRequest,
    CompleteResult,
    ExecDone,
    ExecEvent,
    ExecRequest,
    ExportRequest,
    FileStat,
    PathRequest,
    PathResult,
    SearchRequest,
    SearchResult,
    SessionLifecycleStatus,
    SessionRecord,
    TempPathRequest,
)
from jupyter_sandbox.service import names
from jupyter_sandbox.service.core import Core
from jupyter_sandbox.service.locks import Gate
from jupyter_sandbox.service.operations import Operation
from jupyter_sandbox.service.streams import Stream

T = TypeVar("T")

Turn = Callable[[Gate, str, str], AbstractAsyncContextManager[None]]

log = logging.getLogger(__name__)


class Operate:
    """Operations inside a runtime."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- cells and commands: the last event is handed on when the runtime is free again, not before

    def run_cell(self, ref: str, request: CellRequest) -> AsyncGenerator[CellEvent]:
        """Run a cell after those that came before; when the listener goes, it is interrupted."""
        stream: Stream[CellEvent] = Stream()
        return stream.listen(lambda s: self._cell(ref, request, s), self._core.tasks.spawn)

    async def _cell(self, ref: str, request: CellRequest, stream: Stream[CellEvent]) -> None:
        done: CellEvent | None = None
        timed_out = asyncio.Event()
        async with self._core.operation("cell") as op, self._used(op, ref, Gate.cell) as backend:
            if stream.abandoned.is_set():
                return  # who asked went away while it was queued
            limit = asyncio.create_task(self._limit(backend, request.timeout_s, stream, timed_out))
            try:
                with op.in_engine():
                    async with aclosing(_generator(backend.run_cell(request))) as events:
                        async for event in events:
                            if isinstance(event, CellDone):
                                done = event
                            else:
                                await stream.put(event)
            finally:
                limit.cancel()
        if not isinstance(done, CellDone):
            raise ProviderError("The engine ended a cell without a result", remedy="Run it again")
        await stream.put(done.model_copy(update={"timed_out": True}) if timed_out.is_set() else done)

    async def _limit(
        self, backend: Backend, timeout_s: float | None, stream: Stream[CellEvent], timed_out: asyncio.Event
    ) -> None:
        """Interrupt the cell when its time is over or nobody listens; say so when it does not stop."""
        try:
            async with asyncio.timeout(timeout_s):
                await stream.abandoned.wait()
        except TimeoutError:
            timed_out.set()
        grace_s = self._core.config.interrupt_grace_s
        while True:
            try:
                await backend.interrupt()
            except SandboxError as error:  # the backend is gone: the cell's own stream says so
                log.debug("A cell could not be interrupted: %s", error)
                return
            await asyncio.sleep(grace_s)
            if not stream.abandoned.is_set():
                break  # else nobody reads a verdict, and code that caught one interrupt gets the next
        why = f"It did not stop within {grace_s:g} s of the interrupt and still runs; close the runtime to end it"
        verdict = CellError(ename="TimeoutError", evalue=why)
        await stream.end(CellDone(status="aborted", error=verdict, timed_out=True))

    def exec(self, ref: str, request: ExecRequest) -> AsyncGenerator[ExecEvent]:
        """Run a command beside the cells; when the listener goes, its process group ends."""
        stream: Stream[ExecEvent] = Stream()
        return stream.listen(lambda s: self._command(ref, request, s), self._core.tasks.spawn)

    async def _command(self, ref: str, request: ExecRequest, stream: Stream[ExecEvent]) -> None:
        async with self._core.operation("exec") as op, self._used(op, ref, Gate.command) as backend:
            running = asyncio.create_task(self._relay(op, backend, request, stream))
            gone = asyncio.create_task(stream.abandoned.wait())
            try:
                await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                running.cancel()  # closes the iterator: the command's process group ends
                await asyncio.wait({running})
        if running.cancelled():
            return
        done = running.result()
        if done is None:
            raise ProviderError("The engine ended a command without a result", remedy="Run it again")
        await stream.put(done)

    async def _relay(
        self, op: Operation, backend: Backend, request: ExecRequest, stream: Stream[ExecEvent]
    ) -> ExecDone | None:
        done: ExecDone | None = None
        with op.in_engine():
            async with aclosing(_generator(backend.exec(request))) as events:
                async for event in events:
                    if isinstance(event, ExecDone):
                        done = event
                    else:
                        await stream.put(event)
        return done

    async def interrupt(self, ref: str) -> None:
        """Interrupt the running cell; nothing happens when none runs."""
        await (await self._live(ref)).interrupt()

    async def complete(self, ref: str, request: CompleteRequest) -> CompleteResult:
        """Completions at a cursor; may run code, so it waits for cells and counts as a change."""
        async with self._core.operation("complete") as op, self._used(op, ref, Gate.cell) as backend:
            with op.in_engine():
                return await backend.complete(request)

    # -- files that change

    async def write_bytes(self, ref: str, path: str, data: bytes) -> None:
        """Write a file whole."""
        async with self._core.operation("write") as op, self._used(op, ref, Gate.write) as backend:
            with op.in_engine():
                await backend.write_bytes(path, data)

    async def remove(self, ref: str, path: str) -> None:
        """Remove a file or a whole directory."""
        async with self._core.operation("remove") as op, self._used(op, ref, Gate.write) as backend:
            with op.in_engine():
                await backend.remove(path)

    async def create_dir_all(self, ref: str, request: PathRequest) -> PathResult:
        """Make a directory and its parents."""
        async with self._core.operation("mkdir") as op, self._used(op, ref, Gate.write) as backend:
            with op.in_engine():
                await backend.create_dir_all(request.path)
        return PathResult(path=request.path)

    async def temp_path(self, ref: str, request: TempPathRequest) -> PathResult:
        """Make a fresh, empty file or directory."""
        async with self._core.operation("temp-path") as op, self._used(op, ref, Gate.write) as backend:
            with op.in_engine():
                return PathResult(path=await backend.temp_path(request))

    # -- reads: they leave a clean backend clean

    async def read_bytes(self, ref: str, path: str) -> bytes:
        """A file's bytes."""
        return await (await self._live(ref)).read_bytes(path)

    async def stat(self, ref: str, request: PathRequest) -> FileStat:
        """What is at a path."""
        return await (await self._live(ref)).stat(request.path)

    async def search(self, ref: str, request: SearchRequest) -> SearchResult:
        """Files by glob, and text in them."""
        return await (await self._live(ref)).search(request)

    async def export(self, ref: str, request: ExportRequest) -> AsyncGenerator[bytes]:
        """A tar of a file or directory, in pieces."""
        backend = await self._live(ref)
        async with aclosing(_generator(backend.export(request))) as pieces:
            async for piece in pieces:
                yield piece

    # -- steps

    async def _live(self, ref: str) -> Backend:
        session = await self._core.session(ref)
        self._core.admit(session, Event.attach)
        return self._core.backends.of(session.session_id).backend

    @asynccontextmanager
    async def _used(self, op: Operation, ref: str, turn: Turn) -> AsyncIterator[Backend]:
        """The backend, for something that may change it: the runtime is running in here, and dirty from here on."""
        core = self._core
        session = await core.session(ref)
        core.admit(session, Event.start)
        while True:
            gate = core.gates.of(session.session_id)
            async with op.waiting(turn(gate, op.word, op.id)):
                if core.gates.of(session.session_id) is not gate:
                    continue  # it left the backend whose order this was
                await op.intend(
                    partial(self._still, session_id=session.session_id),
                    engine=session.settings.engine,
                    durable=False,
                    runtime_id=session.session_id,
                )
                binding = core.backends.of(session.session_id)
                binding.dirty.bump()
                try:
                    yield binding.backend
                except RuntimeFailed as error:
                    raise await self._explained(session, error) from error
                finally:
                    binding.dirty.bump()  # a snapshot that began meanwhile may not hold what this did
                return

    def _still(self, connection: sa.Connection, session_id: str) -> None:
        """Its turn has come: does it still fit?"""
        self._core.admit_row(names.runtime(connection, session_id), Event.start)

    async def _explained(self, session: SessionRecord, error: RuntimeFailed) -> RuntimeFailed:
        """The error, or that the runtime was closed, which is why its backend is gone."""
        now = await self._core.session(session.session_id)
        if now.status is not SessionLifecycleStatus.closed:
            return error
        label = session.name or session.session_id
        return RuntimeFailed(f"Runtime {label} was closed while this ran", runtime=session.session_id)


def _generator(iterator: AsyncIterator[T]) -> AsyncGenerator[T]:
    """Engines write these methods as generators; closing one early is part of their contract."""
    return cast("AsyncGenerator[T]", iterator)
