"""Lists of the client as sequences that show themselves: a table or tree in text and safe HTML, and a DataFrame."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, overload

from jupyter_sandbox.client import render
from jupyter_sandbox.client.checkpoint import Checkpoint
from jupyter_sandbox.models import EngineInfo, LatencyRow, LineageNode, RuntimeSummary

if TYPE_CHECKING:
    import pandas as pd


class HasRecord(Protocol):
    """A runtime of either face."""

    @property
    def record(self) -> RuntimeSummary:
        """What the server last said about it."""


T = TypeVar("T")
R = TypeVar("R", bound=HasRecord)


class View(Sequence[T]):
    """An unchanging sequence of ``T``, in the server's order.

    `columns` and `rows` are what people see; `fields` and `records` are what programs (and DataFrames) get.
    """

    columns: ClassVar[tuple[str, ...]]
    fields: ClassVar[tuple[str, ...]]
    moments: ClassVar[tuple[str, ...]] = ()
    empty: ClassVar[str]

    def __init__(self, items: Sequence[T]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    @abstractmethod
    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each item."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each item, with the keys of `fields`."""

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame with one row per item; its columns are the same when there is none. Times are UTC."""
        import pandas as pd

        frame = pd.DataFrame(self.records(), columns=list(self.fields))
        for name in self.moments:
            frame[name] = pd.to_datetime(frame[name], unit="ms", utc=True)
        return frame

    def text(self) -> str:
        """What a terminal shows."""
        return render.table_text(self.columns, self.rows()) if self else self.empty

    def html(self) -> str:
        """What a notebook shows."""
        return render.table_html(self.columns, self.rows()) if self else f"<p>{render.escape(self.empty)}</p>"

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        return {"text/plain": self.text(), "text/html": self.html()}


class RuntimesView(View[R]):
    """Runtimes, oldest first."""

    columns = ("name", "status", "engine", "isolation", "head", "memory", "created (UTC)", "id")
    fields = (
        "name", "status", "engine", "isolation", "head_checkpoint_id", "parent_runtime_id", "busy_with", "reason",
        "private_bytes", "shared_bytes", "created_at", "runtime_id",
    )  # fmt: skip
    moments = ("created_at",)
    empty = "No runtimes"

    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each runtime."""
        return [
            (
                r.name or "–",
                runtime_status(r),
                r.engine,
                r.isolation.value,
                render.short(r.head_checkpoint_id),
                render.megabytes(r.memory.private_bytes if r.memory else None),
                render.moment(r.created_at_ms),
                render.short(r.runtime_id) if r.name else r.runtime_id,  # what has no name is named by its whole id
            )
            for r in (item.record for item in self)
        ]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each runtime."""
        return [
            {
                "name": r.name,
                "status": r.status.value,
                "engine": r.engine,
                "isolation": r.isolation.value,
                "head_checkpoint_id": r.head_checkpoint_id,
                "parent_runtime_id": r.parent_runtime_id,
                "busy_with": r.busy_with,
                "reason": r.reason,
                "private_bytes": r.memory.private_bytes if r.memory else None,
                "shared_bytes": r.memory.shared_bytes if r.memory else None,
                "created_at": r.created_at_ms,
                "runtime_id": r.runtime_id,
            }
            for r in (item.record for item in self)
        ]


class Checkpoints(View[Checkpoint]):
    """Checkpoints, oldest first."""

    columns = ("name", "source", "state", "captured", "memory", "files", "forks", "pinned", "created (UTC)", "id")
    fields = (
        "name", "source", "engine", "state", "memory", "files", "processes", "bytes", "file_bytes", "not_captured",
        "forks", "pinned", "auto", "created_at", "parent_checkpoint_id", "runtime_id", "checkpoint_id",
    )  # fmt: skip
    moments = ("created_at",)
    empty = "No checkpoints"

    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each checkpoint."""
        return [
            (
                c.record.name or "–",
                c.record.source,
                c.record.state.value,
                c.captured(),
                render.megabytes(c.record.bytes if c.record.memory else None),
                render.megabytes(c.record.file_bytes),
                str(c.record.forks),
                "yes" if c.record.pinned else "",
                render.moment(c.record.created_at_ms),
                render.short(c.id) if c.name else c.id,
            )
            for c in self
        ]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each checkpoint; ``not_captured`` is how many things were seen and not captured."""
        return [
            {
                **{name: getattr(c.record, name) for name in self.fields if name in type(c.record).model_fields},
                "state": c.record.state.value,
                "not_captured": len(c.record.not_captured),
                "created_at": c.record.created_at_ms,
            }
            for c in self
        ]


class LineageView(View[LineageNode]):
    """Runtimes and checkpoints as one tree, parents before children."""

    columns = ("kind", "name", "status", "id", "parent")
    fields = ("kind", "id", "parent_id", "name", "status", "engine", "created_at")
    moments = ("created_at",)
    empty = "No runtimes and no checkpoints"

    def __init__(self, items: Sequence[LineageNode]) -> None:
        super().__init__(items)
        known = {node.id for node in items}
        self._below: dict[str | None, list[LineageNode]] = defaultdict(list)
        for node in items:
            # A parent that was deleted leaves its children as roots.
            self._below[node.parent_id if node.parent_id in known else None].append(node)

    def roots(self) -> list[LineageNode]:
        """Nodes without a parent that is still there."""
        return self._below[None]

    def children(self, node: LineageNode) -> list[LineageNode]:
        """What hangs directly below a node."""
        return self._below.get(node.id, [])

    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each node."""
        return [
            (r["kind"], r["name"] or "–", r["status"], render.short(r["id"]), render.short(r["parent_id"]))
            for r in self.records()
        ]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each node."""
        return [_node_record(node) for node in self]

    def text(self) -> str:
        """The tree with box-drawing characters."""
        return render.tree_text(self.roots(), self.children, node_label) if self else self.empty

    def html(self) -> str:
        """The tree as nested lists."""
        return render.tree_html(self.roots(), self.children, node_label) if self else super().html()


class LatencyView(View[LatencyRow]):
    """How long operations took: percentiles in milliseconds, and the medians of their parts."""

    columns = ("operation", "engine", "n", "state", "p50", "p90", "p99", "queue", "service", "engine part", "provider")
    fields = tuple(LatencyRow.model_fields)
    shown_ms = ("p50_ms", "p90_ms", "p99_ms", "queue_ms", "service_ms", "engine_ms", "provider_ms")
    empty = "No operations timed yet"

    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each operation and engine."""
        return [
            (
                row.operation,
                row.engine,
                str(row.n),
                render.megabytes(row.state_bytes),
                *(render.milliseconds(getattr(row, name)) for name in self.shown_ms),
            )
            for row in self
        ]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each operation and engine."""
        return [row.model_dump(mode="json") for row in self]


class EnginesView(View[EngineInfo]):
    """Engines: whether they work here, and what they can do."""

    columns = ("engine", "works here", "isolation", "checkpoint holds", "detail")
    fields = ("name", "available", "detail", "remedy", "isolation", "memory", "files", "processes", "durable", "live")
    empty = "No engines are installed"

    def rows(self) -> list[tuple[str, ...]]:
        """One row of formatted cells for each engine."""
        return [
            (
                e.name,
                "yes" if e.available else "no",
                e.capabilities.isolation.value,
                ", ".join(part for part in ("memory", "files", "processes") if getattr(e.capabilities, part)),
                e.detail if e.available or not e.remedy else f"{e.detail} {e.remedy}",
            )
            for e in self
        ]

    def records(self) -> list[dict[str, Any]]:
        """One flat dict for each engine."""
        return [
            {**e.model_dump(mode="json", include={"name", "available", "detail", "remedy"}),
             **e.capabilities.model_dump(mode="json", include=set(self.fields))}
            for e in self
        ]  # fmt: skip


def runtime_status(record: RuntimeSummary) -> str:
    """A status with what explains it: ``running: cell``, ``failed: its process ended``."""
    why = record.busy_with if record.status == "running" else record.reason
    return f"{record.status.value}: {why}" if why else record.status.value


def runtime_line(record: RuntimeSummary) -> str:
    """One line about a runtime; isolation is always in it."""
    parts = [f"Runtime {record.name or record.runtime_id}", runtime_status(record), record.engine]
    parts.append(f"isolation {record.isolation.value}")
    if record.head_checkpoint_id:
        parts.append(f"head {render.short(record.head_checkpoint_id)}")
    return render.printable(" · ".join(parts))


def node_label(node: LineageNode) -> str:
    """One line for a node of the tree."""
    if node.runtime is not None:
        r = node.runtime
        return (
            f"{r.name or render.short(r.runtime_id)} · {runtime_status(r)} · {r.engine}, isolation {r.isolation.value}"
        )
    if node.checkpoint is not None:
        c = node.checkpoint
        parts = [f"◆ {c.name or render.short(c.checkpoint_id)}", render.megabytes(c.bytes) if c.memory else "no memory"]
        parts += [c.state.value.replace("_", " ")] if c.state != "ready" else []
        parts += ["pinned"] if c.pinned else []
        return " · ".join(parts)
    return f"{node.kind} {render.short(node.id)}"


def _node_record(node: LineageNode) -> dict[str, Any]:
    item = node.runtime or node.checkpoint
    status = node.runtime.status if node.runtime else node.checkpoint.state if node.checkpoint else None
    return {
        "kind": node.kind,
        "id": node.id,
        "parent_id": node.parent_id,
        "name": item.name if item else None,
        "status": status.value if status else "",
        "engine": item.engine if item else None,
        "created_at": item.created_at_ms if item else None,
    }
