"""A small honest engine that lives in the test's own process.

A backend is a dict that cells run in (top-level ``await`` works, so a cell can wait without blocking the loop), a
directory below ``state_dir``, and real commands. A snapshot is a deep copy of the dict and a copy of the directory.
Backends and snapshots belong to the `ToyEngine` object: give the same object to a second control plane and they are
still there (a server restart), give it a new one and they are gone (the host restarted).

Faults::

    engine.fail("checkpoint", ProviderError("no"))      # the next call of it raises
    gate = engine.hold("checkpoint")                     # the next call of it stops: await gate.entered.wait(); gate.open.set()
    engine.backends[backend_id].die("killed")            # the backend ends by itself
    engine.backends[backend_id].restless = True          # quiescent() says False
    backend.stubborn = True                              # interrupts do nothing
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import copy
import inspect as inspect_module
import io
import os
import re
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import types
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from jupyter_sandbox.engines.base import Backend, Child, Engine, Inventory, Snapshot
from jupyter_sandbox.errors import (
    CheckpointLost,
    InvalidRequest,
    PathNotFound,
    ProviderError,
    RuntimeFailed,
    SandboxError,
)
from jupyter_sandbox.models import (
    BackendCheckpointRef,
    Capabilities,
    CellDone,
    CellError,
    CellEvent,
    CellOutput,
    CellRequest,
    CompleteRequest,
    CompleteResult,
    EngineInfo,
    ExecDone,
    ExecEvent,
    ExecOutput,
    ExecRequest,
    ExportRequest,
    FileStat,
    Isolation,
    MemoryUse,
    NotCaptured,
    RuntimeCreateRequest,
    SearchMatch,
    SearchRequest,
    SearchResult,
    SessionSettings,
    TempPathRequest,
)


@dataclass
class Gate:
    """Holds one call: ``entered`` is set when it arrives, ``open`` lets it go on."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Frozen:
    """A snapshot's state."""

    namespace: dict[str, Any]
    files: Path | None
    count: int
    env: dict[str, str]


def _deepcopy(namespace: Mapping[str, Any]) -> dict[str, Any]:
    memo: dict[int, Any] = {id(v): v for v in namespace.values() if isinstance(v, types.ModuleType)}
    return copy.deepcopy(dict(namespace), memo)


