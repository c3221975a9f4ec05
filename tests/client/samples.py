"""Records as a server would send them."""

from __future__ import annotations

from typing import Any

from jupyter_sandbox.models import (
    Capabilities,
    CheckpointRecord,
    CheckpointState,
    EngineInfo,
    Isolation,
    LatencyRow,
    LineageNode,
    MemoryUse,
    NotCaptured,
    RuntimeSummary,
    SessionLifecycleStatus,
    Timings,
)

RT = "rt_" + "a" * 32
KID = RT + "." + "b" * 32
CP = "cp_" + "c" * 32
CP2 = "cp_" + "d" * 32
AT_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
HOSTILE = "<img src=x onerror=alert(1)>\"'&\x1b[31m"

CAPABILITIES = Capabilities(
    memory=True,
    files=True,
    processes=False,
    shares_memory=True,
    durable=False,
    live=True,
    pause_frees_memory=False,
    isolation=Isolation.none,
    network="host",
    fork_live=False,
)
TIMINGS = Timings(queue_ms=0.5, service_ms=1.0, engine_ms=2.0, provider_ms=0.0)


def runtime(**changes: Any) -> RuntimeSummary:
    base: dict[str, Any] = {
        "runtime_id": RT,
        "conversation_id": "conv",
        "sender_id": "me",
        "status": SessionLifecycleStatus.idle,
        "created_at_ms": AT_MS,
        "updated_at_ms": AT_MS,
        "name": "exp",
        "engine": "fork",
        "isolation": Isolation.none,
        "capabilities": CAPABILITIES,
        "image": "/usr/bin/python3",
        "head_checkpoint_id": CP,
        "memory": MemoryUse(private_bytes=12_300_000, shared_bytes=4_000_000),
    }
    return RuntimeSummary(**(base | changes))


def checkpoint(**changes: Any) -> CheckpointRecord:
    base: dict[str, Any] = {
        "checkpoint_id": CP,
        "runtime_id": RT,
        "source": "exp",
        "name": "base",
        "state": CheckpointState.ready,
        "created_at_ms": AT_MS,
        "engine": "fork",
        "image": "/usr/bin/python3",
        "memory": True,
        "files": True,
        "processes": False,
        "bytes": 180_400_000,
        "file_bytes": 100_000,
        "not_captured": (NotCaptured(kind="thread", what="pump", remedy="Join it before the checkpoint"),),
    }
    return CheckpointRecord(**(base | changes))


def node(kind: str, identifier: str, parent: str | None, **changes: Any) -> LineageNode:
    if kind == "runtime":
        record = {"runtime": runtime(runtime_id=identifier, **changes)}
    else:
        record = {"checkpoint": checkpoint(checkpoint_id=identifier, **changes)}
    return LineageNode(kind=kind, id=identifier, parent_id=parent, **record)


def latency_row(**changes: Any) -> LatencyRow:
    base: dict[str, Any] = {
        "operation": "checkpoint",
        "engine": "fork",
        "n": 7,
        "state_bytes": 1_000_000_000,
        "p50_ms": 3.14159,
        "p90_ms": 4.0,
        "p99_ms": 1234.5,
        "queue_ms": 0.0,
        "service_ms": 1.0,
        "engine_ms": 2.0,
        "provider_ms": 0.0,
    }
    return LatencyRow(**(base | changes))


def engine(**changes: Any) -> EngineInfo:
    base: dict[str, Any] = {
        "name": "fork",
        "available": True,
        "detail": "A process was forked and thawed.",
        "capabilities": CAPABILITIES,
    }
    return EngineInfo(**(base | changes))
