"""The server's side of a runtime's other half (`jupyter_sandbox.agent.ops`): one connection for each request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jupyter_sandbox.agent.frames import BrokenFrame, Frame, encode_op, read_frame
from jupyter_sandbox.agent.ops import OPS
from jupyter_sandbox.agent.sockets import connect_in
from jupyter_sandbox.engines.fork.errors import agent_error
from jupyter_sandbox.engines.fork.keeper import AGENT, KeeperClient
from jupyter_sandbox.errors import ProviderError

_START_S = 20.0


class OpsClient:
    """Commands and files of one backend. Its process is started at the first request.

    Args:
        directory: The backend's directory.
        root: Its working directory.
        keeper: Gives who starts the process.
        mark: Stands in the environment of the process.
    """

    def __init__(
        self,
        directory: Path,
        root: str,
        keeper: Callable[[], Awaitable[KeeperClient]],
        mark: Mapping[str, str],
    ) -> None:
        self._directory = directory
        self._root = root
        self._keeper = keeper
        self._mark = mark
        self._starting = asyncio.Lock()

    async def call(self, op: str, *binary: bytes, **arguments: Any) -> Frame:
        """A request with one answer.

        Raises:
            SandboxError: What the agent reports.
        """
        async with aclosing(self.stream(op, *binary, **arguments)) as answers:
            async for frame in answers:
                return frame
        raise ProviderError(f"The runtime's agent gave no answer to {op}", remedy="Try again")

    async def stream(self, op: str, *binary: bytes, **arguments: Any) -> AsyncGenerator[Frame, None]:
        """A request with several answers; closing the iterator cancels it.

        Raises:
            SandboxError: What the agent reports.
        """
        reader, writer = await self._connect()
        try:
            writer.write(b"".join(encode_op({"op": op, **arguments}, *binary)))
            await writer.drain()
            while (frame := await read_frame(reader)) is not None:
                value = frame.json()
                if "error" in value:
                    raise agent_error(value)
                if value.get("end"):
                    return
                yield frame
            raise ProviderError("The runtime's agent ended in the middle of an answer", remedy="Try again")
        except (ConnectionError, BrokenFrame) as error:
            raise ProviderError(f"The runtime's agent broke off: {error}", remedy="Try again") from error
        finally:
            writer.close()

    async def background(self) -> list[str]:
        """The commands that earlier ones left running; none when the process was never started."""
        connection = await self._reach()
        if connection is None:
            return []
        connection[1].close()
        return list((await self.call("background")).json()["commands"])

    async def end(self) -> None:
        """End the process and the commands that still run, when it was ever started."""
        connection = await self._reach()
        if connection is None:
            return
        reader, writer = connection
        try:
            writer.write(b"".join(encode_op({"op": "exit"})))
            await writer.drain()
            await reader.read()  # until it is gone
        except ConnectionError:
            return  # it is gone
        finally:
            writer.close()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            connection = connect_in(str(self._directory), OPS, timeout=5)
        except OSError:
            return None
        connection.setblocking(False)
        return await asyncio.open_unix_connection(sock=connection)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._starting:
            connection = await self._reach()
            if connection is not None:
                return connection
            log = self._directory / "ops.log"
            argv = [sys.executable, str(AGENT), "ops", str(self._directory), self._root]
            await (await self._keeper()).spawn(argv, self._mark, log)
            deadline = asyncio.get_running_loop().time() + _START_S
            while (connection := await self._reach()) is None:
                if asyncio.get_running_loop().time() > deadline:
                    tail = log.read_text(errors="replace")[-1000:].strip()
                    raise ProviderError(f"The runtime's agent does not answer: {tail}", remedy="Try again")
                await asyncio.sleep(0.005)
            return connection
