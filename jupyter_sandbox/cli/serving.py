"""``serve``: a server of its own."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("serve")
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    help="The store's directory  [default: JUPYTER_SANDBOX_STORE, else in Jupyter's data directory]",
)
@click.option("--private", is_flag=True, help="End by itself when nothing lives in it any more.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any that is free.")
@click.option("--ip", default="127.0.0.1", show_default=True, help="The address to listen on.")
def serve_command(store: Path | None, private: bool, port: int, ip: str) -> None:
    """Serve the HTTP API, without notebooks.

    \b
    jupyter sandbox serve
    jupyter sandbox serve --port 8899
    """
    from jupyter_sandbox.cli.serve import serve  # the only command that needs the server's own packages

    serve(store=store, private=private, port=port, ip=ip)
