from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import Conflict, IdempotencyMismatch, NameTaken, ServerUnavailable
from jupyter_sandbox.models import RuntimeCreateRequest
from jupyter_sandbox.store import idempotency
from tests.service.conftest import Plane


def creation(plane: Plane, name: str = "exp"):
    return lambda: plane.cp.create(RuntimeCreateRequest(engine="toy", name=name))


async def test_the_first_answer_is_given_again(plane: Plane) -> None:
    first = await plane.cp.idempotent("k", "f", creation(plane))
    assert await plane.cp.idempotent("k", "f", creation(plane)) == first
    await plane.reopen()
    assert await plane.cp.idempotent("k", "f", creation(plane)) == first
    assert plane.toy.calls.count("create") == 1


async def test_two_at_once_run_once(plane: Plane) -> None:
    answers = await asyncio.gather(*(plane.cp.idempotent("k", "f", creation(plane)) for _ in range(4)))
    assert all(answer == answers[0] for answer in answers)
    assert plane.toy.calls.count("create") == 1


async def test_the_first_error_is_raised_again(plane: Plane) -> None:
    await plane.create("exp")
    for _ in range(2):
        with pytest.raises(NameTaken) as caught:
            await plane.cp.idempotent("k", "f", creation(plane))
        assert caught.value.context["name"] == "exp"
        await plane.close((await plane.cp.runtimes()).runtimes[0].runtime_id) if _ == 0 else None
    assert (await plane.cp.runtimes()).runtimes == ()


async def test_a_key_belongs_to_one_request(plane: Plane) -> None:
    await plane.cp.idempotent("k", "f", creation(plane))
    with pytest.raises(IdempotencyMismatch):
        await plane.cp.idempotent("k", "other", creation(plane))


async def test_a_bug_or_a_closing_server_is_no_answer(plane: Plane) -> None:
    async def broken():
        raise RuntimeError("bug")

    async def closing():
        raise ServerUnavailable("closing")

    with pytest.raises(RuntimeError):
        await plane.cp.idempotent("k", "f", broken)
    with pytest.raises(ServerUnavailable):
        await plane.cp.idempotent("k", "f", closing)
    assert (await plane.cp.idempotent("k", "f", creation(plane)))["created"]


async def test_after_a_crash_before_the_work_it_runs(plane: Plane) -> None:
    await plane.cp._core.store.run(lambda c: idempotency.begin(c, "k", "f"))
    assert (await plane.cp.idempotent("k", "f", creation(plane)))["created"]


async def test_after_a_crash_between_work_and_answer_it_does_not_run_again(plane: Plane) -> None:
    first = await plane.cp.idempotent("k", "f", creation(plane))

    def lose_the_answer(connection) -> None:
        idempotency.forget(connection, "k")
        idempotency.begin(connection, "k", "f")

    await plane.cp._core.store.run(lose_the_answer)
    with pytest.raises(Conflict) as caught:
        await plane.cp.idempotent("k", "f", creation(plane, "other"))
    assert caught.value.context["runtime_id"] == first["runtime"]["runtime_id"]
    assert plane.toy.calls.count("create") == 1
