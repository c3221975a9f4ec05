"""The engine seam: what the control plane asks of whatever makes runtimes.

Terms: an *engine* makes *backends*. A backend is the substrate of a runtime: its files, its processes, its code
cells. A *snapshot* is a backend's state as the engine keeps it, found again by a `BackendCheckpointRef`. The control
plane names both (``be_…``, ``sn_…``) before it calls, so that after a crash `Engine.inspect` tells what a half-done
operation left. Metadata (names, lineage, references) is the control plane's business and never an engine's.

What an engine cannot do is said by its `Capabilities`; the control plane reads them and does not call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.models import (
    BackendCheckpointRef,
    Capabilities,
    CellEvent,
    CellRequest,
    CompleteRequest,
    CompleteResult,
    EngineInfo,
    ExecEvent,
    ExecRequest,
    ExportRequest,
    FileStat,
    MemoryUse,
    NotCaptured,
    Record,
    RuntimeCreateRequest,
    SearchRequest,
    SearchResult,
    SessionSettings,
    TempPathRequest,
)


class Snapshot(Record):
    """What a checkpoint of a backend gave."""

    ref: BackendCheckpointRef
    not_captured: tuple[NotCaptured, ...] = ()
    memory_bytes: int | None = Field(default=None, description="memory the source held (RSS), in bytes")
    file_bytes: int | None = Field(default=None, description="bytes of files copied")
    files: bool = Field(description="whether the runtime's files are in it")
    provider_ms: float = Field(default=0.0, description="the part spent in somebody else's API")


class Child(Record):
    """A backend to make from a snapshot."""

    backend_id: str
    settings: SessionSettings


class Inventory(Record):
    """What exists at the engine right now, by our ids; the truth that rows are reconciled with."""

    backends: frozenset[str]
    snapshots: frozenset[str]


class Backend(ABC):
    """A live backend: files, commands and cells. Paths are relative to its working directory and stay below it.

    Every method may raise `RuntimeFailed` when the backend is gone, `PathNotFound` or `InvalidRequest` for a bad path.
    """

    backend_id: str
    cwd: str

    @abstractmethod
    def run_cell(self, request: CellRequest) -> AsyncGenerator[CellEvent, None]:
        """Run code where the state is; yields `CellOutput` as it comes and one `CellDone` last. One at a time."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Interrupt the running cell, as Ctrl-C does; nothing happens when none runs."""

    @abstractmethod
    async def complete(self, request: CompleteRequest) -> CompleteResult:
        """Completions at a cursor; runs in the state's process, so it waits for a running cell."""

    @abstractmethod
    def exec(self, request: ExecRequest) -> AsyncGenerator[ExecEvent, None]:
        """Run a command beside the cells; yields `ExecOutput` as it comes and one `ExecDone` last.

        The command's process group ends on timeout and when the iterator is closed early.
        """

    @abstractmethod
    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file whole (atomically); missing parents are made."""

    @abstractmethod
    async def read_bytes(self, path: str) -> bytes:
        """A file's bytes."""

    @abstractmethod
    async def create_dir_all(self, path: str) -> None:
        """Make a directory and its parents; one that exists is fine."""

    @abstractmethod
    async def temp_path(self, request: TempPathRequest) -> str:
        """Make a fresh empty file or directory and return its path."""

    @abstractmethod
    async def remove(self, path: str) -> None:
        """Remove a file or a whole directory."""

    @abstractmethod
    async def stat(self, path: str) -> FileStat:
        """What is at a path."""

    @abstractmethod
    async def search(self, request: SearchRequest) -> SearchResult:
        """Files by glob, and lines by regular expression."""

    @abstractmethod
    def export(self, request: ExportRequest) -> AsyncGenerator[bytes, None]:
        """An uncompressed tar of a file or directory, in pieces."""

    @abstractmethod
    async def quiescent(self) -> bool:
        """Whether nothing in it (child, thread, pending task) could have changed its state since it was last idle."""

    @abstractmethod
    async def memory(self) -> MemoryUse | None:
        """The memory of its cells' process, where the engine can tell."""

    @abstractmethod
    async def died(self) -> str:
        """Wait until the backend ends by itself; returns why, in a sentence."""


class Engine(ABC):
    """Makes backends of one kind. Constructed without arguments (entry point ``jupyter_sandbox.engines``)."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @abstractmethod
    async def start(self, state_dir: Path) -> None:
        """Get ready; ``state_dir`` (made by the caller, mode 0700) is this engine's own for ever."""

    @abstractmethod
    async def stop(self) -> None:
        """The control plane goes. Backends and snapshots stay, for the next one to adopt."""

    @abstractmethod
    async def probe(self) -> EngineInfo:
        """Whether it works here: a real self-test with a time limit, cached."""

    @abstractmethod
    async def resolve(self, request: RuntimeCreateRequest) -> SessionSettings:
        """The settings that a request means on this engine.

        Raises:
            InvalidRequest: An interpreter, image, directory or limit that this engine cannot use; names the field.
        """

    @abstractmethod
    async def create(self, backend_id: str, settings: SessionSettings, env: Mapping[str, str]) -> Backend:
        """Make a fresh backend; on failure nothing of it is left."""

    @abstractmethod
    async def checkpoint(self, backend: Backend, snapshot_id: str) -> Snapshot:
        """Snapshot an idle backend, which goes on; on failure nothing of the snapshot is left."""

    @abstractmethod
    async def checkout(self, ref: BackendCheckpointRef, children: Sequence[Child]) -> list[Backend | SandboxError]:
        """Make backends from a snapshot, each for itself: one result per child, in order.

        A snapshot that is gone gives `CheckpointLost` for every child.
        """

    @abstractmethod
    async def delete_snapshot(self, ref: BackendCheckpointRef) -> bool:
        """Delete a snapshot; False when it was gone already. Backends made from it live on.

        What `inspect` listed and no row knows comes with our id as ``provider_snapshot_id`` and no payload.
        """

    @abstractmethod
    async def release(self, backend_id: str) -> None:
        """End a backend and remove all of it; one that is gone already is fine."""

    @abstractmethod
    async def inspect(self) -> Inventory:
        """What exists now. Leftovers that never became whole are in it too, so that they can be removed."""

    @abstractmethod
    async def adopt(self, backend_id: str) -> Backend:
        """Connect to a live backend that an earlier control plane made.

        Raises:
            RuntimeFailed: It is gone; the message says what is known about its end.
        """
