"""Runtimes and sessions, and the requests that make and change them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from jupyter_sandbox.models.base import Metadata, Record, Request
from jupyter_sandbox.models.checkpoint import CheckpointRecord
from jupyter_sandbox.models.engine import Capabilities, Isolation, Limits, MemoryUse, Timings
from jupyter_sandbox.models.ids import CheckpointId, Name, Reference, RuntimeId, TimeMs


class SessionLifecycleStatus(StrEnum):
    """The status of a session, and so of its runtime."""

    idle = "idle"
    running = "running"
    paused = "paused"
    failed = "failed"
    closed = "closed"


class RuntimeRecord(Record):
    """The public face of a runtime: the first seed's six fields, nothing of the backend."""

    runtime_id: RuntimeId
    conversation_id: str
    sender_id: str
    status: SessionLifecycleStatus
    created_at_ms: TimeMs
    updated_at_ms: TimeMs


class RuntimeSummary(RuntimeRecord):
    """What lists and ``GET`` add to the record."""

    name: str | None = None
    engine: str
    isolation: Isolation
    capabilities: Capabilities
    image: str = Field(description="what it was started from; for engine fork the interpreter")
    cwd: str | None = Field(default=None, description="the working directory, as a path inside the runtime")
    head_checkpoint_id: CheckpointId | None = None
    parent_runtime_id: RuntimeId | None = Field(default=None, description="the runtime it was branched from")
    reason: str | None = Field(default=None, description="why it is failed, in a sentence")
    busy_with: str | None = Field(default=None, description="the operation that holds it now")
    memory: MemoryUse | None = None
    metadata: Metadata = Field(default_factory=dict)


class SessionSettings(Record):
    """What a session was started with, resolved: what checkout copies. Values of ``env`` are not kept, names are."""

    engine: str
    image: str
    python: str | None = None
    cwd: str | None = Field(default=None, description="a directory of the caller's, used in place")
    limits: Limits = Field(default_factory=Limits)
    env_names: tuple[str, ...] = ()
    reseed: bool = True


class SessionRecord(Record):
    """Internal: a runtime's execution state and identity. ``session_id`` is the ``runtime_id``."""

    session_id: RuntimeId
    conversation_id: str
    sender_id: str
    status: SessionLifecycleStatus
    status_reason: str | None = None
    settings: SessionSettings
    backend_instance: str | None = Field(default=None, description="the id of the bound backend; never shown")
    name: Name | None = None
    head_checkpoint_id: CheckpointId | None = None
    parent_runtime_id: RuntimeId | None = None
    parent_checkpoint_id: CheckpointId | None = Field(default=None, description="the checkpoint it was branched from")
    metadata: Metadata = Field(default_factory=dict)
    created_at_ms: TimeMs
    updated_at_ms: TimeMs

    def public(self) -> RuntimeRecord:
        """The record that callers may see."""
        return RuntimeRecord(
            runtime_id=self.session_id,
            conversation_id=self.conversation_id,
            sender_id=self.sender_id,
            status=self.status,
            created_at_ms=self.created_at_ms,
            updated_at_ms=self.updated_at_ms,
        )


class RuntimeCreateRequest(Request):
    """``POST /api/v1/runtimes``."""

    engine: str = "fork"
    name: Name | None = None
    image: str | None = None
    python: str | None = Field(default=None, description="path of the interpreter; default: the server's own")
    limits: Limits = Field(default_factory=Limits)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = Field(
        default=None, description="an existing directory, used in place and not captured; default: one of its own"
    )
    conversation_id: str | None = Field(default=None, max_length=512)
    sender_id: str | None = Field(default=None, max_length=512)
    metadata: Metadata = Field(default_factory=dict)
    attach_to: Reference | None = Field(default=None, description="bind to this runtime's backend, make none")
    exist_ok: bool = Field(default=False, description="a live runtime of that name is returned instead of an error")


class RuntimeCreateResult(Record):
    """The new runtime, or with ``exist_ok`` the one that holds the name."""

    runtime: RuntimeSummary
    created: bool
    timings: Timings


class RuntimeUpdateRequest(Request):
    """``PATCH /api/v1/runtimes/{id or name}``: what is absent stays."""

    name: Name | None = None
    metadata: Metadata | None = None


class RuntimeCheckpointRequest(Request):
    """``POST /api/v1/runtimes/checkpoint``."""

    runtime_id: RuntimeId
    name: Name | None = None
    metadata: Metadata = Field(default_factory=dict)
    rebind: bool = Field(default=False, description="take the name from a checkpoint of the same lineage")


