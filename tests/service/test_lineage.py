from __future__ import annotations

import pytest

from jupyter_sandbox.service import lineage
from tests.service.conftest import Plane


async def tree(plane: Plane, **options) -> list[tuple[str, str | None]]:
    """(name, parent's name) of every node, in order."""
    nodes = (await plane.cp.lineage(**options)).nodes
    names = {n.id: (n.runtime or n.checkpoint).name or n.id for n in nodes}
    return [(names[n.id], n.parent_id and names[n.parent_id]) for n in nodes]


@pytest.fixture
async def family(plane: Plane) -> Plane:
    await plane.create("exp")
    await plane.checkpoint("exp", "a")
    await plane.checkpoint("exp", "b")
    await plane.fork("b", "kid")
    await plane.checkpoint("kid", "k1")
    await plane.fork("k1", "grandkid")
    return plane


async def test_the_tree(family: Plane) -> None:
    assert await tree(family) == [
        ("exp", None),
        ("a", "exp"),
        ("b", "a"),
        ("kid", "b"),
        ("k1", "kid"),
        ("grandkid", "k1"),
    ]


async def test_what_hung_below_a_deleted_checkpoint_hangs_below_the_one_above(family: Plane) -> None:
    await family.cp.delete_checkpoint("b")
    assert ("kid", "a") in await tree(family)
    await family.cp.delete_checkpoint("a")
    assert ("kid", "exp") in await tree(family)
    await family.cp.delete_checkpoint("k1")
    assert ("grandkid", "kid") in await tree(family)


async def test_closed_runtimes_can_be_left_out(family: Plane) -> None:
    await family.close((await family.cp.runtime("kid")).runtime_id)
    assert ("kid", "b") in await tree(family)
    without = await tree(family, include_closed=False)
    assert ("k1", "b") in without
    assert ("grandkid", "k1") in without
    assert "kid" not in dict(without)


async def test_a_very_deep_tree(plane: Plane) -> None:
    await plane.create("exp")
    taken = await plane.checkpoint("exp")
    runtime = await plane.cp.runtime("exp")
    record = taken.checkpoint
    ids = [f"cp_{n:032x}" for n in range(20_000)]
    chain = [
        record.model_copy(update={"checkpoint_id": cp, "parent_checkpoint_id": before, "created_at_ms": n})
        for n, (cp, before) in enumerate(zip(ids, [None, *ids[:-1]], strict=True))
    ]
    nodes = lineage.build([runtime], chain, {}, {c.checkpoint_id: c.parent_checkpoint_id for c in chain}).nodes
    assert [n.id for n in nodes] == [runtime.runtime_id, *ids]


def test_root_is_the_stem() -> None:
    assert lineage.root("rt_1.2") == lineage.root("rt_1.3") == lineage.root("rt_1") == "rt_1"
