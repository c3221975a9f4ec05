"""A control plane on toy engines, and short words for what the tests do most."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from jupyter_sandbox.models import (
    CellDone,
    CellEvent,
    CellRequest,
    CheckpointRecord,
    Isolation,
    RuntimeCheckoutRequest,
    RuntimeCheckoutResult,
    RuntimeCheckpointRequest,
    RuntimeCheckpointResult,
    RuntimeCheckpointSnapshotDeleteRequest,
    RuntimeCheckpointSnapshotDeleteResult,
    RuntimeCloseRequest,
    RuntimeCreateRequest,
    RuntimePauseRequest,
    RuntimePauseResult,
    RuntimeResult,
    RuntimeResumeRequest,
    RuntimeSummary,
    SandboxForkRequest,
    SandboxForkResult,
)
from jupyter_sandbox.service import ControlPlane, ServiceConfig
from tests.toy_engine import FilesOnlyToy, ToyBackend, ToyEngine


class Plane:
    """A control plane and its engines; `reopen` makes a second one on the same store."""

    def __init__(self, store_dir: Path) -> None:
        self.store_dir = store_dir
        self.toy = ToyEngine()
        self.files_only = FilesOnlyToy()
        self.min_isolation = Isolation.none
        self.cp: ControlPlane

    async def open(self) -> None:
        config = ServiceConfig(store_dir=self.store_dir, min_isolation=self.min_isolation, interrupt_grace_s=0.05)
        self.cp = await ControlPlane.open(config, {"toy": self.toy, "toy-files": self.files_only})

    async def reopen(self) -> None:
        await self.cp.aclose()
        await self.open()

    async def create(self, name: str | None = None, engine: str = "toy", **fields) -> str:
        """Returns the new runtime's id."""
        made = await self.cp.create(RuntimeCreateRequest(engine=engine, name=name, **fields))
        return made.runtime.runtime_id

    async def run(self, ref: str, code: str, **fields) -> str:
        """Runs a cell and returns its text and result; the cell must succeed."""
        events = [event async for event in self.cp.run_cell(ref, CellRequest(code=code, **fields))]
        assert isinstance(events[-1], CellDone)
        assert events[-1].status == "ok", events[-1]
        return "".join(text_of(event) for event in events[:-1])

    async def checkpoint(self, ref: str, name: str | None = None, **fields) -> RuntimeCheckpointResult:
        runtime_id = (await self.cp.runtime(ref)).runtime_id
        return await self.cp.checkpoint(RuntimeCheckpointRequest(runtime_id=runtime_id, name=name, **fields))

    async def checkout(self, ref: str, **fields) -> RuntimeCheckoutResult:
        checkpoint_id = (await self.cp.checkpoint_record(ref)).checkpoint_id
        return await self.cp.checkout(RuntimeCheckoutRequest(checkpoint_id=checkpoint_id, **fields))

    async def fork(self, source: str, name: str | None = None, **fields) -> SandboxForkResult:
        return await self.cp.fork(source, SandboxForkRequest(name=name, **fields))

    async def pause(self, runtime_id: str, **fields) -> RuntimePauseResult:
        return await self.cp.pause(RuntimePauseRequest(runtime_id=runtime_id, **fields))

    async def resume(self, runtime_id: str, **fields) -> RuntimeResult:
        return await self.cp.resume(RuntimeResumeRequest(runtime_id=runtime_id, **fields))

    async def close(self, runtime_id: str, **fields) -> RuntimeResult:
        return await self.cp.close(RuntimeCloseRequest(runtime_id=runtime_id, **fields))

    async def delete_snapshot(self, checkpoint_id: str) -> RuntimeCheckpointSnapshotDeleteResult:
        return await self.cp.delete_snapshot(RuntimeCheckpointSnapshotDeleteRequest(checkpoint_id=checkpoint_id))

    async def status(self, ref: str) -> str:
        return (await self.cp.runtime(ref)).status.value

    async def record(self, ref: str) -> CheckpointRecord:
        return await self.cp.checkpoint_record(ref)

    async def backend(self, ref: str) -> ToyBackend:
        """The live backend behind a runtime, found by its working directory."""
        cwd = (await self.cp.runtime(ref)).cwd
        (found,) = (b for e in (self.toy, self.files_only) for b in e.backends.values() if b.cwd == cwd)
        return found

    async def until(self, ref: str, fits: Callable[[RuntimeSummary], bool]) -> RuntimeSummary:
        """Ask until the runtime is as wanted (the test's time limit is the end of patience)."""
        while True:
            summary = await self.cp.runtime(ref)
            if fits(summary):
                return summary

    async def settle(self) -> None:
        """Let calls that were begun come as far as they can: each asks the store, which answers in order."""
        for _ in range(10):
            await self.cp.runtimes()

    def snapshots_taken(self) -> int:
        return self.toy.calls.count("checkpoint")


def text_of(event: CellEvent) -> str:
    output = getattr(event, "output", {})
    return output.get("text") or output.get("data", {}).get("text/plain", "")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    made = Plane(tmp_path / "store")
    await made.open()
    yield made
    made.toy.open_gates()
    made.files_only.open_gates()
    await made.cp.aclose()
