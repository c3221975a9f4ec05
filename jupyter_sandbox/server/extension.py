"""The Jupyter Server extension: its settings, and what happens when the server starts and stops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join
from traitlets import Bool, Float, Int, Unicode, default
from traitlets import Enum as EnumTrait

from jupyter_sandbox import rendezvous
from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.models import Isolation, now_ms
from jupyter_sandbox.rendezvous import TOKEN_ENV, URL_ENV, ServerInfo
from jupyter_sandbox.server.access import StoreAccess
from jupyter_sandbox.server.forward import Forwarder
from jupyter_sandbox.server.handler import SandboxHandler
from jupyter_sandbox.server.identity import StoreToken
from jupyter_sandbox.server.idle import Activity, stop_when_idle
from jupyter_sandbox.server.routes import NOUNS, PREFIX
from jupyter_sandbox.service import ServiceConfig

_WILDCARDS = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


class SandboxExtension(ExtensionApp):
    """Serves ``/api/v1`` below the server's base URL, and tells its kernels where that is."""

    name = "sandbox"
    description = "Checkpoint, fork, pause and resume runtimes."
    load_other_extensions = True
    extension_url = "/"

    store_dir = Unicode(help="The directory of the store; one per user.").tag(config=True)
    min_isolation = EnumTrait(
        [level.value for level in Isolation],
        default_value=Isolation.none.value,
        help="Refuse runtimes that are kept less far from the host than this.",
    ).tag(config=True)
    max_json_bytes = Int(16 << 20, min=1, help="The largest JSON body, in bytes.").tag(config=True)
    max_file_bytes = Int(512 << 20, min=1, help="The largest file that can be sent, in bytes.").tag(config=True)
    private = Bool(
        False, help="End the server when nothing live is left in the store and no request came for idle_timeout_s."
    ).tag(config=True)
    idle_timeout_s = Float(30.0, min=0.0, help="For private servers, in seconds.").tag(config=True)
    engines: Mapping[str, Engine] | None = None
    """For programs that embed the server: set before extensions are loaded; None: those that are installed."""

    access: StoreAccess
    activity: Activity
    forwarder: Forwarder
    store_token: StoreToken
    _idle: asyncio.Task[None] | None = None

    @default("store_dir")
    def _default_store_dir(self) -> str:
        return str(rendezvous.default_store_dir())

    @property
    def _server(self) -> ServerApp:
        assert self.serverapp is not None  # noqa: S101 - the server links itself before it calls anything
        return self.serverapp

    @property
    def api_path(self) -> str:
        """The API's path on this server, base URL included, without a final slash."""
        return str(url_path_join(self._server.base_url, PREFIX))

    @property
    def url(self) -> str:
        """This server's base URL as processes on this machine reach it, without a final slash.

        The port is known once the socket is about to be bound: `ServerApp` may have tried several.
        """
        parts = urlsplit(self._server.connection_url)
        if self._server.ip in _WILDCARDS and not self._server.sock:
            parts = parts._replace(netloc=f"127.0.0.1:{self._server.port}")
        return parts.geturl().rstrip("/")

    # -- the server's hooks

    def initialize_settings(self) -> None:
        """Make what handlers use; nothing is opened yet."""
        store_dir = Path(self.store_dir).expanduser().absolute()
        config = ServiceConfig(store_dir=store_dir, min_isolation=Isolation(self.min_isolation))
        self._token = rendezvous.store_token(store_dir)
        self.store_token = StoreToken(self._token)
        self.activity = Activity()
        self.forwarder = Forwarder()
        self.access = StoreAccess(config, self.engines, self.log)

    def initialize_handlers(self) -> None:
        """Our own paths."""
        self.handlers.append((rf"{PREFIX}/(?:{'|'.join(NOUNS)})(?:/.*)?", SandboxHandler))

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """The loop runs and the port is known: open the store in the background, and tell kernels where we are.

        Kernels copy the server's environment when they start.
        """
        self._before = {name: os.environ.get(name) for name in (URL_ENV, TOKEN_ENV)}
        os.environ[URL_ENV] = self.url
        os.environ[TOKEN_ENV] = self._token
        info = ServerInfo(
            url=self.url, token=self._token, pid=os.getpid(), private=self.private, started_at_ms=now_ms()
        )
        self.access.start(info)
        # What is left of /api/v1 answers 404 as we do; added last, so that it takes no path from another extension.
        rest = (rf"{self.api_path}(?:/.*)?", SandboxHandler, {"name": self.name})
        serverapp.web_app.add_handlers(".*$", [rest])  # type: ignore[no-untyped-call]
        self._idle = (
            asyncio.create_task(stop_when_idle(self.activity, self._live, serverapp.stop, self.idle_timeout_s))
            if self.private
            else None
        )

    async def _live(self) -> bool:
        control = self.access.control
        if control is None or not Path(self.store_dir).is_dir():  # a store that was removed holds nothing any more
            return False
        health = await control.health()
        return bool(health.live_runtimes or health.held_snapshots)

    async def stop_extension(self) -> None:
        """The server ends: let the store go. Runtimes go on."""
        if self._idle is not None:
            self._idle.cancel()
        await self.access.aclose()
        await self.forwarder.aclose()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def current_activity(self) -> dict[str, Any] | None:
        """Requests under way; a server that ends when unused does not end during them."""
        return {"requests": self.activity.under_way} if self.activity.under_way else None
