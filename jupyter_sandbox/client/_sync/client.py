# Derived from jupyter_sandbox/client/_async/client.py by scripts/derive_sync.py: change that, then run this.
"""The client: runtimes, checkpoints, and the views over them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import httpx

from jupyter_sandbox.client import discovery, wire
from jupyter_sandbox.client._sync.connection import Connection
from jupyter_sandbox.client._sync.runtime import Runtime, fork
from jupyter_sandbox.client.checkpoint import Checkpoint
from jupyter_sandbox.client.endpoint import Endpoint
from jupyter_sandbox.client.views import Checkpoints, EnginesView, LatencyView, LineageView, RuntimesView
from jupyter_sandbox.models import (
    CHECKPOINT_ID_PATTERN,
    CheckpointDeleteResult,
    CheckpointList,
    CheckpointRecord,
    EngineList,
    Health,
    Latency,
    Limits,
    Lineage,
    Metadata,
    PinRequest,
    PruneResult,
    RuntimeCheckoutRequest,
    RuntimeCheckoutResult,
    RuntimeCheckpointResult,
    RuntimeCheckpointSnapshotDeleteRequest,
    RuntimeCheckpointSnapshotDeleteResult,
    RuntimeCreateRequest,
    RuntimeCreateResult,
    RuntimeList,
    RuntimeSummary,
    SandboxCheckpointRequest,
)


class Runtimes:
    """The runtimes of a server: ``client.runtimes``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self,
        engine: str = "fork",
        name: str | None = None,
        *,
        python: str | None = None,
        image: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        metadata: Metadata | None = None,
        conversation_id: str | None = None,
        sender_id: str | None = None,
        attach_to: str | None = None,
        exist_ok: bool = False,
    ) -> Runtime:
        """A new runtime.

        Args:
            engine: ``fork`` (this machine's Python, no isolation), or another of ``client.engines()``.
            name: Unique on the server; free again when the runtime is closed.
            python: The interpreter for engine fork; default: this process's own, on a server of this machine.
            image: What engines with images start from.
            cwd: An existing directory, used in place and not captured; default: one of the runtime's own.
            env: Added to its environment.
            limits: Bounds of its resources, as `Limits` or its fields.
            metadata: JSON of the caller's own.
            conversation_id: Kept with it.
            sender_id: Kept with it.
            attach_to: A runtime whose backend it shares, instead of one of its own.
            exist_ok: Return the live runtime that holds the name, if one does.

        Raises:
            NameTaken: Something else has the name.
            EngineNotFound: No such engine.
        """
        if python is None and engine == "fork" and attach_to is None and self._connection.endpoint.loopback:
            python = sys.executable
        body = wire.build(
            RuntimeCreateRequest,
            engine=engine,
            name=name,
            python=python,
            image=image,
            cwd=cwd,
            env=dict(env or {}),
            limits=limits if isinstance(limits, Limits) else wire.build(Limits, **(limits or {})),
            metadata=metadata or {},
            conversation_id=conversation_id,
            sender_id=sender_id,
            attach_to=attach_to,
            exist_ok=exist_ok,
        )
        done = self._connection.call(RuntimeCreateResult, "POST", wire.path("runtimes"), body, once=True)
        return Runtime(self._connection, done.runtime, created=done.created, timings=done.timings)

    def get(self, ref: str) -> Runtime:
        """The runtime of this name or id.

        Raises:
            RuntimeNotFound: There is none.
        """
        return Runtime(self._connection, self._connection.call(RuntimeSummary, "GET", wire.path("runtimes", ref)))

    def list(self, all: bool = False) -> RuntimesView[Runtime]:  # noqa: A002 - the flag's own name
        """The runtimes, oldest first; closed ones only with ``all``."""
        params = {"all": "1"} if all else None
        found = self._connection.call(RuntimeList, "GET", wire.path("runtimes"), params=params)
        return RuntimesView([Runtime(self._connection, record) for record in found.runtimes])


