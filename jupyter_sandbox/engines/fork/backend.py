"""A live backend of engine fork: a worker for its cells, and its agent's other half for commands and files."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jupyter_sandbox.engines.base import Backend
from jupyter_sandbox.engines.fork.link import Message, WorkerLink
from jupyter_sandbox.engines.fork.ops import OpsClient
from jupyter_sandbox.models import (
    CellDone,
    CellError,
    CellEvent,
    CellOutput,
    CellRequest,
    CompleteRequest,
    CompleteResult,
    ExecDone,
    ExecEvent,
    ExecOutput,
    ExecRequest,
    ExportRequest,
    FileStat,
    MemoryUse,
    SearchRequest,
    SearchResult,
    TempPathRequest,
)

_INTERRUPTED: Message = {
    "status": "error",
    "ename": "KeyboardInterrupt",
    "evalue": "the interrupt came when the cell had just ended",
    "traceback": (),
}
_OUTPUTS = {"stream", "display_data", "execute_result", "error", "update_display_data", "clear_output"}


class ForkBackend(Backend):
    """See `Backend`.

    Attributes:
        own_files: Whether the working directory is the backend's own, so that checkpoints hold its files.
        adopted: Whether an earlier server made it, and may have left a cell running in it.
    """

    def __init__(
        self,
        backend_id: str,
        directory: Path,
        cwd: str,
        *,
        own_files: bool,
        link: WorkerLink,
        ops: OpsClient,
        environment: Callable[[], Awaitable[Mapping[str, str]]],
        adopted: bool,
    ) -> None:
        self.backend_id = backend_id
        self.directory = directory
        self.cwd = cwd
        self.own_files = own_files
        self.link = link
        self.ops = ops
        self.adopted = adopted
        self._environment = environment

    # Cells

    async def run_cell(self, request: CellRequest) -> AsyncGenerator[CellEvent, None]:
        start = time.perf_counter()
        content = {
            "code": request.code,
            "silent": request.silent,
            "store_history": request.store_history and not request.silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        reply: Message = {}
        async with aclosing(self.link.converse("execute_request", content)) as messages:
            async for message in messages:
                kind = message["msg_type"]
                if kind in _OUTPUTS:
                    yield CellOutput(output=_output(message))
                elif kind == "execute_reply":
                    reply = message["content"]
        reply = reply or _INTERRUPTED
        error = None
        if reply["status"] == "error":
            error = CellError(ename=reply["ename"], evalue=reply["evalue"], traceback=tuple(reply["traceback"]))
        yield CellDone(
            status=reply["status"],
            execution_count=reply.get("execution_count"),
            error=error,
            elapsed_ms=(time.perf_counter() - start) * 1e3,
        )

    async def interrupt(self) -> None:
        process = self.link.process
        if process.alive():
            # The whole group, as Ctrl-C does: children of the cell stop too. The worker leads its own session.
            os.killpg(process.pid, signal.SIGINT)

    async def complete(self, request: CompleteRequest) -> CompleteResult:
        position = len(request.code) if request.cursor_pos is None else min(request.cursor_pos, len(request.code))
        reply: Message = {}
        content = {"code": request.code, "cursor_pos": position}
        async with aclosing(self.link.converse("complete_request", content)) as messages:
            async for message in messages:
                if message["msg_type"] == "complete_reply":
                    reply = message["content"]
        return CompleteResult(
            matches=tuple(reply.get("matches", ())),
            cursor_start=reply.get("cursor_start", position),
            cursor_end=reply.get("cursor_end", position),
            metadata=reply.get("metadata", {}),
        )

    # Commands

    async def exec(self, request: ExecRequest) -> AsyncGenerator[ExecEvent, None]:
        start = time.perf_counter()
        arguments: dict[str, Any] = {
            "argv": request.argv,
            "shell": request.shell,
            "env": {**await self._environment(), **request.env},
            "cwd": request.cwd,
            "timeout_s": request.timeout_s,
            "has_stdin": request.stdin is not None,
        }
        stdin = (request.stdin or "").encode()
        async with aclosing(self.ops.stream("exec", stdin, **arguments)) as answers:
            async for frame in answers:
                value = frame.json()
                if "exit_code" in value:
                    elapsed = (time.perf_counter() - start) * 1e3
                    yield ExecDone(exit_code=value["exit_code"], timed_out=value["timed_out"], elapsed_ms=elapsed)
                else:
                    yield ExecOutput(stream=value["stream"], text=frame.parts[1].decode())

    async def background(self) -> list[dict[str, str]]:
        """Commands that earlier ones left running, as rows of what a checkpoint does not hold."""
        remedy = "Start it again in the fork, or run it in a cell of a runtime on an engine that captures processes"
        return [{"kind": "process", "what": what, "remedy": remedy} for what in await self.ops.background()]

    # Files

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self.ops.call("write_bytes", data, path=path)

    async def read_bytes(self, path: str) -> bytes:
        return (await self.ops.call("read_bytes", path=path)).parts[1]

    async def create_dir_all(self, path: str) -> None:
        await self.ops.call("create_dir_all", path=path)

    async def temp_path(self, request: TempPathRequest) -> str:
        return str((await self.ops.call("temp_path", **request.model_dump())).json()["path"])

    async def remove(self, path: str) -> None:
        await self.ops.call("remove", path=path)

    async def stat(self, path: str) -> FileStat:
        return FileStat.model_validate((await self.ops.call("stat", path=path)).json()["stat"])

    async def search(self, request: SearchRequest) -> SearchResult:
        return SearchResult.model_validate((await self.ops.call("search", **request.model_dump())).json()["result"])

    async def export(self, request: ExportRequest) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.ops.stream("export", path=request.path)) as answers:
            async for frame in answers:
                yield frame.parts[1]

    # State

    async def quiescent(self) -> bool:
        return bool((await self.link.request("quiescent"))["quiescent"])

    async def memory(self) -> MemoryUse | None:
        return await asyncio.to_thread(memory_use, self.link.process.pid)

    async def died(self) -> str:
        return await self.link.ended()


def _output(message: Message) -> dict[str, Any]:
    """A message's content as an nbformat output, and ``transient`` where there is one: a later update names its id.

    By hand, for nbformat's own function validates each output against a JSON schema: 1 ms where a cell takes 3.
    """
    output = {"output_type": message["msg_type"], **message["content"]}
    if not output.get("transient"):
        output.pop("transient", None)
    return output


def memory_use(pid: int) -> MemoryUse | None:
    """A process's memory by ``/proc/PID/smaps_rollup``; None when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError):
        return None
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    return MemoryUse(
        private_bytes=sizes["Private_Clean"] + sizes["Private_Dirty"],
        shared_bytes=sizes["Shared_Clean"] + sizes["Shared_Dirty"],
    )
