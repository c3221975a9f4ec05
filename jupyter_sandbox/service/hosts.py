"""The engines of one control plane: started on first use, reconciled with the rows right after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.errors import EngineNotFound, Forbidden, ProviderError, SandboxError
from jupyter_sandbox.models import Capabilities, EngineInfo, Isolation
from jupyter_sandbox.service.config import ServiceConfig

log = logging.getLogger(__name__)

_UNKNOWN = Capabilities(
    memory=False,
    files=False,
    processes=False,
    shares_memory=False,
    durable=False,
    live=False,
    pause_frees_memory=False,
    isolation=Isolation.none,
    network="host",
    fork_live=False,
)


class Hosts:
    """Finds, starts and stops engines.

    Args:
        config: Where their state lives, and how weak they may be.
        engines: By name.
        problems: For engines that are installed and cannot be loaded, why not.
        reconcile: Called with each engine's name and the engine once it has started, before anybody uses it.
    """

    def __init__(
        self,
        config: ServiceConfig,
        engines: Mapping[str, Engine],
        problems: Mapping[str, str],
        reconcile: Callable[[str, Engine], Awaitable[None]],
    ) -> None:
        self._config = config
        self._engines = dict(engines)
        self._problems = dict(problems)
        self._reconcile = reconcile
        self._started: set[str] = set()
        self._starting = {name: asyncio.Lock() for name in engines}

    def capabilities(self, name: str) -> Capabilities:
        """What an engine can do; nothing, when it is not installed any more."""
        return self._engines[name].capabilities if name in self._engines else _UNKNOWN

    def with_power(self, power: str) -> list[str]:
        """The engines that have a power (a field of `Capabilities`)."""
        return [name for name, engine in self._engines.items() if getattr(engine.capabilities, power)]

    async def get(self, name: str) -> Engine:
        """The engine, started.

        Raises:
            EngineNotFound: It is not installed, or cannot be loaded.
            SandboxError: It cannot start here; it is tried again the next time.
        """
        if name not in self._engines:
            known = ", ".join(sorted(self._engines)) or "none"
            raise EngineNotFound(
                self._problems.get(name, f"There is no engine {name}"),
                remedy="Install what it needs" if name in self._problems else f"Engines here: {known}",
                engine=name,
            )
        engine = self._engines[name]
        async with self._starting[name]:
            if name not in self._started:
                state_dir = self._config.store_dir / "engines" / name
                state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                try:
                    await engine.start(state_dir)
                    await self._reconcile(name, engine)
                except SandboxError:
                    raise
                except Exception as error:
                    raise ProviderError(f"Engine {name} did not start: {type(error).__name__}: {error}") from error
                self._started.add(name)
        return engine

    async def for_new(self, name: str) -> Engine:
        """The engine, to make a backend on.

        Raises:
            Forbidden: It isolates less than this server demands.
        """
        engine = await self.get(name)
        order = list(Isolation)
        has, wants = engine.capabilities.isolation, self._config.min_isolation
        if order.index(has) < order.index(wants):
            raise Forbidden(
                f"Engine {name} isolates by {has.value}, and this server demands {wants.value}",
                remedy="Use an engine that isolates more, or change the server's setting min_isolation",
                engine=name,
                isolation=has.value,
                min_isolation=wants.value,
            )
        return engine

    async def start_all(self) -> None:
        """Start what can start; the rest says why when it is used."""
        for name in self._engines:
            try:
                await self.get(name)
            except SandboxError as error:
                log.warning("Engine %s did not start: %s", name, error)

    async def stop(self) -> None:
        """Stop every engine that started."""
        for name in sorted(self._started):
            try:
                await self._engines[name].stop()
            except SandboxError as error:
                log.warning("Engine %s did not stop: %s", name, error)
        self._started.clear()

    async def probe(self) -> list[EngineInfo]:
        """What every engine says of itself here, by name."""
        infos = await asyncio.gather(*(self._probe(name) for name in self._engines))
        unloaded = [
            EngineInfo(name=n, available=False, detail=why, remedy="Install what it needs", capabilities=_UNKNOWN)
            for n, why in self._problems.items()
        ]
        return sorted([*infos, *unloaded], key=lambda info: info.name)

    async def _probe(self, name: str) -> EngineInfo:
        engine = self._engines[name]
        try:
            return await (await self.get(name)).probe()
        except SandboxError as error:
            return EngineInfo(
                name=name,
                available=False,
                detail=error.message,
                remedy=error.remedy,
                capabilities=engine.capabilities,
            )
