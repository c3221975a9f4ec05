"""What engines are and can do, and what they answer: data, not exceptions."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from jupyter_sandbox.models.base import Record, Request


class Isolation(StrEnum):
    """How far a runtime is kept from its host, weakest first (``remote``: not on this host)."""

    none = "none"
    container = "container"
    user_kernel = "user-kernel"
    vm = "vm"
    remote = "remote"


class Capabilities(Record):
    """The powers of an engine (or of one runtime on it)."""

    memory: bool = Field(description="a checkpoint holds the memory of the code cells' process")
    files: bool = Field(description="a checkpoint holds the runtime's own files")
    processes: bool = Field(description="a checkpoint holds other processes of the runtime")
    shares_memory: bool = Field(description="forks share the pages that they do not write")
    durable: bool = Field(description="a checkpoint survives a restart of the host")
    live: bool = Field(description="the source goes on while it is checkpointed")
    pause_frees_memory: bool = Field(description="pause gives the runtime's memory back to the host")
    isolation: Isolation
    network: Literal["host", "none", "own"] = Field(description="the network that a runtime sees by default")
    fork_live: bool = Field(description="the provider forks a live runtime by itself")


class EngineInfo(Record):
    """One engine as ``GET /api/v1/engines`` shows it."""

    name: str
    available: bool
    detail: str = Field(description="one sentence: what was tested, or why it cannot run here")
    remedy: str = ""
    capabilities: Capabilities


class Limits(Request):
    """Upper bounds of one runtime's resources; an engine refuses those that it cannot enforce."""

    memory_mb: int | None = Field(default=None, ge=16, description="MiB of private writable memory")
    cpus: float | None = Field(default=None, gt=0)
    pids: int | None = Field(default=None, ge=1)


class NotCaptured(Record):
    """
    Something that the engine saw and that a checkpoint does not hold.

    Attributes:
        kind: A stable word: ``thread``, ``process``, ``socket``, ``shared-mapping``, ``shared-file``, ``deleted-file``,
            ``device``, ``directory`` …
        what: The thing, in words a user recognises (a thread's name, a command, a path).
        remedy: What to do about it, one sentence.

    """

    kind: str
    what: str
    remedy: str = ""


class BackendCheckpointRef(Record):
    """A provider snapshot: the engine that holds it, its id there, and what the engine needs to find it again."""

    engine: str
    provider_snapshot_id: str
    payload: dict[str, Any] = Field(default_factory=dict)


class MemoryUse(Record):
    """Bytes of memory of one process: ``private`` is freed when it ends (USS), ``shared`` is mapped by others too."""

    private_bytes: int
    shared_bytes: int


class Timings(Record):
    """
    Milliseconds of one operation, in parts.

    Attributes:
        queue_ms: Waiting for the runtime's lock.
        service_ms: The control plane itself (rows, checks).
        engine_ms: Our engine and agent.
        provider_ms: Somebody else's API, on this machine or another.

    """

    queue_ms: float = 0.0
    service_ms: float = 0.0
    engine_ms: float = 0.0
    provider_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """The sum of the parts: what the caller waited, without the transport."""
        return self.queue_ms + self.service_ms + self.engine_ms + self.provider_ms
