"""Engine fork: a runtime is a process, a checkpoint is a fork of it that waits."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.processes import ProcessId
from jupyter_sandbox.agent.trees import copy_tree, remove_tree
from jupyter_sandbox.engines.base import Backend, Child, Engine, Inventory, Snapshot
from jupyter_sandbox.engines.fork.backend import ForkBackend
from jupyter_sandbox.engines.fork.ending import end_backend, wait_gone
from jupyter_sandbox.engines.fork.environment import MARK, base_environment
from jupyter_sandbox.engines.fork.errors import agent_error
from jupyter_sandbox.engines.fork.interpreters import interpreter
from jupyter_sandbox.engines.fork.keeper import KeeperClient
from jupyter_sandbox.engines.fork.layout import Layout, files_dir, identity
from jupyter_sandbox.engines.fork.link import WorkerLink
from jupyter_sandbox.engines.fork.ops import OpsClient
from jupyter_sandbox.engines.fork.probe import self_test
from jupyter_sandbox.engines.fork.templates import Templates, ask_frozen
from jupyter_sandbox.errors import CheckpointLost, InvalidRequest, ProviderError, RuntimeFailed, SandboxError
from jupyter_sandbox.models import (
    BackendCheckpointRef,
    Capabilities,
    EngineInfo,
    Isolation,
    NotCaptured,
    RuntimeCreateRequest,
    SessionSettings,
)

_PARALLEL = 8
_PATIENCE_S = 5.0  # for an answer of a worker that should be idle
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ForkEngine(Engine):
    """See `Engine`. For Linux; the processes belong to the user of the server and see what that user sees."""

    name: ClassVar[str] = "fork"
    capabilities: ClassVar[Capabilities] = Capabilities(
        memory=True,
        files=True,
        processes=False,
        shares_memory=True,
        durable=False,
        live=True,
        pause_frees_memory=False,
        isolation=Isolation.none,
        network="host",
        fork_live=False,
    )

    def __init__(self) -> None:
        self._backends: dict[str, ForkBackend] = {}
        self._keeper_client: KeeperClient | None = None
        self._keeper_lock = asyncio.Lock()
        self._probed: EngineInfo | None = None

    _layout: Layout
    _templates: Templates

    async def start(self, state_dir: Path) -> None:
        self._layout = Layout(state_dir)
        self._templates = Templates(self._layout)

    async def stop(self) -> None:
        for backend in [*self._backends.values()]:
            await backend.link.close()
        self._backends.clear()
        await self._templates.drop()
        if self._keeper_client is not None:
            await self._keeper_client.close()

    async def probe(self) -> EngineInfo:
        if self._probed is None:
            detail, remedy = await self_test(self)
            self._probed = EngineInfo(
                name=self.name,
                available=not remedy,
                detail=detail,
                remedy=remedy,
                capabilities=self.capabilities,
            )
        return self._probed

    async def resolve(self, request: RuntimeCreateRequest) -> SessionSettings:
        if request.image is not None:
            raise InvalidRequest(
                "Engine fork has no images", remedy="Name an interpreter with python instead", field="image"
            )
        for limit in ("cpus", "pids"):
            if getattr(request.limits, limit) is not None:
                raise InvalidRequest(
                    f"Engine fork cannot limit {limit}",
                    remedy="Leave the limit out, or use another engine",
                    field=f"limits.{limit}",
                )
        if request.cwd is not None and not (os.path.isabs(request.cwd) and Path(request.cwd).is_dir()):  # noqa: PTH117
            raise InvalidRequest(
                f"{request.cwd} is not the absolute path of a directory",
                remedy="Make the directory first, or leave cwd out to get one of the runtime's own",
                field="cwd",
            )
        for name, value in request.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise InvalidRequest(
                    f"{name!r} cannot be an environment variable", remedy="Rename it", field=f"env.{name}"
                )
        python = await interpreter(request.python)
        return SessionSettings(
            engine=self.name,
            image=python,
            python=python,
            cwd=request.cwd,
            limits=request.limits,
            env_names=tuple(sorted(request.env)),
        )

    async def create(self, backend_id: str, settings: SessionSettings, env: Mapping[str, str]) -> Backend:
        python = settings.python or sys.executable
        template = await self._templates.ready(python, base_environment(os.environ, python), await self._keeper())
        return await self._thaw(template, backend_id, settings, files=None, env=env)

    async def checkpoint(self, backend: Backend, snapshot_id: str) -> Snapshot:
        live = self._backends[backend.backend_id]
        directory = self._layout.frozen_dir(snapshot_id)
        directory.mkdir(mode=0o700)
        try:
            if live.adopted:
                await live.link.request("hello", patience_s=_PATIENCE_S)  # it may run a cell that we know nothing of
            # Both at once: the worker is idle, and nothing else of ours writes.
            copying = asyncio.create_task(self._copy_files(live, directory))
            try:
                answer = await live.link.request(
                    "checkpoint", directory=str(directory), state_dir=str(self._layout.root)
                )
            finally:
                await asyncio.wait({copying})
            copied = await copying
            rows = [NotCaptured.model_validate(row) for row in [*answer["not_captured"], *await live.background()]]
        except BaseException:
            await asyncio.shield(self._remove_snapshot(directory))
            raise
        if not live.own_files:
            rows.append(
                NotCaptured(
                    kind="directory",
                    what=live.cwd,
                    remedy="It is yours and shared with forks; create the runtime without cwd to have its files captured",
                )
            )
        return Snapshot(
            ref=BackendCheckpointRef(engine=self.name, provider_snapshot_id=snapshot_id),
            not_captured=tuple(rows),
            memory_bytes=_resident_bytes(live.link.process),
            file_bytes=copied,
            files=live.own_files,
        )

    async def checkout(self, ref: BackendCheckpointRef, children: Sequence[Child]) -> list[Backend | SandboxError]:
        directory = self._layout.frozen_dir(ref.provider_snapshot_id)
        free = asyncio.Semaphore(_PARALLEL)

        async def one(child: Child) -> Backend | SandboxError:
            async with free:
                try:
                    files = None if child.settings.cwd is not None else files_dir(directory)
                    return await self._thaw(directory, child.backend_id, child.settings, files=files, env={})
                except SandboxError as error:
                    if not directory.is_dir():
                        return CheckpointLost("Its frozen process is gone", remedy="Use another checkpoint")
                    return error

        return await asyncio.gather(*map(one, children))

    async def delete_snapshot(self, ref: BackendCheckpointRef) -> bool:
        directory = self._layout.frozen_dir(ref.provider_snapshot_id)
        existed = directory.is_dir()
        await self._remove_snapshot(directory)
        return existed

    async def release(self, backend_id: str) -> None:
        directory = self._layout.live_dir(backend_id)
        backend = self._backends.pop(backend_id, None)
        if backend is not None:
            await backend.link.close()
            await backend.ops.end()
        await asyncio.to_thread(end_backend, directory, backend_id)

    async def inspect(self) -> Inventory:
        snapshots = set()
        for directory in [*self._layout.frozen.iterdir()]:
            try:
                await ask_frozen(directory, {"op": "ping"})
                snapshots.add(directory.name)
            except (CheckpointLost, ProviderError):
                await self._remove_snapshot(directory)  # nobody can use what is left of it
        return Inventory(
            backends=frozenset(directory.name for directory in self._layout.live.iterdir()),
            snapshots=frozenset(snapshots),
        )

    async def adopt(self, backend_id: str) -> Backend:
        directory = self._layout.live_dir(backend_id)
        process = identity(directory)
        try:
            facts = json.loads((directory / "backend.json").read_text())
        except (OSError, ValueError):
            facts = None
        if process is None or facts is None:
            raise RuntimeFailed("The runtime has failed: it was never whole", remedy="Close it")
        return await self._connect(backend_id, process, str(facts["cwd"]), own_files=bool(facts["own_files"]))

    # How it is done

    async def _keeper(self) -> KeeperClient:
        async with self._keeper_lock:
            if self._keeper_client is None or self._keeper_client.closed:
                self._keeper_client = await KeeperClient.open(self._layout.root)
            return self._keeper_client

    async def _thaw(
        self, source: Path, backend_id: str, settings: SessionSettings, *, files: Path | None, env: Mapping[str, str]
    ) -> Backend:
        """Fork a frozen process (or template) into a backend; on failure nothing of it is left."""
        directory = self._layout.live_dir(backend_id)
        directory.mkdir(mode=0o700)
        try:
            cwd = files_dir(directory) if settings.cwd is None else Path(settings.cwd)
            if files is not None:
                await _copy(files, cwd)
            elif settings.cwd is None:
                cwd.mkdir(mode=0o700)
            memory_mb = settings.limits.memory_mb
            answer = await ask_frozen(
                source,
                {
                    "op": "thaw",
                    "directory": str(directory),
                    "root": str(cwd),
                    "env": {**env, MARK: backend_id},
                    "reseed": settings.reseed,
                    "memory_bytes": None if memory_mb is None else memory_mb << 20,
                },
            )
            own_files = settings.cwd is None
            (directory / "backend.json").write_text(json.dumps({"cwd": str(cwd), "own_files": own_files}))
            process = ProcessId(answer["pid"], answer["start_time"])
            return await self._connect(
                backend_id, process, str(cwd), own_files=own_files, environment=answer["environment"]
            )
        except BaseException:
            await asyncio.shield(asyncio.to_thread(end_backend, directory, backend_id))
            raise

    async def _connect(
        self,
        backend_id: str,
        process: ProcessId,
        cwd: str,
        *,
        own_files: bool,
        environment: dict[str, str] | None = None,
    ) -> Backend:
        directory = self._layout.live_dir(backend_id)
        link = await WorkerLink.open(directory, self._layout.root, process)

        async def known_environment() -> dict[str, str]:
            if environment is not None:
                return environment
            # An adopted worker is asked: values are kept in no file.
            return dict((await link.request("environment", patience_s=_PATIENCE_S))["environment"])

        ops = OpsClient(directory, cwd, self._keeper, {MARK: backend_id})
        backend = ForkBackend(
            backend_id,
            directory,
            cwd,
            own_files=own_files,
            link=link,
            ops=ops,
            environment=known_environment,
            adopted=environment is None,
        )
        self._backends[backend_id] = backend
        return backend

    async def _copy_files(self, live: ForkBackend, directory: Path) -> int | None:
        return await _copy(Path(live.cwd), files_dir(directory)) if live.own_files else None

    async def _remove_snapshot(self, directory: Path) -> None:
        with suppress(CheckpointLost, ProviderError):  # it ends without an answer, or had ended
            await ask_frozen(directory, {"op": "drop"})
        process = identity(directory)
        if process is not None:
            await asyncio.to_thread(wait_gone, [process])
        await asyncio.to_thread(remove_tree, str(directory))


async def _copy(source: Path, target: Path) -> int:
    try:
        return await asyncio.to_thread(copy_tree, str(source), str(target))
    except AgentError as error:
        raise agent_error({"error": error.to_dict()}) from error


def _resident_bytes(process: ProcessId) -> int | None:
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return None
