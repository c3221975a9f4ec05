from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sandbox.errors import NameTaken, ProviderError, StorageFull
from jupyter_sandbox.service.operations import operation
from jupyter_sandbox.store import names, operations
from jupyter_sandbox.store.database import Store


@pytest.fixture
async def store(tmp_path: Path):
    opened = await Store.open(tmp_path)
    yield opened
    await opened.aclose()


def rows(connection):
    return [
        tuple(r) for r in connection.exec_driver_sql("select operation, state from operations order by started_at_ms")
    ]


async def test_the_intent_is_committed_before_and_the_end_after(store: Store) -> None:
    async with operation(store, "fork") as op:
        await op.intend(engine="toy", durable=False)
        assert await store.run(rows) == [("fork", "intent")]
        await op.commit(lambda c: None)
        assert await store.run(rows) == [("fork", "committed")]
    assert await store.run(rows) == [("fork", "ok")]


async def test_an_intent_that_cannot_be_had_is_not_there(store: Store) -> None:
    await store.run(lambda c: names.take(c, "a", "runtime", "x"))
    with pytest.raises(NameTaken):
        async with operation(store, "create") as op:
            await op.intend(lambda c: names.take(c, "a", "runtime", "y"), engine="toy", durable=False)
    assert await store.run(rows) == []


async def test_failure_takes_back_in_reverse_and_one_failed_step_does_not_stop_the_rest(store: Store) -> None:
    done = []

    async def step(name: str) -> None:
        done.append(name)
        if name == "b":
            raise ProviderError("stuck")

    async def failing() -> None:
        async with operation(store, "create") as op:
            await op.intend(engine="toy", durable=False)
            for name in ("a", "b", "c"):
                op.undo(lambda name=name: step(name))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert done == ["c", "b", "a"]
    assert await store.run(rows) == [("create", "failed")]


async def test_what_is_committed_is_not_taken_back(store: Store) -> None:
    done = []

    async def step() -> None:
        done.append(1)

    async def failing() -> None:
        async with operation(store, "create") as op:
            await op.intend(engine="toy", durable=False)
            op.undo(step)
            await op.commit(lambda c: None)
            raise ProviderError("after")

    with pytest.raises(ProviderError):
        await failing()
    assert done == []


async def test_the_parts_add_up(store: Store) -> None:
    async with operation(store, "fork") as op:
        await op.intend(engine="toy", durable=False)
        with op.in_engine():
            sum(range(200_000))
        op.provider_took(0.25)
    (row,) = await store.run(operations.finished)
    assert row.timings.provider_ms == 0.25
    assert row.timings.engine_ms > 0
    assert row.timings.service_ms > 0
    assert row.timings.queue_ms == 0


async def test_engines_own_exceptions_become_ours(store: Store) -> None:
    async with operation(store, "fork") as op:
        for raised, expected in ((OSError(28, "full"), StorageFull), (KeyError("k"), ProviderError)):
            with pytest.raises(expected), op.in_engine():
                raise raised
