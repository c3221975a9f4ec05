"""One runtime: its life, and what runs inside it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from jupyter_sandbox.client import wire
from jupyter_sandbox.client._async.connection import AsyncConnection
from jupyter_sandbox.client.checkpoint import Checkpoint
from jupyter_sandbox.client.files import whole_file
from jupyter_sandbox.client.results import CellCollector, CellResultView, ExecCollector, ExecResultView
from jupyter_sandbox.client.views import runtime_line
from jupyter_sandbox.errors import InvalidRequest
from jupyter_sandbox.models import (
    CELL_EVENT,
    EXEC_EVENT,
    CellEvent,
    CellRequest,
    CompleteRequest,
    CompleteResult,
    ExecEvent,
    ExecRequest,
    ExportRequest,
    FileStat,
    Metadata,
    PathRequest,
    PathResult,
    RuntimeCheckpointResult,
    RuntimeCloseRequest,
    RuntimePauseRequest,
    RuntimePauseResult,
    RuntimeRecord,
    RuntimeResult,
    RuntimeResumeRequest,
    RuntimeSummary,
    RuntimeUpdateRequest,
    SandboxCheckpointRequest,
    SandboxForkRequest,
    SandboxForkResult,
    SearchRequest,
    SearchResult,
    TempPathRequest,
    Timings,
)


class AsyncRuntime:
    """A runtime on a server. Comes from ``client.runtimes`` and ``client.fork``; holds no resources of its own.

    Attributes:
        record: What the server last said about it; `refresh` asks again.
        created: Whether the call that returned this object made the runtime.
        timings: What making it cost, in parts; None when it was looked up.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        record: RuntimeSummary,
        *,
        created: bool = False,
        timings: Timings | None = None,
    ) -> None:
        self._connection = connection
        self.record = record
        self.created = created
        self.timings = timings

    @property
    def id(self) -> str:
        """The ``runtime_id``: stays the same through pause and resume."""
        return self.record.runtime_id

    @property
    def name(self) -> str | None:
        """Its name, if it has one."""
        return self.record.name

    @property
    def status(self) -> str:
        """``idle``, ``running``, ``paused``, ``failed`` or ``closed``, as last heard."""
        return self.record.status.value

    def __repr__(self) -> str:
        return runtime_line(self.record)

    # What runs inside.

    def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        silent: bool = False,
        store_history: bool = True,
    ) -> AsyncGenerator[CellEvent, None]:
        """Run a cell and yield its events as they come; the last is a `CellDone`.

        Leaving the iterator early (closing it, Ctrl-C, cancelling) interrupts the cell.

        Args:
            code: The cell, magics and all where the runtime has IPython.
            timeout: Seconds, then the cell is interrupted.
            silent: Without output, history or count.
            store_history: Whether the cell gets a number and is kept in the history.

        Raises:
            SandboxError: The cell could not be run. An error of the code itself is an event, not an exception.
        """
        body = wire.build(CellRequest, code=code, timeout_s=timeout, silent=silent, store_history=store_history)
        return self._connection.events(CELL_EVENT, self._path("cells"), body, abandoned=self.interrupt)

    async def run(
        self,
        code: str,
        timeout: float | None = None,
        on_event: Callable[[CellEvent], None] | None = None,
        *,
        check: bool = False,
        silent: bool = False,
        store_history: bool = True,
    ) -> CellResultView:
        """Run a cell to its end.

        An error of the code is ``result.status == "error"``; as in `subprocess.run`, ``check`` makes it an exception.

        Args:
            code: The cell.
            timeout: Seconds, then the cell is interrupted and ``result.timed_out``.
            on_event: Called with each event as it comes.
            check: Raise `CellFailed` unless the cell ended well.
            silent: Without output, history or count.
            store_history: Whether the cell gets a number and is kept in the history.

        Raises:
            SandboxError: The cell could not be run.
            CellFailed: ``check``, and the code failed.
        """
        collector = CellCollector()
        stream = self.stream(code, timeout=timeout, silent=silent, store_history=store_history)
        async with aclosing(stream) as events:
            async for event in events:
                collector.add(event)
                if on_event is not None:
                    on_event(event)
        result = collector.result()
        if check:
            result.raise_for_error()
        return result

    def exec_stream(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[ExecEvent, None]:
        """Run a command beside the cells and yield its events as they come; the last is an `ExecDone`.

        Leaving the iterator early ends the command's process group. The arguments are those of `exec`.
        """
        if isinstance(argv, str):
            raise InvalidRequest("argv is a list of words", remedy="Write shell=… for a command line", field="argv")
        body = wire.build(
            ExecRequest,
            argv=None if argv is None else tuple(argv),
            shell=shell,
            env=dict(env or {}),
            cwd=cwd,
            stdin=stdin,
            timeout_s=timeout,
        )
        return self._connection.events(EXEC_EVENT, self._path("exec"), body)

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | None = None,
        timeout: float | None = None,
        on_event: Callable[[ExecEvent], None] | None = None,
        check: bool = False,
    ) -> ExecResultView:
        """Run a command beside the cells, to its end.

        Args:
            argv: The program and its arguments; or
            shell: a line for ``/bin/sh -c``.
            env: Added to the runtime's environment.
            cwd: Relative to the runtime's working directory.
            stdin: The command's input.
            timeout: Seconds, then its whole process group ends and ``result.timed_out``.
            on_event: Called with each event as it comes.
            check: Raise `CommandFailed` unless the exit code is 0.

        Raises:
            SandboxError: The command could not be run.
            CommandFailed: ``check``, and the command failed.
        """
        collector = ExecCollector()
        stream = self.exec_stream(argv, shell=shell, env=env, cwd=cwd, stdin=stdin, timeout=timeout)
        async with aclosing(stream) as events:
            async for event in events:
                collector.add(event)
                if on_event is not None:
                    on_event(event)
        result = collector.result()
        if check:
            result.raise_for_error()
        return result

    async def interrupt(self) -> None:
        """Interrupt the running cell, as Ctrl-C does; nothing happens when none runs."""
        await self._connection.send("POST", self._path("interrupt"))

    async def complete(self, code: str, pos: int | None = None) -> CompleteResult:
        """Completions at a cursor (characters from the start; default: the end of the code)."""
        body = wire.build(CompleteRequest, code=code, cursor_pos=pos)
        return await self._connection.call(CompleteResult, "POST", self._path("complete"), body)

    # Its life.

    async def refresh(self) -> AsyncRuntime:
        """Ask the server for `record` anew; returns this runtime."""
        self.record = await self._connection.call(RuntimeSummary, "GET", self._path())
        return self

    async def update(self, *, name: str | None = None, metadata: Metadata | None = None) -> AsyncRuntime:
        """Rename it or replace its metadata; what is None stays. Returns this runtime."""
        body = wire.build(RuntimeUpdateRequest, name=name, metadata=metadata)
        self.record = await self._connection.call(RuntimeSummary, "PATCH", self._path(), body)
        return self

    async def attach(self) -> AsyncRuntime:
        """Make sure that its live handle is there; creates nothing. Returns this runtime.

        Raises:
            WrongStatus: It is paused or closed.
            RuntimeFailed: Its process died.
        """
        self._heard((await self._connection.call(RuntimeResult, "POST", self._path("attach"))).runtime)
        return self

    async def checkpoint(
        self, name: str | None = None, rebind: bool = False, metadata: Metadata | None = None, *, pin: bool = False
    ) -> Checkpoint:
        """Capture it as it is now; it goes on.

        Args:
            name: A name for the checkpoint.
            rebind: Take the name over from a checkpoint of the same lineage.
            metadata: JSON of the caller's own.
            pin: Keep it: delete and prune refuse it.

        Raises:
            SessionBusy: Something runs in it.
            NameTaken: The name belongs to something else.
        """
        body = wire.build(SandboxCheckpointRequest, checkpoint=name, pin=pin, metadata=metadata or {}, rebind=rebind)
        path = wire.path("sandboxes", self.id, "checkpoint")
        done = await self._connection.call(RuntimeCheckpointResult, "POST", path, body, once=True)
        self._heard(done.runtime, head=done.checkpoint_id)
        return Checkpoint(done.checkpoint, timings=done.timings, reused=done.reused)

    async def fork(
        self,
        name: str | None = None,
        *,
        rebind: bool = False,
        reseed: bool | None = None,
        metadata: Metadata | None = None,
    ) -> AsyncRuntime:
        """A new runtime that goes on from here, independent of this one; the arguments are those of the client's."""
        return await fork(self._connection, self.id, name, rebind=rebind, reseed=reseed, metadata=metadata)

    async def pause(self, name: str | None = None, metadata: Metadata | None = None) -> Checkpoint:
        """Checkpoint it and release what it holds on the host; its id stays. Returns what it resumes from."""
        body = wire.build(RuntimePauseRequest, runtime_id=self.id, name=name, metadata=metadata or {})
        done = await self._connection.call(RuntimePauseResult, "POST", wire.path("runtimes", "pause"), body, once=True)
        self._heard(done.runtime, head=done.checkpoint_id)
        return Checkpoint(done.checkpoint, timings=done.timings)

    async def resume(self, metadata: Metadata | None = None) -> AsyncRuntime:
        """Bring it back from where it was paused, under the same id. Returns this runtime."""
        body = wire.build(RuntimeResumeRequest, runtime_id=self.id, metadata=metadata)
        self._heard(
            (
                await self._connection.call(RuntimeResult, "POST", wire.path("runtimes", "resume"), body, once=True)
            ).runtime
        )
        return self

    async def close(self, cascade: bool = False) -> AsyncRuntime:
        """End it; its checkpoints and forks stay, unless ``cascade``. Returns this runtime, now closed."""
        body = wire.build(RuntimeCloseRequest, runtime_id=self.id, cascade=cascade)
        self._heard(
            (
                await self._connection.call(RuntimeResult, "POST", wire.path("runtimes", "close"), body, once=True)
            ).runtime
        )
        return self

    # Its files; paths are relative to its working directory.

    async def write(self, path: str, data: bytes | str) -> None:
        """Write a file whole; text as UTF-8, missing parents are made."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        file = wire.file_path(self.id, path)
        await self._connection.send("PUT", file, content=content, content_type="application/octet-stream")

    async def read(self, path: str) -> bytes:
        """A file's bytes.

        Raises:
            PathNotFound: Nothing is there.
        """
        return (await self._connection.send("GET", wire.file_path(self.id, path))).content

    async def remove(self, path: str) -> None:
        """Remove a file or a whole directory."""
        await self._connection.send("DELETE", wire.file_path(self.id, path), once=True)

    async def mkdir(self, path: str) -> str:
        """Make a directory and its parents; one that exists is fine. Returns its path."""
        body = wire.build(PathRequest, path=path)
        return (await self._connection.call(PathResult, "POST", self._path("mkdir"), body)).path

    async def stat(self, path: str) -> FileStat:
        """What is at a path."""
        return await self._connection.call(FileStat, "POST", self._path("stat"), wire.build(PathRequest, path=path))

    async def temp_path(self, prefix: str = "tmp", suffix: str = "", *, directory: bool = False) -> str:
        """Make a fresh empty file (or directory) and return its path."""
        body = wire.build(TempPathRequest, prefix=prefix, suffix=suffix, directory=directory)
        return (await self._connection.call(PathResult, "POST", self._path("temp-path"), body, once=True)).path

    async def search(
        self, glob: str = "**/*", text: str | None = None, *, path: str = ".", max_results: int = 1000
    ) -> SearchResult:
        """Files by glob below ``path``; with ``text``, the lines in them that match this regular expression."""
        body = wire.build(SearchRequest, glob=glob, text=text, path=path, max_results=max_results)
        return await self._connection.call(SearchResult, "POST", self._path("search"), body)

    async def export(self, path: str, to: str | os.PathLike[str]) -> Path:
        """Save a file or directory of the runtime as a tar file ``to`` on this side; returns its path.

        The tar appears whole or not at all.
        """
        body = wire.build(ExportRequest, path=path)
        with whole_file(Path(to)) as file:
            async with aclosing(self._connection.download(self._path("export"), body, wire.TAR)) as pieces:
                async for piece in pieces:
                    file.write(piece)
        return Path(to)

    def _path(self, *verbs: str) -> str:
        return wire.path("runtimes", self.id, *verbs)

    def _heard(self, record: RuntimeRecord, head: str | None = None) -> None:
        news: dict[str, Any] = {name: getattr(record, name) for name in RuntimeRecord.model_fields}
        if head is not None:
            news["head_checkpoint_id"] = head
        self.record = self.record.model_copy(update=news | {"busy_with": None})


async def fork(
    connection: AsyncConnection,
    source: str,
    name: str | None = None,
    *,
    rebind: bool = False,
    reseed: bool | None = None,
    metadata: Metadata | None = None,
) -> AsyncRuntime:
    """A new runtime from a runtime or a checkpoint, by name or id; a runtime wins."""
    body = wire.build(SandboxForkRequest, name=name, metadata=metadata, rebind=rebind, reseed=reseed)
    done = await connection.call(SandboxForkResult, "POST", wire.path("sandboxes", source, "fork"), body, once=True)
    return AsyncRuntime(connection, done.runtime, created=True, timings=done.timings)
