from __future__ import annotations

import pytest

from jupyter_sandbox.models import OperationTiming, Timings
from jupyter_sandbox.service import latency
from tests.service.conftest import Plane


def timing(operation: str, engine_ms: float, *, ok: bool = True, size: int | None = None, **parts) -> OperationTiming:
    return OperationTiming(
        operation_id="op",
        operation=operation,
        engine="toy",
        runtime_id=None,
        ok=ok,
        started_at_ms=1,
        state_bytes=size,
        timings=Timings(engine_ms=engine_ms, **parts),
    )


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([5], 0.5, 5), ([5], 0.99, 5), ([1, 2], 0.5, 1.5), ([3, 1, 2], 0.5, 2), (range(101), 0.9, 90), ([1, 9], 1.0, 9)],
)
def test_percentile_is_linear_between_neighbours(values, share: float, expected: float) -> None:
    assert latency.percentile(list(values), share) == pytest.approx(expected)


def test_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        latency.percentile([], 0.5)


def test_one_row_per_operation_and_engine_over_those_that_succeeded() -> None:
    table = latency.table(
        [
            timing("fork", 10, size=100, queue_ms=1),
            timing("fork", 20, size=300, queue_ms=3),
            timing("fork", 9999, ok=False),
            timing("cell", 1),
        ]
    )
    cell, fork = table.rows
    assert (cell.operation, cell.n, cell.state_bytes) == ("cell", 1, None)
    assert (fork.n, fork.p50_ms, fork.queue_ms, fork.engine_ms, fork.state_bytes) == (2, 17.0, 2.0, 15.0, 200)


async def test_every_kind_of_operation_is_timed(plane: Plane) -> None:
    runtime_id = await plane.create("exp")
    await plane.run("exp", "1")
    await plane.checkpoint("exp", "base")
    await plane.checkout("base")
    await plane.fork("base", "kid")
    await plane.pause(runtime_id)
    await plane.resume(runtime_id)
    await plane.close(runtime_id)
    rows = (await plane.cp.latency()).rows
    assert {r.operation for r in rows} == {
        "create",
        "cell",
        "checkpoint",
        "checkout",
        "fork",
        "pause",
        "resume",
        "close",
    }
    assert all(r.engine == "toy" and r.service_ms > 0 for r in rows)
    assert {r.operation: r.state_bytes for r in rows}["checkpoint"] == 4096
    assert (await plane.cp.latency(since_ms=2**50)).rows == ()
