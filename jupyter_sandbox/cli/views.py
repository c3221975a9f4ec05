"""``ls``, ``checkpoints``, ``lineage``, ``latency``, ``engines``: what there is."""

from __future__ import annotations

import click

from jupyter_sandbox.cli.app import App, with_app
from jupyter_sandbox.cli.output import show_view


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Closed ones too.")
@with_app
def ls(app: App, show_all: bool) -> None:
    """List runtimes, oldest first.

    \b
    jupyter sandbox ls
    jupyter sandbox ls --all --json
    """
    with app.client() as client:
        show_view(client.runtimes.list(show_all), as_json=app.as_json)


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Automatic ones too.")
@with_app
def checkpoints(app: App, show_all: bool) -> None:
    """List checkpoints, oldest first.

    \b
    jupyter sandbox checkpoints
    """
    with app.client() as client:
        show_view(client.checkpoints(show_all), as_json=app.as_json)


@click.command()
@click.option("--all/--live", "show_all", default=True, help="With or without closed runtimes  [default: all]")
@with_app
def lineage(app: App, show_all: bool) -> None:
    """Show what came from what, as a tree.

    \b
    jupyter sandbox lineage
    """
    with app.client() as client:
        show_view(client.lineage(show_all), as_json=app.as_json)


@click.command()
@click.option("--since-ms", type=click.IntRange(min=0), help="Only since this moment, in ms since the epoch.")
@with_app
def latency(app: App, since_ms: int | None) -> None:
    """Show how long operations took, in parts.

    \b
    jupyter sandbox latency
    """
    with app.client() as client:
        show_view(client.latency(since_ms), as_json=app.as_json)


@click.command()
@with_app
def engines(app: App) -> None:
    """Show which engines work here, and what they can do.

    \b
    jupyter sandbox engines
    """
    with app.client() as client:
        show_view(client.engines(), as_json=app.as_json)
