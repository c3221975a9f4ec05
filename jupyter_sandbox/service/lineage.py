"""The tree of runtimes and checkpoints. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from jupyter_sandbox.models import CheckpointRecord, Lineage, LineageNode, RuntimeSummary


def root(runtime_id: str) -> str:
    """The root of a runtime's tree: the stem that all ids below it share."""
    return runtime_id.partition(".")[0]


def build(
    runtimes: Iterable[RuntimeSummary],
    checkpoints: Iterable[CheckpointRecord],
    branched_from: Mapping[str, str | None],
    parents: Mapping[str, str | None],
) -> Lineage:
    """The tree, parents before children, older before younger.

    What hangs below something that is not shown (a closed runtime, a deleted checkpoint) hangs below the nearest
    thing above it that is.

    Args:
        runtimes: The runtimes to show.
        checkpoints: The checkpoints to show.
        branched_from: For every runtime, shown or not, the checkpoint that it was branched from.
        parents: For every checkpoint, deleted ones too, the checkpoint before it.
    """
    shown_runtimes = {r.runtime_id: r for r in runtimes}
    shown_checkpoints = {c.checkpoint_id: c for c in checkpoints}
    takers = {c.checkpoint_id: c.runtime_id for c in shown_checkpoints.values()}

    def above(checkpoint_id: str | None) -> str | None:
        """The nearest shown checkpoint at or above one."""
        while checkpoint_id is not None and checkpoint_id not in shown_checkpoints:
            checkpoint_id = parents.get(checkpoint_id)
        return checkpoint_id

    nodes = [
        LineageNode(
            kind="runtime",
            id=r.runtime_id,
            parent_id=above(branched_from.get(r.runtime_id)) or _shown(r.parent_runtime_id, shown_runtimes),
            runtime=r,
        )
        for r in shown_runtimes.values()
    ]
    for c in shown_checkpoints.values():
        before = above(c.parent_checkpoint_id)
        of_this_runtime = before is not None and takers[before] == c.runtime_id
        parent = before if of_this_runtime else _shown(c.runtime_id, shown_runtimes) or before
        nodes.append(LineageNode(kind="checkpoint", id=c.checkpoint_id, parent_id=parent, checkpoint=c))
    return Lineage(nodes=tuple(_parents_first(nodes)))


def _shown(runtime_id: str | None, shown: Mapping[str, RuntimeSummary]) -> str | None:
    return runtime_id if runtime_id in shown else None


def _created(node: LineageNode) -> int:
    thing = node.runtime or node.checkpoint
    return thing.created_at_ms if thing else 0


def _parents_first(nodes: list[LineageNode]) -> Iterable[LineageNode]:
    below: defaultdict[str | None, list[LineageNode]] = defaultdict(list)
    for node in sorted(nodes, key=_created):
        below[node.parent_id].append(node)
    waiting = below[None][::-1]  # a stack, not recursion: a lineage may be very deep
    while waiting:
        node = waiting.pop()
        yield node
        waiting += below[node.id][::-1]
