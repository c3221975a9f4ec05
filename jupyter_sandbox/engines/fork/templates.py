"""Templates: for each interpreter and environment one frozen process that has imported IPython and run nothing.

A runtime is created by thawing its template, as a fork is by thawing a snapshot: create is as quick as fork.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_sandbox._version import __version__
from jupyter_sandbox.agent.frames import BrokenFrame, encode_op, read_frame
from jupyter_sandbox.agent.frozen import FROZEN
from jupyter_sandbox.agent.sockets import connect_in
from jupyter_sandbox.agent.trees import remove_tree
from jupyter_sandbox.engines.fork.errors import agent_error
from jupyter_sandbox.engines.fork.keeper import AGENT, KeeperClient
from jupyter_sandbox.engines.fork.layout import Layout
from jupyter_sandbox.errors import CheckpointLost, ProviderError

_START_S = 60.0


async def ask_frozen(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """One request to the frozen process that serves ``directory``, and its answer.

    Raises:
        CheckpointLost: It is gone.
        SandboxError: What it reports.
    """
    try:
        connection = connect_in(str(directory), FROZEN, timeout=10)
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            writer.write(b"".join(encode_op(dict(request))))
            await writer.drain()
            frame = await read_frame(reader)
        finally:
            writer.close()
    except (OSError, BrokenFrame) as error:
        raise CheckpointLost(f"Its frozen process is gone ({error})", remedy="Use another checkpoint") from error
    if frame is None:
        raise ProviderError("The frozen process ended in the middle of an answer", remedy="Try again")
    value = frame.json()
    if "error" in value:
        raise agent_error(value)
    return value


class Templates:
    """The templates of one state directory."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._starting: dict[str, asyncio.Lock] = {}

    async def ready(self, python: str, environment: Mapping[str, str], keeper: KeeperClient) -> Path:
        """The directory of a template that answers, started when there is none.

        Raises:
            ProviderError: It does not start; the message holds the end of its log.
        """
        identity = json.dumps([python, sorted(environment.items()), __version__])
        key = hashlib.sha256(identity.encode()).hexdigest()[:16]
        directory = self._layout.templates / key
        async with self._starting.setdefault(key, asyncio.Lock()):
            with suppress(CheckpointLost):
                await ask_frozen(directory, {"op": "ping"})
                return directory
            await asyncio.to_thread(remove_tree, str(directory))
            directory.mkdir(mode=0o700)
            await self._start(directory, python, environment, keeper)
        return directory

    async def drop(self) -> None:
        """End all templates: they hold nothing that anybody could miss, and some memory."""
        if not self._layout.templates.is_dir():
            return  # the store was removed; the keeper ends what is left
        for directory in [*self._layout.templates.iterdir()]:
            with suppress(CheckpointLost, ProviderError):  # it ends without an answer, or had ended
                await ask_frozen(directory, {"op": "drop"})
            await asyncio.to_thread(remove_tree, str(directory))

    async def _start(self, directory: Path, python: str, environment: Mapping[str, str], keeper: KeeperClient) -> None:
        log = directory / "log"
        argv = [python, str(AGENT), "template", str(directory), str(self._layout.root)]
        pid = await keeper.spawn(argv, environment, log)
        deadline = asyncio.get_running_loop().time() + _START_S
        while asyncio.get_running_loop().time() < deadline:
            with suppress(CheckpointLost):
                await ask_frozen(directory, {"op": "ping"})
                return
            if not Path(f"/proc/{pid}").exists():
                break
            await asyncio.sleep(0.005)
        tail = log.read_text(errors="replace")[-2000:].strip()
        raise ProviderError(
            f"The interpreter {python} did not start as a runtime: {tail}",
            remedy="Try it by hand: it must be Python 3.11 or newer on this machine",
        )
