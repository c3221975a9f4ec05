from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.service.locks import Gate, Gates, Writes


class Log:
    """Enters turns of a gate in tasks, and knows who is in."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.order: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task] = {}

    async def enter(self, name: str, turn) -> None:
        leave = self._leave[name] = asyncio.Event()

        async def inside() -> None:
            async with turn:
                self.order.append(name)
                await leave.wait()

        self._tasks[name] = asyncio.create_task(inside())
        for _ in range(5):
            await asyncio.sleep(0)

    async def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
            await self._tasks[name]
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def log() -> Log:
    return Log()


async def test_cells_one_at_a_time_in_order(log: Log) -> None:
    for name in ("a", "b", "c"):
        await log.enter(name, log.gate.cell("cell", name))
    assert log.order == ["a"]
    assert log.gate.use == ("cell", "a")
    await log.leave("a", "b", "c")
    assert log.order == ["a", "b", "c"]
    assert log.gate.use is None


async def test_commands_and_writes_run_beside_a_cell(log: Log) -> None:
    await log.enter("a", log.gate.cell("cell", "a"))
    await log.enter("b", log.gate.command("exec", "b"))
    await log.enter("c", log.gate.write("write", "c"))
    assert log.order == ["a", "b", "c"]
    await log.leave("a", "b", "c")


async def test_uses_wait_for_an_exclusive_operation_in_order_of_arrival(log: Log) -> None:
    await log.enter("first", log.gate.exclusive("checkpoint", "1", writes=Writes.land))
    await log.enter("second", log.gate.exclusive("checkpoint", "2", writes=Writes.land))
    await log.enter("cell", log.gate.cell("cell", "3"))
    await log.enter("command", log.gate.command("exec", "4"))
    assert log.order == ["first"]
    assert log.gate.busy_with == "cell"
    await log.leave("first")
    assert log.order == ["first", "second"]
    await log.leave("second")
    assert log.order == ["first", "second", "cell", "command"]
    await log.leave("cell", "command")
    assert log.gate.busy_with is None


@pytest.mark.parametrize(("writes", "lands"), [(Writes.land, True), (Writes.drain, False), (Writes.cut, False)])
async def test_writes_that_come_during_an_exclusive_operation(log: Log, writes: Writes, lands: bool) -> None:
    await log.enter("op", log.gate.exclusive("op", "1", writes=writes))
    await log.enter("write", log.gate.write("write", "2"))
    assert ("write" in log.order) is lands
    await log.leave("op", "write")


@pytest.mark.parametrize(("writes", "waits"), [(Writes.land, False), (Writes.drain, True), (Writes.cut, False)])
async def test_writes_under_way_when_it_comes(log: Log, writes: Writes, waits: bool) -> None:
    await log.enter("write", log.gate.write("write", "1"))
    await log.enter("op", log.gate.exclusive("op", "2", writes=writes))
    assert ("op" not in log.order) is waits
    await log.leave("write")
    assert "op" in log.order
    await log.leave("op")


async def test_a_failed_turn_is_given_on(log: Log) -> None:
    with pytest.raises(KeyError):
        async with log.gate.exclusive("op", "1", writes=Writes.land):
            raise KeyError
    await log.enter("next", log.gate.cell("cell", "2"))
    assert log.order == ["next"]
    await log.leave("next")


def test_gates_are_shared_and_parted() -> None:
    gates = Gates()
    gates.share("b", "a")
    assert gates.of("a") is gates.of("b")
    gates.part("b")
    assert gates.of("a") is not gates.of("b")
