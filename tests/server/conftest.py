"""Servers in the test's own process: real sockets, a real control plane, the toy engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.rendezvous import store_token
from jupyter_sandbox.server.extension import SandboxExtension
from tests.support.environment import jupyter_directories
from tests.toy_engine import ToyEngine

JUPYTER_TOKEN = "the-token-of-jupyter-itself"


class InProcessServer(ServerApp):
    """A server with engines of the test's, which leaves the test process's signal handlers alone."""

    engines: dict[str, Engine]
    no_browser_open_file = True

    def init_signal(self) -> None:
        pass

    def load_server_extensions(self) -> None:
        self.extension_manager.extension_points[SandboxExtension.name].app.engines = self.engines
        super().load_server_extensions()


@dataclass
class Served:
    """A server that runs, and a client that is signed in with Jupyter's token."""

    app: ServerApp
    extension: SandboxExtension
    engine: ToyEngine
    store_dir: Path
    client: httpx.AsyncClient
    token: str = JUPYTER_TOKEN
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return self.extension.url

    @property
    def port(self) -> int:
        return int(self.app.port)

    @property
    def store_token(self) -> str:
        return store_token(self.store_dir)

    async def stranger(self, **options: Any) -> httpx.AsyncClient:
        """A client that brings no token."""
        client = httpx.AsyncClient(base_url=f"{self.url}/api/v1/", trust_env=False, **options)
        return await self.opened.enter_async_context(client)

    async def create(self, name: str | None = None) -> str:
        """A new runtime's id."""
        answer = await self.client.post("runtimes", json={"engine": "toy", "name": name})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["runtime"]["runtime_id"])

    async def stop(self) -> None:
        """End it in order; stopping twice is fine."""
        await self.opened.aclose()


@asynccontextmanager
async def _served(store_dir: Path, engine: ToyEngine, settings: dict[str, dict[str, Any]]) -> AsyncIterator[Served]:
    config = Config(
        {
            "ServerApp": {
                "ip": "127.0.0.1",
                "port": 0,
                "port_retries": 0,
                "open_browser": False,
                "allow_root": True,
                "allow_unauthenticated_access": False,
                "root_dir": str(store_dir.parent),
            },
            "IdentityProvider": {"token": JUPYTER_TOKEN},
            "SandboxExtension": {"store_dir": str(store_dir)},
        }
    )
    config.merge(Config(settings))
    app = InProcessServer(config=config, jpserver_extensions={"jupyter_sandbox": True})
    app.engines = {"toy": engine}
    app.reraise_server_extension_failures = True
    app.initialize(argv=[], find_extensions=False)
    bound = asyncio.get_running_loop().create_future()
    app.io_loop.add_callback(bound.set_result, None)  # behind the callback that binds the socket
    await bound
    extension = app.extension_manager.extension_points[SandboxExtension.name].app
    await app.extension_manager.start_all_extensions()
    try:
        headers = {"Authorization": f"Bearer {JUPYTER_TOKEN}"}
        base = f"{extension.url}/api/v1/"
        async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=30) as client:
            await extension.access.ready()
            yield Served(app, extension, engine, store_dir, client)
    finally:
        app.http_server.stop()
        await app._cleanup()
        await app.http_server.close_all_connections()
        GatewayClient.clear_instance()


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Starts servers on one store: ``await serve(engine=…, SandboxExtension={…})``."""
    for name, value in jupyter_directories(tmp_path).items():
        monkeypatch.setenv(name, value)
    running = AsyncExitStack()

    async def start(engine: ToyEngine | None = None, **settings: dict[str, Any]) -> Served:
        opened = AsyncExitStack()
        served = await opened.enter_async_context(_served(tmp_path / "store", engine or ToyEngine(), settings))
        served.opened = opened  # closes its clients first, then the server
        running.push_async_callback(served.stop)
        return served

    async with running:
        yield start


@pytest.fixture
async def server(serve: Serve) -> Served:
    """One server."""
    return await serve()
