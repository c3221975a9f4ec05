"""A Jupyter server with nothing in it but our API."""

from __future__ import annotations

import logging
import secrets
import signal
import sys
from pathlib import Path

from jupyter_core.application import JupyterApp
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.server.extension import SandboxExtension


class SandboxServer(ServerApp):
    """A server without kernels, files, terminals or anyone's other extensions, and without their configuration.

    Of the user's ``jupyter_server_config`` only the section ``SandboxExtension`` counts: what it forbids holds here
    too, while ports, passwords and certificates there are meant for another server.
    """

    name = "jupyter-sandbox-server"
    description = "Serves the jupyter-sandbox API."
    no_browser_open_file = True  # the file would hold the token
    default_services = ()  # type: ignore[assignment]  # Jupyter's type is that of its own list

    def load_config_file(self, suppress_errors: bool = True) -> None:  # type: ignore[override]  # as JupyterApp
        """Read the one section that concerns us."""
        reader = JupyterApp(config_file_name="jupyter_server_config", log=self.log)
        reader.load_config_file(suppress_errors)
        section = SandboxExtension.__name__
        if section in reader.config:
            self.update_config(Config({section: reader.config[section]}))

    def init_signal(self) -> None:
        """End in order on Ctrl-C and on SIGTERM, without asking back."""
        super().init_signal()
        signal.signal(signal.SIGINT, self._signal_stop)


def run(store_dir: Path, *, private: bool, port: int, ip: str) -> None:
    """Serve until a signal, or, when private, until nothing live is left. Blocks; see `jupyter_sandbox.cli.serve`."""
    store_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = Config()
    settings.ServerApp.update(
        {
            "ip": ip,
            "port": port,
            "port_retries": 0,
            "open_browser": False,
            "root_dir": str(store_dir),
            "allow_root": True,  # Jupyter's warning is about kernels for strangers; this one asks for a token
            "log_level": logging.WARNING,
            "allow_unauthenticated_access": False,
        }
    )
    settings.IdentityProvider.token = secrets.token_urlsafe(32)
    settings.ContentsManager.files_handler_class = None
    settings.SandboxExtension.update({"store_dir": str(store_dir), "private": private})
    app = SandboxServer.instance(config=settings, jpserver_extensions={"jupyter_sandbox": True})
    app.reraise_server_extension_failures = True
    app.initialize(argv=[], find_extensions=False)
    extension = app.extension_manager.extension_points[SandboxExtension.name].app
    failures: list[SandboxError] = []

    async def announce() -> None:
        try:
            control = await extension.access.ready()
        except SandboxError as error:
            failures.append(error)
            app.stop()
            return
        where = f"{extension.url}/ (its token is in {store_dir / 'server.json'})"
        if control is not None:
            sys.stdout.write(f"jupyter-sandbox serves {where}\n")
        elif private:
            sys.stdout.write("Another server holds the store: nothing to do here\n")
            app.stop()
        else:
            sys.stdout.write(f"jupyter-sandbox sends requests on to the server that holds the store, from {where}\n")
        sys.stdout.flush()

    app.io_loop.add_callback(announce)
    try:
        app.start()
    finally:
        SandboxServer.clear_instance()
    if failures:
        raise failures[0]
