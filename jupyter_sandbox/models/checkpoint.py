"""Checkpoints: immutable records of a stable point of a runtime."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from jupyter_sandbox.models.base import Metadata, Record, Request
from jupyter_sandbox.models.engine import NotCaptured
from jupyter_sandbox.models.ids import CheckpointId, RuntimeId, TimeMs


class CheckpointState(StrEnum):
    """Where a checkpoint is in its life."""

    creating = "creating"
    ready = "ready"
    lost = "lost"
    snapshot_deleted = "snapshot_deleted"


class CheckpointRecord(Record):
    """A checkpoint as callers see it."""

    checkpoint_id: CheckpointId
    runtime_id: RuntimeId = Field(description="the runtime it was taken from")
    source: str = Field(description="that runtime's name, or its id when it had none")
    name: str | None = None
    state: CheckpointState
    state_reason: str | None = None
    parent_checkpoint_id: CheckpointId | None = None
    created_at_ms: TimeMs
    engine: str
    image: str
    memory: bool = Field(description="it holds the memory of the code cells' process")
    files: bool = Field(description="it holds the runtime's own files")
    processes: bool = Field(description="it holds other processes of the runtime")
    shared_memory: bool = False
    not_captured: tuple[NotCaptured, ...] = ()
    bytes: int | None = Field(default=None, description="memory that its source held at that time, in bytes (RSS)")
    file_bytes: int | None = Field(default=None, description="bytes of the files that were copied")
    pinned: bool = False
    auto: bool = False
    release_with_forks: bool = False
    forks: int = Field(default=0, description="how many runtimes branched from it still exist")
    metadata: Metadata = Field(default_factory=dict)

    def summary(self) -> CheckpointSummary:
        """The second seed's ten-field record."""
        return CheckpointSummary(
            name=self.name or self.checkpoint_id,
            source=self.source,
            runtime_type=self.engine,
            created_at=datetime.fromtimestamp(self.created_at_ms / 1000, UTC).isoformat().replace("+00:00", "Z"),
            image=self.image,
            pinned=self.pinned,
            shared_memory=self.shared_memory,
            release_with_forks=self.release_with_forks,
            forks=self.forks,
            host="",
        )


class CheckpointSummary(Record):
    """A named checkpoint of a sandbox, and the machine that holds it (the second seed's record, field for field)."""

    name: str
    source: str
    runtime_type: str
    created_at: str = Field(description="RFC 3339")
    image: str
    pinned: bool
    shared_memory: bool
    release_with_forks: bool
    forks: int
    host: str


class PinRequest(Request):
    """``PUT /api/v1/checkpoints/{name or id}/pin``."""

    pinned: bool = True


class CheckpointList(Record):
    """``GET /api/v1/checkpoints``: oldest first."""

    checkpoints: tuple[CheckpointRecord, ...]


class CheckpointDeleteResult(Record):
    """``DELETE /api/v1/checkpoints/{name or id}``."""

    checkpoint: CheckpointRecord
    deleted_at_ms: TimeMs


class PruneResult(Record):
    """``POST /api/v1/checkpoints/prune``: the names (or ids) of what was deleted."""

    deleted: tuple[str, ...]
