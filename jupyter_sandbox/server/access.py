"""Who serves the store: this server's own control plane, or the server that holds the store's lock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from logging import Logger
from typing import TypeVar

import httpx

from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.errors import SandboxError, ServerUnavailable, StoreLocked
from jupyter_sandbox.models import now_ms
from jupyter_sandbox.rendezvous import ServerInfo, read_server_info, remove_server_info, write_server_info
from jupyter_sandbox.service import ControlPlane, ServiceConfig

ResponseT = TypeVar("ResponseT")

TAKEOVER_S = 2.0
"""How often a server that does not hold the store tries to, in seconds."""

PATIENCE_S = 10.0
"""How long a request waits for a holder that is starting or ending, in seconds."""

_RETRY_S = 0.05


class StoreAccess:
    """The way to the store, for one server.

    The server that gets the store's lock opens the control plane and names itself in ``server.json``. Any other sends
    requests to the one named there, and opens the control plane itself once the lock is free: at the next request that
    finds the holder gone, and within `TAKEOVER_S` without one.

    Args:
        config: The store, and what it allows.
        engines: The engines by name; None: those that are installed.
        log: The server's.
    """

    def __init__(self, config: ServiceConfig, engines: Mapping[str, Engine] | None, log: Logger) -> None:
        self._config = config
        self._engines = engines
        self._log = log
        self._info: ServerInfo | None = None
        self._control: ControlPlane | None = None
        self._opening = asyncio.Lock()
        self._closing = asyncio.Event()
        self._tried = asyncio.Event()
        self._failure: SandboxError | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def control(self) -> ControlPlane | None:
        """The control plane, while this server holds the store."""
        return self._control

    def start(self, info: ServerInfo) -> None:
        """Begin to open the store; returns at once. ``info`` is how this server will be named in it."""
        self._info = info
        self._keeper = asyncio.create_task(self._keep())

    async def ready(self) -> ControlPlane | None:
        """Wait until the store was opened, or found to be held by another server (None).

        Raises:
            SandboxError: It can be neither.
        """
        await self._tried.wait()
        if self._failure is not None:
            raise self._failure
        return self._control

    async def aclose(self) -> None:
        """Let the store go; runtimes go on, for the next holder to adopt."""
        self._closing.set()
        if self._keeper is not None:
            await self._keeper
        async with self._opening:
            control, self._control = self._control, None
            if control is not None:
                await asyncio.to_thread(remove_server_info, self._config.store_dir, os.getpid())
                await control.aclose()

    async def reach(
        self, forward: Callable[[ServerInfo], Awaitable[ResponseT]], *, forwarded: bool
    ) -> ControlPlane | ResponseT:
        """The control plane, or what ``forward`` gave for the server that holds it.

        Args:
            forward: Sends the request to a server. `httpx.ConnectError` and `httpx.ConnectTimeout` say that nothing
                was sent: the holder is gone, or not there yet.
            forwarded: The request was sent on by a server already, which must not happen twice.

        Raises:
            ServerUnavailable: The store is held, and its holder cannot be reached.
            SandboxError: The store cannot be opened.
        """
        await self._tried.wait()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            if self._control is not None:
                return self._control
            holder = self._holder()
            if holder is not None and not forwarded:
                try:
                    return await forward(holder)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    self._log.debug("The server at %s that held the store is gone", holder.url)
            if (control := await self._open()) is not None:
                return control
            if loop.time() > deadline:
                raise ServerUnavailable(
                    "The store is held by a server that does not answer",
                    remedy="End that process, or wait until it has started",
                    store=str(self._config.store_dir),
                    holder=None if holder is None else {"url": holder.url, "pid": holder.pid},
                )
            await asyncio.sleep(_RETRY_S)

    def _holder(self) -> ServerInfo | None:
        info = read_server_info(self._config.store_dir)
        return None if info is None or self._info is None or info.url == self._info.url else info

    async def _open(self) -> ControlPlane | None:
        """The control plane, opened now if the store's lock is free; None while another server has it."""
        async with self._opening:
            if self._control is not None:
                return self._control
            if self._closing.is_set() or self._info is None:
                raise ServerUnavailable("This server is ending", remedy="Start it again, or use another one")
            try:
                control = await ControlPlane.open(self._config, self._engines)
            except StoreLocked:
                return None
            self._control = control
            info = self._info.model_copy(update={"started_at_ms": now_ms()})
            await asyncio.to_thread(write_server_info, self._config.store_dir, info)
            self._log.info("Holding the sandbox store %s", self._config.store_dir)
            return control

    async def _keep(self) -> None:
        """Try to hold the store until that succeeds or the server ends."""
        while not self._closing.is_set() and self._control is None:
            try:
                await self._open()
                self._failure = None
            except SandboxError as error:
                if not self._closing.is_set() and str(error) != str(self._failure):
                    self._log.error("The sandbox store cannot be opened: %s", error)
                self._failure = error
            except Exception as exception:  # noqa: BLE001 - told to every caller of `ready`
                self._log.exception("The sandbox store cannot be opened")
                self._failure = ServerUnavailable(
                    f"The store cannot be opened: {exception}", remedy="See the server's log"
                )
            finally:
                self._tried.set()
            if self._control is None:
                try:
                    await asyncio.wait_for(self._closing.wait(), TAKEOVER_S)
                except TimeoutError:
                    continue
