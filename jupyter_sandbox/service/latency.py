"""Percentiles of what operations took. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from jupyter_sandbox.models import Latency, LatencyRow, OperationTiming


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the values lie, linear between neighbours (as NumPy's default).

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def table(timings: Iterable[OperationTiming]) -> Latency:
    """One row per operation and engine over those that succeeded, by name."""
    groups: defaultdict[tuple[str, str], list[OperationTiming]] = defaultdict(list)
    for timing in timings:
        if timing.ok:
            groups[timing.operation, timing.engine].append(timing)
    return Latency(rows=tuple(_row(*key, group) for key, group in sorted(groups.items())))


def _row(operation: str, engine: str, group: Sequence[OperationTiming]) -> LatencyRow:
    totals = [t.timings.total_ms for t in group]
    sizes = [float(t.state_bytes) for t in group if t.state_bytes is not None]
    return LatencyRow(
        operation=operation,
        engine=engine,
        n=len(group),
        state_bytes=round(percentile(sizes, 0.5)) if sizes else None,
        p50_ms=percentile(totals, 0.5),
        p90_ms=percentile(totals, 0.9),
        p99_ms=percentile(totals, 0.99),
        queue_ms=percentile([t.timings.queue_ms for t in group], 0.5),
        service_ms=percentile([t.timings.service_ms for t in group], 0.5),
        engine_ms=percentile([t.timings.engine_ms for t in group], 0.5),
        provider_ms=percentile([t.timings.provider_ms for t in group], 0.5),
    )