class RuntimeCheckpointResult(Record):
    """The new checkpoint; ``parent_checkpoint_id`` is the runtime's head before it."""

    checkpoint_id: CheckpointId
    runtime: RuntimeRecord
    parent_checkpoint_id: CheckpointId | None
    created_at_ms: TimeMs
    name: str | None
    metadata: Metadata
    reused: bool = Field(description="the backend was clean: its provider snapshot serves this checkpoint too")
    checkpoint: CheckpointRecord
    timings: Timings


class RuntimeCheckpointSnapshotDeleteRequest(Request):
    """``POST /api/v1/runtimes/checkpoint/delete-snapshot``."""

    checkpoint_id: CheckpointId


class RuntimeCheckpointSnapshotDeleteResult(Record):
    """What became of the provider snapshot; it goes with its last reference."""

    checkpoint_id: CheckpointId
    runtime_id: RuntimeId
    provider: str | None
    provider_snapshot_id: str | None
    provider_snapshot_names: tuple[str, ...] = ()
    deleted_provider_snapshot: bool
    deleted_at_ms: TimeMs | None


class RuntimeCheckoutRequest(Request):
    """``POST /api/v1/runtimes/checkout``."""

    checkpoint_id: CheckpointId
    conversation_id: str | None = Field(default=None, max_length=512)
    sender_id: str | None = Field(default=None, max_length=512)
    metadata: Metadata | None = None
    allow_busy_source: bool = False
    name: Name | None = None
    rebind: bool = Field(default=False, description="close the runtime of the same lineage that holds the name")
    reseed: bool | None = Field(default=None, description="renew random streams; default: as the source was started")


class RuntimeCheckoutResult(Record):
    """The new runtime."""

    checkpoint_id: CheckpointId
    source_runtime_id: RuntimeId
    runtime: RuntimeRecord
    timings: Timings


class RuntimePauseRequest(Request):
    """``POST /api/v1/runtimes/pause``."""

    runtime_id: RuntimeId
    name: Name | None = None
    metadata: Metadata = Field(default_factory=dict)


class RuntimePauseResult(Record):
    """The paused runtime and the checkpoint that it resumes from."""

    runtime: RuntimeRecord
    checkpoint_id: CheckpointId
    created_at_ms: TimeMs
    name: str | None
    metadata: Metadata
    checkpoint: CheckpointRecord
    timings: Timings


class RuntimeResumeRequest(Request):
    """``POST /api/v1/runtimes/resume``."""

    runtime_id: RuntimeId
    metadata: Metadata | None = None


class RuntimeCloseRequest(Request):
    """``POST /api/v1/runtimes/close``."""

    runtime_id: RuntimeId
    cascade: bool = Field(
        default=False, description="close its children too, and delete the unpinned checkpoints of all of them"
    )


class RuntimeResult(Record):
    """The runtime after resume, close or attach."""

    runtime: RuntimeRecord
    timings: Timings


class SessionForkRequest(Request):
    """The first seed's compatibility shape: checkpoint and checkout in one call. Deprecated: use those two."""

    session_id: RuntimeId
    conversation_id: str | None = Field(default=None, max_length=512)
    sender_id: str | None = Field(default=None, max_length=512)
    metadata: Metadata | None = None


class SessionForkResult(Record):
    """The child session."""

    session: RuntimeRecord
    source_session_id: RuntimeId
    checkpoint_id: CheckpointId


class SandboxForkRequest(Request):
    """``POST /api/v1/sandboxes/{name}/fork``: ``name`` in the path is a sandbox or a checkpoint; a sandbox wins."""

    name: Name | None = None
    metadata: Metadata | None = None
    rebind: bool = False
    reseed: bool | None = None


class SandboxForkResult(Record):
    """The child, and the checkpoint that it came from (made now when the source was a runtime)."""

    checkpoint_id: CheckpointId
    source_runtime_id: RuntimeId
    runtime: RuntimeSummary
    replaced_runtime_id: RuntimeId | None = Field(default=None, description="closed to take its name over (rebind)")
    timings: Timings


class SandboxCheckpointRequest(Request):
    """``POST /api/v1/sandboxes/{name}/checkpoint``."""

    checkpoint: Name | None = None
    pin: bool = False
    metadata: Metadata = Field(default_factory=dict)
    rebind: bool = False