class ToyBackend(Backend):
    """A namespace, a directory, and the means to run things in them."""

    def __init__(self, engine: ToyEngine, backend_id: str, settings: SessionSettings, frozen: Frozen) -> None:
        self.engine = engine
        self.backend_id = backend_id
        self.settings = settings
        self.namespace = frozen.namespace
        self.count = frozen.count
        self.env = frozen.env
        self.restless = False
        self.stubborn = False
        self.reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._cell: asyncio.Task[None] | None = None
        self._own_directory = settings.cwd is None
        self._root = Path(settings.cwd) if settings.cwd else engine.state_dir / "backends" / backend_id
        if self._own_directory:
            if frozen.files is None:
                self._root.mkdir(parents=True)
            else:
                shutil.copytree(frozen.files, self._root, symlinks=True)
        self.cwd = str(self._root)

    # -- its life

    def die(self, reason: str) -> None:
        """End by itself, as a killed process does."""
        if not self.reason.done():
            self.reason.set_result(reason)
        if self._cell is not None:
            self._cell.cancel("died")

    @property
    def alive(self) -> bool:
        return not self.reason.done()

    async def died(self) -> str:
        return await asyncio.shield(self.reason)

    async def quiescent(self) -> bool:
        await self._enter("quiescent")
        return not self.restless

    async def memory(self) -> MemoryUse | None:
        self._alive()
        return MemoryUse(private_bytes=1000, shared_bytes=500)

    def _alive(self) -> None:
        if not self.alive:
            raise RuntimeFailed(f"The backend is gone: {self.reason.result()}")

    async def _enter(self, call: str) -> None:
        self._alive()
        await self.engine.enter(call)
        self._alive()

    # -- cells

    async def run_cell(self, request: CellRequest) -> AsyncIterator[CellEvent]:
        await self._enter("run_cell")
        if self._cell is not None:
            raise ProviderError("A cell runs already")
        started = time.perf_counter()
        outputs: asyncio.Queue[CellOutput | None] = asyncio.Queue()
        if not request.silent:
            self.count += 1
        count = self.count
        self._cell = asyncio.create_task(self._execute(request.code, outputs, count))
        self._cell.add_done_callback(lambda _: outputs.put_nowait(None))
        try:
            while (event := await outputs.get()) is not None:
                yield event
            error: CellError | None = None
            if self._cell.cancelled():
                self._alive()
                error = CellError(ename="KeyboardInterrupt", evalue="")
            elif (raised := self._cell.exception()) is not None:
                error = CellError(ename=type(raised).__name__, evalue=str(raised))
            yield CellDone(
                status="error" if error else "ok",
                execution_count=count,
                error=error,
                elapsed_ms=(time.perf_counter() - started) * 1000,
            )
        finally:
            self._cell.cancel()
            self._cell = None

    async def _execute(self, code: str, outputs: asyncio.Queue[CellOutput | None], count: int) -> None:
        def write(*values: object, sep: str = " ", end: str = "\n", **_: object) -> None:
            text = sep.join(map(str, values)) + end
            outputs.put_nowait(CellOutput(output={"output_type": "stream", "name": "stdout", "text": text}))

        scope = self.namespace
        scope["__builtins__"] = {**vars(builtins), "print": write}
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        try:
            for part in (tree, ast.Expression(last.value) if isinstance(last, ast.Expr) else None):
                if part is None:
                    continue
                mode = "eval" if isinstance(part, ast.Expression) else "exec"
                compiled = compile(part, "<cell>", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                value = eval(compiled, scope)
                if inspect_module.iscoroutine(value):
                    value = await value
                if mode == "eval" and value is not None:
                    data = {"text/plain": repr(value)}
                    outputs.put_nowait(
                        CellOutput(
                            output={
                                "output_type": "execute_result",
                                "data": data,
                                "metadata": {},
                                "execution_count": count,
                            }
                        )
                    )
        except Exception as exception:
            error = {"ename": type(exception).__name__, "evalue": str(exception), "traceback": []}
            outputs.put_nowait(CellOutput(output={"output_type": "error", **error}))
            raise
        finally:
            scope.pop("__builtins__", None)

    async def interrupt(self) -> None:
        await self._enter("interrupt")
        if self._cell is not None and not self.stubborn:
            self._cell.cancel()

    async def complete(self, request: CompleteRequest) -> CompleteResult:
        await self._enter("complete")
        position = len(request.code) if request.cursor_pos is None else request.cursor_pos
        word = re.search(r"\w*$", request.code[:position])
        stem = word.group() if word else ""
        names = tuple(sorted(n for n in self.namespace if n.startswith(stem)))
        return CompleteResult(matches=names, cursor_start=position - len(stem), cursor_end=position)

    # -- commands

    async def exec(self, request: ExecRequest) -> AsyncIterator[ExecEvent]:
        await self._enter("exec")
        started = time.perf_counter()
        argv = request.argv or ("/bin/sh", "-c", request.shell or "")
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                *argv,
                cwd=self._inside(request.cwd or "."),
                env={"PATH": os.environ["PATH"], **self.env, **request.env},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except FileNotFoundError as error:
            raise InvalidRequest(f"There is no program {argv[0]!r}", field="argv") from error
        except asyncio.CancelledError:  # cancelled while it starts, asyncio would end the first process only
            process = await starting
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
            raise
        reading = asyncio.create_task(process.communicate((request.stdin or "").encode()))
        ends: set[asyncio.Future[Any]] = {reading, self.reason}
        timed_out = False
        try:
            done, _ = await asyncio.wait(ends, timeout=request.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            timed_out = not done
            if reading not in done:
                os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = await reading
            self._alive()
            if stdout:
                yield ExecOutput(stream="stdout", text=stdout.decode("utf-8", "replace"))
            if stderr:
                yield ExecOutput(stream="stderr", text=stderr.decode("utf-8", "replace"))
            elapsed = (time.perf_counter() - started) * 1000
            yield ExecDone(exit_code=process.returncode or 0, timed_out=timed_out, elapsed_ms=elapsed)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            await asyncio.gather(reading, return_exceptions=True)

    # -- files

    def _inside(self, path: str) -> Path:
        full = (self._root / path).resolve()
        if not full.is_relative_to(self._root.resolve()):
            raise InvalidRequest(f"The path {path!r} leaves the runtime", field="path")
        return full

    def _existing(self, path: str) -> Path:
        full = self._inside(path)
        if not full.exists():
            raise PathNotFound(f"There is nothing at {path!r}", path=path)
        return full

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self._enter("write_bytes")
        full = self._inside(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data)

    async def read_bytes(self, path: str) -> bytes:
        await self._enter("read_bytes")
        return self._existing(path).read_bytes()

    async def create_dir_all(self, path: str) -> None:
        await self._enter("create_dir_all")
        self._inside(path).mkdir(parents=True, exist_ok=True)

    async def temp_path(self, request: TempPathRequest) -> str:
        await self._enter("temp_path")
        if request.directory:
            made = tempfile.mkdtemp(request.suffix, request.prefix, self._root)
        else:
            descriptor, made = tempfile.mkstemp(request.suffix, request.prefix, self._root)
            os.close(descriptor)
        return str(Path(made).relative_to(self._root))

    async def remove(self, path: str) -> None:
        await self._enter("remove")
        full = self._existing(path)
        if full.is_dir():
            shutil.rmtree(full)
        else:
            full.unlink()

    async def stat(self, path: str) -> FileStat:
        await self._enter("stat")
        full = self._existing(path)
        facts = full.stat()
        kind = "directory" if full.is_dir() else "file"
        return FileStat(
            path=path,
            type=kind,
            size=facts.st_size,
            mode=facts.st_mode & 0o777,
            modified_at_ms=facts.st_mtime_ns // 1_000_000,
        )

    async def search(self, request: SearchRequest) -> SearchResult:
        await self._enter("search")
        found: list[SearchMatch] = []
        for file in sorted(self._inside(request.path).glob(request.glob)):
            path = str(file.relative_to(self._root.resolve()))
            if request.text is None:
                found.append(SearchMatch(path=path))
            elif file.is_file():
                lines = enumerate(file.read_text(errors="replace").splitlines(), 1)
                found += [SearchMatch(path=path, line=n, text=t) for n, t in lines if re.search(request.text, t)]
        return SearchResult(matches=tuple(found[: request.max_results]), truncated=len(found) > request.max_results)

    async def export(self, request: ExportRequest) -> AsyncIterator[bytes]:
        await self._enter("export")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(self._existing(request.path), arcname=request.path)
        yield buffer.getvalue()

    # -- for the engine

    def freeze(self, files: Path | None) -> Frozen:
        try:
            namespace = _deepcopy(self.namespace)
        except TypeError as error:
            raise ProviderError(f"The toy engine cannot copy this state: {error}") from error
        if files is not None:
            shutil.copytree(self._root, files, symlinks=True)
        return Frozen(namespace, files, self.count, dict(self.env))

    @property
    def captures_files(self) -> bool:
        return self._own_directory

    def remove_all(self) -> None:
        if self._own_directory:
            shutil.rmtree(self._root, ignore_errors=True)


class ToyEngine(Engine):
    """Makes `ToyBackend`; ``calls`` names every call of the seam in order."""

    name: ClassVar[str] = "toy"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True,
        files=True,
        processes=False,
        shares_memory=False,
        durable=False,
        live=True,
        pause_frees_memory=True,
        isolation=Isolation.none,
        network="host",
        fork_live=False,
    )

    def __init__(self) -> None:
        self.backends: dict[str, ToyBackend] = {}
        self.snapshots: dict[str, Frozen] = {}
        self.calls: list[str] = []
        self.state_dir = Path()
        self._gates: list[Gate] = []
        self._faults: defaultdict[str, deque[BaseException | Gate]] = defaultdict(deque)

    # -- faults

    def fail(self, call: str, error: BaseException) -> None:
        """The next ``call`` (a method of the engine or of any backend) raises ``error``."""
        self._faults[call].append(error)

    def hold(self, call: str) -> Gate:
        """The next ``call`` waits at the gate."""
        gate = Gate()
        self._faults[call].append(gate)
        self._gates.append(gate)
        return gate

    def open_gates(self) -> None:
        """Let everything go on that is held, so that a failed test ends."""
        for gate in self._gates:
            gate.open.set()

    async def enter(self, call: str) -> None:
        """Every method of engine and backends comes through here first."""
        self.calls.append(call)
        if self._faults[call]:
            fault = self._faults[call].popleft()
            if isinstance(fault, BaseException):
                raise fault
            fault.entered.set()
            await fault.open.wait()

    # -- the seam

    async def start(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        await self.enter("start")

    async def stop(self) -> None:
        await self.enter("stop")

    async def probe(self) -> EngineInfo:
        await self.enter("probe")
        return EngineInfo(
            name=self.name, available=True, detail="It is this very process.", capabilities=self.capabilities
        )

    async def resolve(self, request: RuntimeCreateRequest) -> SessionSettings:
        await self.enter("resolve")
        if request.cwd is not None and not Path(request.cwd).is_dir():
            raise InvalidRequest(f"There is no directory {request.cwd!r}", field="cwd")
        python = request.python or sys.executable
        return SessionSettings(
            engine=self.name,
            image=request.image or python,
            python=python,
            cwd=request.cwd,
            limits=request.limits,
            env_names=tuple(sorted(request.env)),
        )

    async def create(self, backend_id: str, settings: SessionSettings, env: Mapping[str, str]) -> Backend:
        await self.enter("create")
        backend = ToyBackend(self, backend_id, settings, Frozen({}, None, 0, dict(env)))
        self.backends[backend_id] = backend
        return backend

    async def checkpoint(self, backend: Backend, snapshot_id: str) -> Snapshot:
        assert isinstance(backend, ToyBackend)
        backend._alive()
        files = self.state_dir / "snapshots" / snapshot_id if backend.captures_files else None
        self.snapshots[snapshot_id] = backend.freeze(files)
        try:
            await self.enter("checkpoint")  # a write that lands while a fault holds it here is not in the snapshot
        except BaseException:
            self._drop(snapshot_id)
            raise
        seen = () if files else (NotCaptured(kind="directory", what=backend.cwd, remedy="Use one of its own."),)
        return Snapshot(
            ref=BackendCheckpointRef(
                engine=self.name, provider_snapshot_id=snapshot_id, payload={"count": backend.count}
            ),
            not_captured=seen,
            memory_bytes=4096,
            file_bytes=sum(f.stat().st_size for f in files.rglob("*") if f.is_file()) if files else None,
            files=files is not None,
            provider_ms=0.0,
        )

    async def checkout(self, ref: BackendCheckpointRef, children: Sequence[Child]) -> list[Backend | SandboxError]:
        await self.enter("checkout")
        made: list[Backend | SandboxError] = []
        for child in children:
            frozen = self.snapshots.get(ref.provider_snapshot_id)
            if frozen is None:
                made.append(CheckpointLost(f"Snapshot {ref.provider_snapshot_id} is gone"))
                continue
            copied = Frozen(_deepcopy(frozen.namespace), frozen.files, frozen.count, dict(frozen.env))
            if not self.capabilities.memory:
                copied.namespace, copied.count = {}, 0
            backend = ToyBackend(self, child.backend_id, child.settings, copied)
            self.backends[child.backend_id] = backend
            made.append(backend)
        return made

    def _drop(self, snapshot_id: str) -> bool:
        frozen = self.snapshots.pop(snapshot_id, None)
        if frozen is not None and frozen.files is not None:
            shutil.rmtree(frozen.files)
        return frozen is not None

    async def delete_snapshot(self, ref: BackendCheckpointRef) -> bool:
        await self.enter("delete_snapshot")
        return self._drop(ref.provider_snapshot_id)

    async def release(self, backend_id: str) -> None:
        await self.enter("release")
        backend = self.backends.pop(backend_id, None)
        if backend is not None:
            backend.die("it was released")
            backend.remove_all()

    async def inspect(self) -> Inventory:
        await self.enter("inspect")
        return Inventory(backends=frozenset(self.backends), snapshots=frozenset(self.snapshots))

    async def adopt(self, backend_id: str) -> Backend:
        await self.enter("adopt")
        backend = self.backends.get(backend_id)
        if backend is None or not backend.alive:
            raise RuntimeFailed("Its process ended while no server ran")
        return backend


class FilesOnlyToy(ToyEngine):
    """An engine whose checkpoints hold files only."""

    name: ClassVar[str] = "toy-files"
    capabilities: ClassVar[Capabilities] = ToyEngine.capabilities.model_copy(
        update={"memory": False, "durable": True, "isolation": Isolation.container}
    )