class Client:
    """A connection to one server's control plane. Made by `connect`; a context manager.

    Args:
        endpoint: The server.
        timeout: Seconds to wait for an answer (streams wait for ever).
        transport: Takes the place of the network.
    """

    def __init__(
        self, endpoint: Endpoint, *, timeout: float = 300.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._connection = Connection(endpoint, timeout=timeout, transport=transport)
        self.runtimes = Runtimes(self._connection)

    @property
    def endpoint(self) -> Endpoint:
        """The server it speaks with now."""
        return self._connection.endpoint

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.endpoint.url} ({self.endpoint.origin.value})>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's sockets. Runtimes and checkpoints stay."""
        self._connection.close()

    # Branching.

    def checkpoint(
        self,
        ref: str,
        name: str | None = None,
        *,
        rebind: bool = False,
        pin: bool = False,
        metadata: Metadata | None = None,
    ) -> Checkpoint:
        """Capture the runtime of this name or id; it goes on. The arguments are those of ``Runtime.checkpoint``."""
        body = wire.build(SandboxCheckpointRequest, checkpoint=name, pin=pin, metadata=metadata or {}, rebind=rebind)
        path = wire.path("sandboxes", ref, "checkpoint")
        done = self._connection.call(RuntimeCheckpointResult, "POST", path, body, once=True)
        return Checkpoint(done.checkpoint, timings=done.timings, reused=done.reused)

    def checkout(
        self,
        ref: str,
        name: str | None = None,
        *,
        conversation_id: str | None = None,
        sender_id: str | None = None,
        metadata: Metadata | None = None,
        allow_busy_source: bool = False,
        rebind: bool = False,
        reseed: bool | None = None,
    ) -> Runtime:
        """A new runtime from a checkpoint, which does not change.

        Args:
            ref: The checkpoint's name or id.
            name: A name for the runtime.
            conversation_id: Instead of the source's.
            sender_id: Instead of the source's.
            metadata: Instead of the source's.
            allow_busy_source: Also while the checkpoint's runtime runs something.
            rebind: Close the runtime of the same lineage that holds the name.
            reseed: Renew random streams; default: as the source was started.

        Raises:
            CheckpointNotFound: There is none of that name or id.
            SessionBusy: Its runtime runs something.
        """
        checkpoint_id = self._checkpoint_id(ref)
        body = wire.build(
            RuntimeCheckoutRequest,
            checkpoint_id=checkpoint_id,
            name=name,
            conversation_id=conversation_id,
            sender_id=sender_id,
            metadata=metadata,
            allow_busy_source=allow_busy_source,
            rebind=rebind,
            reseed=reseed,
        )
        done = self._connection.call(RuntimeCheckoutResult, "POST", wire.path("runtimes", "checkout"), body, once=True)
        path = wire.path("runtimes", done.runtime.runtime_id)
        record = self._connection.call(RuntimeSummary, "GET", path)
        return Runtime(self._connection, record, created=True, timings=done.timings)

    def fork(
        self,
        source: str,
        name: str | None = None,
        *,
        rebind: bool = False,
        reseed: bool | None = None,
        metadata: Metadata | None = None,
    ) -> Runtime:
        """A new runtime that goes on from a runtime or a checkpoint.

        Args:
            source: Name or id of either; a runtime wins.
            name: A name for the child.
            rebind: Close the runtime of the same lineage that holds the name.
            reseed: Renew random streams; default: as the source was started.
            metadata: Instead of the source's.

        Raises:
            SessionBusy: The source is a runtime that runs something.
        """
        return fork(self._connection, source, name, rebind=rebind, reseed=reseed, metadata=metadata)

    # Checkpoints.

    def checkpoints(self, all: bool = False) -> Checkpoints:  # noqa: A002 - the flag's own name
        """The checkpoints, oldest first; automatic ones only with ``all``."""
        params = {"all": "1"} if all else None
        found = self._connection.call(CheckpointList, "GET", wire.path("checkpoints"), params=params)
        return Checkpoints([Checkpoint(record) for record in found.checkpoints])

    def get_checkpoint(self, ref: str) -> Checkpoint:
        """The checkpoint of this name or id.

        Raises:
            CheckpointNotFound: There is none.
        """
        return Checkpoint(self._connection.call(CheckpointRecord, "GET", wire.path("checkpoints", ref)))

    def delete_checkpoint(self, ref: str) -> Checkpoint:
        """Delete a checkpoint; its name is free at once, its forks go on. Returns what it was.

        Raises:
            CheckpointPinned: Unpin it first.
            CheckpointInUse: A paused runtime resumes from it.
        """
        done = self._connection.call(CheckpointDeleteResult, "DELETE", wire.path("checkpoints", ref), once=True)
        return Checkpoint(done.checkpoint)

    def delete_snapshot(self, ref: str) -> RuntimeCheckpointSnapshotDeleteResult:
        """Delete only the snapshot of a checkpoint and keep its record; nothing happens the second time."""
        checkpoint_id = self._checkpoint_id(ref)
        body = wire.build(RuntimeCheckpointSnapshotDeleteRequest, checkpoint_id=checkpoint_id)
        path = wire.path("runtimes", "checkpoint", "delete-snapshot")
        return self._connection.call(RuntimeCheckpointSnapshotDeleteResult, "POST", path, body, once=True)

    def pin(self, ref: str, pinned: bool = True) -> Checkpoint:
        """Keep a checkpoint (or, with ``pinned=False``, no longer): delete refuses it, prune leaves it."""
        path = wire.path("checkpoints", ref, "pin")
        return Checkpoint(self._connection.call(CheckpointRecord, "PUT", path, wire.build(PinRequest, pinned=pinned)))

    def prune(self) -> tuple[str, ...]:
        """Delete every checkpoint that is not pinned and that no paused runtime needs; returns their names (or ids)."""
        return (self._connection.call(PruneResult, "POST", wire.path("checkpoints", "prune"), once=True)).deleted

    def _checkpoint_id(self, ref: str) -> str:
        is_id = re.match(CHECKPOINT_ID_PATTERN, ref)
        return ref if is_id else (self.get_checkpoint(ref)).id

    # Views.

    def lineage(self, all: bool = True) -> LineageView:  # noqa: A002 - the flag's own name
        """Runtimes and checkpoints as a tree; without ``all``, without closed runtimes that nothing hangs from."""
        found = self._connection.call(Lineage, "GET", wire.path("lineage"), params={"all": "1" if all else "0"})
        return LineageView(found.nodes)

    def latency(self, since_ms: int | None = None) -> LatencyView:
        """How long operations took, since a moment (ms since the epoch) or ever."""
        params = None if since_ms is None else {"since_ms": str(since_ms)}
        return LatencyView((self._connection.call(Latency, "GET", wire.path("latency"), params=params)).rows)

    def engines(self) -> EnginesView:
        """The engines: whether they work here, and what they can do."""
        return EnginesView((self._connection.call(EngineList, "GET", wire.path("engines"))).engines)

    def health(self) -> Health:
        """That the server answers, and what it holds."""
        return self._connection.call(Health, "GET", wire.path("health"))


def connect(url: str | None = None, token: str | None = None, *, timeout: float = 300.0) -> Client:
    """A client of the server that is meant.

    That is the first of: ``url``; ``JUPYTER_SANDBOX_URL``; the Jupyter server that started this kernel; the server
    that holds the default store; a private server, started now, that ends by itself when nothing lives in it.

    Args:
        url: A server's URL, as ``jupyter server list`` shows it.
        token: Its token, if the URL does not hold it.
        timeout: Seconds to wait for an answer (streams wait for ever).

    Raises:
        ServerUnavailable: The server that is meant does not answer, or a private one does not come up.
        Unauthorized: It does not accept the token.
    """
    return Client(discovery.find(url, token), timeout=timeout)
