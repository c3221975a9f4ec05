from __future__ import annotations

import asyncio

import pytest

from jupyter_sandbox.errors import CheckpointNotFound, NameTaken
from tests.service.conftest import Plane


async def test_runtimes_and_checkpoints_share_one_namespace(plane: Plane) -> None:
    await plane.create("a")
    with pytest.raises(NameTaken) as caught:
        await plane.checkpoint("a", "a")
    assert caught.value.context["kind"] == "runtime"
    await plane.checkpoint("a", "b")
    with pytest.raises(NameTaken) as caught:
        await plane.fork("b", "b")
    assert caught.value.context["kind"] == "checkpoint"


async def test_a_checkpoint_reference_that_is_a_runtime_says_so(plane: Plane) -> None:
    await plane.create("a")
    with pytest.raises(CheckpointNotFound, match="a is a runtime, not a checkpoint"):
        await plane.record("a")


async def test_a_name_is_held_while_its_runtime_is_being_made(plane: Plane) -> None:
    gate = plane.toy.hold("create")
    making = asyncio.create_task(plane.create("a"))
    await gate.entered.wait()
    with pytest.raises(NameTaken):
        await plane.create("a")
    gate.open.set()
    await making


async def test_one_of_many_who_want_a_name_gets_it(plane: Plane) -> None:
    await plane.create("exp")
    await plane.checkpoint("exp", "base")
    results = await asyncio.gather(*(plane.fork("base", "kid") for _ in range(5)), return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["NameTaken"] * 4 + ["SandboxForkResult"]
    assert len(plane.toy.backends) == 2
