"""The control plane: one object with every operation; the work is done by the modules beside this one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from jupyter_sandbox._version import __version__
from jupyter_sandbox.engines import registry
from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.models import (
    CellEvent,
    CellRequest,
    CheckpointDeleteResult,
    CheckpointList,
    CheckpointRecord,
    CompleteRequest,
    CompleteResult,
    EngineList,
    ExecEvent,
    ExecRequest,
    ExportRequest,
    FileStat,
    Health,
    Latency,
    Lineage,
    PathRequest,
    PathResult,
    PruneResult,
    Record,
    RuntimeCheckoutRequest,
    RuntimeCheckoutResult,
    RuntimeCheckpointRequest,
    RuntimeCheckpointResult,
    RuntimeCheckpointSnapshotDeleteRequest,
    RuntimeCheckpointSnapshotDeleteResult,
    RuntimeCloseRequest,
    RuntimeCreateRequest,
    RuntimeCreateResult,
    RuntimeList,
    RuntimePauseRequest,
    RuntimePauseResult,
    RuntimeResult,
    RuntimeResumeRequest,
    RuntimeSummary,
    RuntimeUpdateRequest,
    SandboxCheckpointRequest,
    SandboxForkRequest,
    SandboxForkResult,
    SearchRequest,
    SearchResult,
    SessionForkRequest,
    SessionForkResult,
    SessionLifecycleStatus,
    TempPathRequest,
    now_ms,
)
from jupyter_sandbox.service import latency, lineage, reconcile
from jupyter_sandbox.service.branching import Branching
from jupyter_sandbox.service.checkpoints import Checkpoints
from jupyter_sandbox.service.config import ServiceConfig
from jupyter_sandbox.service.core import Core
from jupyter_sandbox.service.operate import Operate
from jupyter_sandbox.service.replay import Replay
from jupyter_sandbox.service.runtimes import Runtimes
from jupyter_sandbox.store import checkpoints as checkpoint_rows
from jupyter_sandbox.store import operations, sessions
from jupyter_sandbox.store import snapshots as snapshot_rows
from jupyter_sandbox.store.database import Store


class ControlPlane:
    """Everything that can be done with runtimes and checkpoints. Made by `open`, ended by `aclose`.

    A ``ref`` is an id or a name. Every method raises errors of `jupyter_sandbox.errors` only. What changes something
    goes on to its end (or is taken back) when its caller is cancelled.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._checkpoints = Checkpoints(core)
        self._branching = Branching(core, self._checkpoints)
        self._runtimes = Runtimes(core, self._checkpoints)
        self._operate = Operate(core)
        self._replay = Replay(core.store)
        self._started_at_ms = now_ms()

    @classmethod
    async def open(cls, config: ServiceConfig, engines: Mapping[str, Engine] | None = None) -> ControlPlane:
        """Hold the store, start the engines, and bring rows and reality together.

        Args:
            config: Where and how.
            engines: By name; None for all that are installed.

        Raises:
            StoreLocked: Another server holds the store.
        """
        found = registry.discover() if engines is None else registry.Found(dict(engines), {})
        store = await Store.open(config.store_dir)
        core = Core(config, store, found.engines, found.problems)
        try:
            await store.run(reconcile.rows, durable=True)
            await core.hosts.start_all()
        except BaseException:
            await core.tasks.aclose()
            await store.aclose()
            raise
        return cls(core)

    async def aclose(self) -> None:
        """Finish what must be finished and give the store back; backends and snapshots stay for the next one."""
        await self._core.tasks.aclose()
        await self._core.hosts.stop()
        await self._core.store.aclose()

    # -- runtimes

    async def create(self, request: RuntimeCreateRequest) -> RuntimeCreateResult:
        """A new runtime; with ``exist_ok`` the live one of that name, with ``attach_to`` on that one's backend."""
        return await self._core.tasks.shielded(self._runtimes.create(request))

    async def runtime(self, ref: str) -> RuntimeSummary:
        """One runtime."""
        return await self._runtimes.get(ref)

    async def runtimes(self, *, include_closed: bool = False) -> RuntimeList:
        """All runtimes, oldest first."""
        return await self._runtimes.every(include_closed=include_closed)

    async def update(self, ref: str, request: RuntimeUpdateRequest) -> RuntimeSummary:
        """Rename a runtime, or replace its metadata."""
        return await self._core.tasks.shielded(self._runtimes.update(ref, request))

    async def attach(self, ref: str) -> RuntimeResult:
        """The current snapshot of a live runtime; creates nothing."""
        return await self._runtimes.attach(ref)

    async def pause(self, request: RuntimePauseRequest) -> RuntimePauseResult:
        """Checkpoint an idle runtime and release its backend."""
        return await self._core.tasks.shielded(self._runtimes.pause(request))

    async def resume(self, request: RuntimeResumeRequest) -> RuntimeResult:
        """Bring a paused runtime back under its id."""
        return await self._core.tasks.shielded(self._branching.resume(request))

    async def close(self, request: RuntimeCloseRequest) -> RuntimeResult:
        """Let go of a runtime, running or not."""
        return await self._core.tasks.shielded(self._runtimes.close(request))

    # -- checkpoints and branches

    async def checkpoint(self, request: RuntimeCheckpointRequest) -> RuntimeCheckpointResult:
        """Capture an idle runtime."""
        return await self._core.tasks.shielded(self._checkpoints.checkpoint(request))

    async def checkpoint_sandbox(self, ref: str, request: SandboxCheckpointRequest) -> RuntimeCheckpointResult:
        """Capture an idle runtime, named by id or name; pinned when asked."""
        session = await self._core.session(ref)
        inner = RuntimeCheckpointRequest(
            runtime_id=session.session_id, name=request.checkpoint, metadata=request.metadata, rebind=request.rebind
        )
        return await self._core.tasks.shielded(self._checkpoints.checkpoint(inner, pin=request.pin))

    async def checkout(self, request: RuntimeCheckoutRequest) -> RuntimeCheckoutResult:
        """A new runtime from a checkpoint."""
        return await self._core.tasks.shielded(self._branching.checkout(request))

    async def fork(self, source_ref: str, request: SandboxForkRequest) -> SandboxForkResult:
        """A new runtime from a runtime or a checkpoint, in one operation."""
        return await self._core.tasks.shielded(self._branching.fork(source_ref, request))

    async def fork_session(self, request: SessionForkRequest) -> SessionForkResult:
        """Deprecated compatibility: checkpoint and checkout."""
        return await self._core.tasks.shielded(self._branching.fork_session(request))

    async def delete_snapshot(
        self, request: RuntimeCheckpointSnapshotDeleteRequest
    ) -> RuntimeCheckpointSnapshotDeleteResult:
        """Drop a checkpoint's provider snapshot and keep its record."""
        return await self._core.tasks.shielded(self._checkpoints.delete_snapshot(request.checkpoint_id))

    async def checkpoints(self, *, include_auto: bool = False) -> CheckpointList:
        """All checkpoints, oldest first."""
        return await self._checkpoints.every(include_auto=include_auto)

    async def checkpoint_record(self, ref: str) -> CheckpointRecord:
        """One checkpoint."""
        return await self._checkpoints.get(ref)

    async def delete_checkpoint(self, ref: str) -> CheckpointDeleteResult:
        """Delete a checkpoint."""
        return await self._core.tasks.shielded(self._checkpoints.delete(ref))

    async def pin_checkpoint(self, ref: str, pinned: bool) -> CheckpointRecord:
        """Keep a checkpoint, or stop keeping it."""
        return await self._core.tasks.shielded(self._checkpoints.pin(ref, pinned=pinned))

    async def prune_checkpoints(self) -> PruneResult:
        """Delete every checkpoint that nothing keeps."""
        return await self._core.tasks.shielded(self._checkpoints.prune())

    # -- what runs inside

    def run_cell(self, ref: str, request: CellRequest) -> AsyncIterator[CellEvent]:
        """Run a cell after those that came before; `CellDone` comes last, when the runtime is free again."""
        return self._operate.run_cell(ref, request)

    async def interrupt(self, ref: str) -> None:
        """Interrupt the running cell."""
        await self._operate.interrupt(ref)

    async def complete(self, ref: str, request: CompleteRequest) -> CompleteResult:
        """Completions at a cursor."""
        return await self._core.tasks.detached(self._operate.complete(ref, request))

    def exec(self, ref: str, request: ExecRequest) -> AsyncIterator[ExecEvent]:
        """Run a command beside the cells; `ExecDone` comes last."""
        return self._operate.exec(ref, request)

    async def write_bytes(self, ref: str, path: str, data: bytes) -> None:
        """Write a file whole."""
        await self._core.tasks.shielded(self._operate.write_bytes(ref, path, data))

    async def read_bytes(self, ref: str, path: str) -> bytes:
        """A file's bytes."""
        return await self._operate.read_bytes(ref, path)

    async def remove(self, ref: str, path: str) -> None:
        """Remove a file or a whole directory."""
        await self._core.tasks.shielded(self._operate.remove(ref, path))

    async def create_dir_all(self, ref: str, request: PathRequest) -> PathResult:
        """Make a directory and its parents."""
        return await self._core.tasks.shielded(self._operate.create_dir_all(ref, request))

    async def temp_path(self, ref: str, request: TempPathRequest) -> PathResult:
        """Make a fresh, empty file or directory."""
        return await self._core.tasks.shielded(self._operate.temp_path(ref, request))

    async def stat(self, ref: str, request: PathRequest) -> FileStat:
        """What is at a path."""
        return await self._operate.stat(ref, request)

    async def search(self, ref: str, request: SearchRequest) -> SearchResult:
        """Files by glob, and text in them."""
        return await self._operate.search(ref, request)

    def export(self, ref: str, request: ExportRequest) -> AsyncIterator[bytes]:
        """A tar of a file or directory, in pieces."""
        return self._operate.export(ref, request)

    # -- views

    async def lineage(self, *, include_closed: bool = True) -> Lineage:
        """The tree of runtimes and checkpoints."""
        store = self._core.store
        records = await store.run(sessions.every)
        stored = await store.run(checkpoint_rows.every)
        parents = await store.run(checkpoint_rows.parents)
        shown = [s for s in records if include_closed or s.status is not SessionLifecycleStatus.closed]
        return lineage.build(
            await self._core.summaries(shown),
            [s.record for s in stored],
            {s.session_id: s.parent_checkpoint_id for s in records},
            parents,
        )

    async def latency(self, *, since_ms: int | None = None) -> Latency:
        """What operations took, by operation and engine."""
        return latency.table(await self._core.store.run(lambda c: operations.finished(c, since_ms)))

    async def engines(self) -> EngineList:
        """Every engine, and whether it works here."""
        return EngineList(engines=tuple(await self._core.hosts.probe()))

    async def health(self) -> Health:
        """That it answers, and what it holds."""
        records = await self._core.store.run(lambda c: sessions.every(c, include_closed=False))
        return Health(
            version=__version__,
            store=str(self._core.config.store_dir),
            started_at_ms=self._started_at_ms,
            live_runtimes=sum(s.status is SessionLifecycleStatus.idle for s in records),
            held_snapshots=await self._core.store.run(snapshot_rows.held),
        )

    # -- retries

    async def idempotent(self, key: str, fingerprint: str, call: Callable[[], Awaitable[Record]]) -> dict[str, Any]:
        """The JSON of what ``call`` returns, or of what the first call under ``key`` returned (or raised)."""
        return await self._core.tasks.shielded(self._replay.once(key, fingerprint, call))
