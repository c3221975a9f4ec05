from __future__ import annotations

from pathlib import Path

from jupyter_sandbox.service import ControlPlane, ServiceConfig
from jupyter_sandbox.service.hosts import Hosts
from tests.service.conftest import Plane
from tests.toy_engine import ToyEngine


async def test_engines_say_what_they_can(plane: Plane) -> None:
    infos = (await plane.cp.engines()).engines
    assert [(i.name, i.available) for i in infos] == [("toy", True), ("toy-files", True)]


async def test_an_engines_state_directory_is_its_own(plane: Plane) -> None:
    for directory in (plane.store_dir, plane.store_dir / "engines" / "toy"):
        assert directory.stat().st_mode & 0o777 == 0o700


async def test_an_engine_that_cannot_be_loaded_is_listed_with_the_reason(tmp_path: Path) -> None:
    async def nothing(_: str, __: object) -> None: ...

    hosts = Hosts(ServiceConfig(store_dir=tmp_path), {"toy": ToyEngine()}, {"bad": "No module named 'bad'"}, nothing)
    info = (await hosts.probe())[0]
    assert (info.name, info.available, info.detail) == ("bad", False, "No module named 'bad'")


async def test_a_runtime_of_an_engine_that_is_gone_is_still_listed(plane: Plane) -> None:
    await plane.create("exp")
    await plane.cp.aclose()
    plane.cp = await ControlPlane.open(ServiceConfig(store_dir=plane.store_dir), {})
    (summary,) = (await plane.cp.runtimes()).runtimes
    assert (summary.engine, summary.capabilities.memory) == ("toy", False)
