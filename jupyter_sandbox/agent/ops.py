"""The agent's other half: commands, files, search and export of one runtime, in a process of its own.

A worker that runs a cell answers nothing else; this process does. It listens on ``ops`` in the runtime's directory; a
connection carries one request and its answers, and closing it early cancels the request. It ends when it is told to,
or when the runtime's directory is gone, and takes the commands that still run with it.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Awaitable, Callable
from typing import Any

from . import commands, export, files
from .errors import AgentError
from .frames import BrokenFrame, encode_op, read_frame
from .searcher import search_apart
from .sessions import background, kill_sessions
from .sockets import listen_in

OPS = "ops"
MAX_READ = 1 << 30
"""Bytes; a larger file is exported, not read."""

_LOOK_EVERY_S = 2.0

Answer = Callable[..., Awaitable[None]]


class Ops:
    """Serves the runtime whose directory is ``directory`` and whose working directory is ``root``."""

    def __init__(self, directory: str, root: str) -> None:
        self._directory = directory
        self._root = root
        self._sessions: set[int] = set()
        self._done = asyncio.Event()

    async def serve(self) -> None:
        """Run until told to end."""
        server = await asyncio.start_unix_server(self._connected, sock=listen_in(self._directory, OPS))
        async with server:
            while not self._done.is_set() and os.path.exists(os.path.join(self._directory, OPS)):
                try:
                    await asyncio.wait_for(self._done.wait(), _LOOK_EVERY_S)
                except TimeoutError:
                    continue
        kill_sessions(self._sessions)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def answer(value: dict[str, Any], *binary: bytes) -> None:
            writer.write(b"".join(encode_op(value, *binary)))
            await writer.drain()

        try:
            frame = await read_frame(reader)
            if frame is None:
                return
            work = asyncio.ensure_future(self._carry_out(frame.json(), frame.parts[1:], answer))
            gone = asyncio.ensure_future(reader.read(1))  # a client says nothing more: its end is all that can come
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        except (ConnectionError, BrokenFrame, ValueError):
            return  # it went away, or is no client of ours
        finally:
            writer.close()

    async def _carry_out(self, request: dict[str, Any], binary: tuple[bytes, ...], answer: Answer) -> None:
        try:
            await self._operate(request, binary, answer)
            await answer({"end": True})
        except AgentError as error:
            await answer({"error": error.to_dict()})

    async def _operate(self, request: dict[str, Any], binary: tuple[bytes, ...], answer: Answer) -> None:
        arguments = {name: value for name, value in request.items() if name != "op"}
        # Files may lie on slow disks: none of them is touched in the loop, which also streams commands.
        match request.get("op"):
            case "exec":
                await self._exec(arguments, binary[0], answer)
            case "write_bytes":
                await asyncio.to_thread(files.write_bytes, self._root, arguments["path"], binary[0])
                await answer({})
            case "read_bytes":
                await answer({}, await asyncio.to_thread(files.read_bytes, self._root, arguments["path"], MAX_READ))
            case "create_dir_all":
                await asyncio.to_thread(files.create_dir_all, self._root, arguments["path"])
                await answer({})
            case "temp_path":
                await answer({"path": await asyncio.to_thread(files.temp_path, self._root, **arguments)})
            case "remove":
                await asyncio.to_thread(files.remove, self._root, arguments["path"])
                await answer({})
            case "stat":
                await answer({"stat": await asyncio.to_thread(files.stat, self._root, arguments["path"])})
            case "search":
                await answer({"result": await search_apart(self._root, **arguments)})
            case "export":
                pieces = export.export(self._root, arguments["path"])
                while piece := await asyncio.to_thread(next, pieces, b""):
                    await answer({}, piece)
            case "background":
                await answer({"commands": [member.command for member in background(self._sessions)]})
            case "exit":
                self._done.set()
            case unknown:
                raise AgentError("InvalidRequest", f"The agent has no operation {unknown!r}")

    async def _exec(self, arguments: dict[str, Any], stdin: bytes, answer: Answer) -> None:
        decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

        async def on_output(stream: str, data: bytes, *, final: bool = False) -> None:
            text = decoders[stream].decode(data, final)
            if text:
                await answer({"stream": stream}, text.encode())

        code, timed_out = await commands.run(
            argv=arguments["argv"],
            shell=arguments["shell"],
            root=self._root,
            cwd=arguments["cwd"] or ".",
            env=arguments["env"],
            stdin=stdin if arguments["has_stdin"] else None,
            timeout_s=arguments["timeout_s"],
            on_output=on_output,
            on_start=self._sessions.add,
        )
        for stream in decoders:
            await on_output(stream, b"", final=True)
        await answer({"exit_code": code, "timed_out": timed_out})


def main(directory: str, root: str) -> None:
    """Serve the runtime in ``directory``."""
    asyncio.run(Ops(directory, root).serve())
