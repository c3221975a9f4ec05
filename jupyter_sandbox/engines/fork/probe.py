"""Whether engine fork works here: a runtime is created, checkpointed, forked and asked, within a time limit."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.models import CellDone, CellRequest, RuntimeCreateRequest, new_id

if TYPE_CHECKING:
    from jupyter_sandbox.engines.base import Backend
    from jupyter_sandbox.engines.fork.engine import ForkEngine

_TIMEOUT_S = 60.0


async def self_test(engine: ForkEngine) -> tuple[str, str]:
    """What was found, in a sentence, and the remedy; no remedy means that it works."""
    if not sys.platform.startswith("linux"):
        return f"Engine fork needs Linux, this is {sys.platform}", "Use WSL2 or another engine"
    start = time.perf_counter()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await _fork_once(engine)
    except SandboxError as error:
        return f"The self-test failed: {error.message}", error.remedy or "Look at the keeper's log in the store"
    except TimeoutError:
        return f"The self-test did not end within {_TIMEOUT_S:.0f} s", "Try again when the machine is less busy"
    return f"A runtime was created, checkpointed and forked in {(time.perf_counter() - start) * 1e3:.0f} ms", ""


async def _fork_once(engine: ForkEngine) -> None:
    from jupyter_sandbox.engines.base import Child

    settings = await engine.resolve(RuntimeCreateRequest())
    source = await engine.create(new_id("be"), settings, {})
    try:
        await _run(source, "answer = 41")
        snapshot = await engine.checkpoint(source, new_id("sn"))
        try:
            (child,) = await engine.checkout(snapshot.ref, [Child(backend_id=new_id("be"), settings=settings)])
            if isinstance(child, SandboxError):
                raise child
            try:
                await _run(child, "assert answer + 1 == 42")
            finally:
                await engine.release(child.backend_id)
        finally:
            await engine.delete_snapshot(snapshot.ref)
    finally:
        await engine.release(source.backend_id)


async def _run(backend: Backend, code: str) -> None:
    async for event in backend.run_cell(CellRequest(code=code)):
        if isinstance(event, CellDone) and event.status != "ok":
            raise SandboxError(f"a cell of the self-test ended as {event.error}")
