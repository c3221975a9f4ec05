"""Lists and tables over many records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from jupyter_sandbox.models.base import Record
from jupyter_sandbox.models.checkpoint import CheckpointRecord
from jupyter_sandbox.models.engine import EngineInfo, Timings
from jupyter_sandbox.models.ids import TimeMs
from jupyter_sandbox.models.runtime import RuntimeSummary


class RuntimeList(Record):
    """``GET /api/v1/runtimes``: oldest first; closed ones only with ``?all=1``."""

    runtimes: tuple[RuntimeSummary, ...]


class EngineList(Record):
    """``GET /api/v1/engines``."""

    engines: tuple[EngineInfo, ...]


class LineageNode(Record):
    """
    A runtime or checkpoint in the tree.

    A checkpoint hangs below the checkpoint before it in its runtime, else below its runtime; a runtime hangs below
    the checkpoint that it was branched from.
    """

    kind: Literal["runtime", "checkpoint"]
    id: str
    parent_id: str | None
    runtime: RuntimeSummary | None = None
    checkpoint: CheckpointRecord | None = None


class Lineage(Record):
    """``GET /api/v1/lineage``: parents before children."""

    nodes: tuple[LineageNode, ...]


class OperationTiming(Record):
    """One finished operation, as the latency tables see it."""

    operation_id: str
    operation: str
    engine: str
    runtime_id: str | None
    ok: bool
    started_at_ms: TimeMs
    state_bytes: int | None = Field(default=None, description="memory that the runtime held, in bytes (RSS)")
    timings: Timings


class LatencyRow(Record):
    """Percentiles of one operation on one engine, in milliseconds; the parts are medians."""

    operation: str
    engine: str
    n: int
    state_bytes: int | None
    p50_ms: float
    p90_ms: float
    p99_ms: float
    queue_ms: float
    service_ms: float
    engine_ms: float
    provider_ms: float


class Latency(Record):
    """``GET /api/v1/latency``."""

    rows: tuple[LatencyRow, ...]


class Health(Record):
    """``GET /api/v1/health``."""

    status: Literal["ok"] = "ok"
    version: str
    store: str = Field(description="the store's directory")
    started_at_ms: TimeMs
    live_runtimes: int
    held_snapshots: int
