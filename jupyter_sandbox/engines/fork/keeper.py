"""The server's side of the keeper (`jupyter_sandbox.agent.keeper`): start it, ask it to start templates."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jupyter_sandbox import agent
from jupyter_sandbox.agent.frames import encode_op, read_frame
from jupyter_sandbox.agent.keeper import KEEPER
from jupyter_sandbox.agent.sockets import connect_in
from jupyter_sandbox.errors import ProviderError

AGENT = Path(agent.__file__).parent
_START_S = 20.0


class KeeperClient:
    """One connection to the keeper; while it is open the keeper stays."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, state_dir: Path) -> KeeperClient:
        """Connect, starting a keeper when none runs.

        Raises:
            ProviderError: It does not start; the message holds the end of its log.
        """
        connection = _connect(state_dir)
        if connection is None:
            connection = await _start(state_dir)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(reader, writer)

    @property
    def closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Start a process as the keeper's child; returns its pid.

        Raises:
            ProviderError: It cannot be started, or the keeper is gone.
        """
        async with self._lock:
            try:
                self._writer.write(
                    b"".join(encode_op({"op": "spawn", "argv": [*argv], "env": {**env}, "log": str(log)}))
                )
                await self._writer.drain()
                frame = await read_frame(self._reader)
            except (OSError, ValueError) as error:
                raise ProviderError(f"The keeper of engine fork is gone: {error}", remedy="Try again") from error
        if frame is None:
            raise ProviderError("The keeper of engine fork is gone", remedy="Try again")
        answer = frame.json()
        if "error" in answer:
            raise ProviderError(f"Cannot start {argv[0]}: {answer['error']}", remedy="Look at the interpreter's path")
        return int(answer["pid"])

    async def close(self) -> None:
        """Let go of it; it ends when it has nothing to keep."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # it was gone already


def _connect(state_dir: Path) -> socket.socket | None:
    try:
        connection = connect_in(str(state_dir), KEEPER, timeout=5)
    except OSError:
        return None
    connection.setblocking(False)
    return connection


async def _start(state_dir: Path) -> socket.socket:
    log = state_dir / "keeper.log"
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(AGENT),
            "keeper",
            str(state_dir),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(_START_S):
            code = await process.wait()  # it is there when its first process, which only daemonizes, has ended
    except TimeoutError:
        process.kill()
        code = await process.wait()
    connection = _connect(state_dir)
    if connection is None:
        tail = log.read_text(errors="replace")[-2000:].strip()
        raise ProviderError(f"The keeper of engine fork did not start (exit code {code}): {tail}", remedy=f"See {log}")
    return connection
