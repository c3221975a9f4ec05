from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from jupyter_sandbox.engines.base import Child
from jupyter_sandbox.engines.fork import ForkEngine
from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.models import BackendCheckpointRef, CellDone, CellOutput, CellRequest, RuntimeCreateRequest, new_id
from tests.support.processes import remove, wait_until_gone


@pytest.fixture(scope="package")
def state_dir(tmp_path_factory):
    """One state directory for all tests here: its template is started once. Nothing of it may outlive it."""
    directory = tmp_path_factory.mktemp("fork")
    directory.chmod(0o700)
    yield directory
    remove(directory)
    assert wait_until_gone(directory) == []


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared_engine(state_dir):
    """One engine for all tests here, so that its template is started once."""
    engine = ForkEngine()
    await engine.start(state_dir)
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(loop_scope="package")
async def engine(shared_engine):
    yield shared_engine
    await clear(shared_engine)


@pytest_asyncio.fixture(loop_scope="package")
async def own_lab(tmp_path):
    """For tests that stop their engine."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    engine = ForkEngine()
    await engine.start(directory)
    yield Lab(engine)
    heir = ForkEngine()
    await heir.start(directory)
    await clear(heir)
    await heir.stop()
    remove(directory)
    assert await asyncio.to_thread(wait_until_gone, directory) == []


async def clear(engine):
    """End all that a test made."""
    inventory = await engine.inspect()
    for backend_id in inventory.backends:
        await engine.release(backend_id)
    for snapshot_id in inventory.snapshots:
        await engine.delete_snapshot(reference(snapshot_id))


def reference(snapshot_id):
    return BackendCheckpointRef(engine="fork", provider_snapshot_id=snapshot_id)


class Lab:
    """Shorthand for what most tests do."""

    def __init__(self, engine):
        self.engine = engine

    async def create(self, **fields):
        request = RuntimeCreateRequest(**fields)
        settings = await self.engine.resolve(request)
        return await self.engine.create(new_id("be"), settings, request.env)

    async def checkpoint(self, backend):
        return await self.engine.checkpoint(backend, new_id("sn"))

    async def fork(self, snapshot, **fields):
        settings = (await self.engine.resolve(RuntimeCreateRequest())).model_copy(update=fields)
        (child,) = await self.engine.checkout(snapshot.ref, [Child(backend_id=new_id("be"), settings=settings)])
        if isinstance(child, SandboxError):
            raise child
        return child

    async def events(self, backend, code, **fields):
        return [event async for event in backend.run_cell(CellRequest(code=code, **fields))]

    async def run(self, backend, code):
        """The text of a cell that must succeed."""
        events = await self.events(backend, code)
        done = events[-1]
        assert isinstance(done, CellDone)
        assert done.status == "ok", done.error
        return text_of(events)

    async def error(self, backend, code):
        done = (await self.events(backend, code))[-1]
        assert done.status == "error"
        return done.error


def text_of(events):
    outputs = [event.output for event in events if isinstance(event, CellOutput)]
    return "".join(
        output["text"] if output["output_type"] == "stream" else output.get("data", {}).get("text/plain", "")
        for output in outputs
    )


@pytest.fixture
def lab(engine):
    return Lab(engine)
