"""``checkpoint``, ``fork``, ``checkout``, ``pin``, ``delete``, ``prune``: branching, and what branches come from."""

from __future__ import annotations

import sys

import click

from jupyter_sandbox.cli.app import App, with_app
from jupyter_sandbox.cli.output import show, show_json

_REBIND = "Take the name over from one of the same lineage."
_RESEED = "Whether random streams are renewed  [default: as the source was started]"


@click.command()
@click.argument("name")
@click.argument("checkpoint_name", required=False, metavar="[CHECKPOINT]")
@click.option("--pin", is_flag=True, help="Keep it: delete refuses it, prune leaves it.")
@click.option("--rebind", is_flag=True, help=_REBIND)
@with_app
def checkpoint(app: App, name: str, checkpoint_name: str | None, pin: bool, rebind: bool) -> None:
    """Capture a runtime as it is now; it goes on.

    \b
    jupyter sandbox checkpoint exp base
    jupyter sandbox checkpoint exp base --rebind
    """
    with app.client() as client:
        show(client.checkpoint(name, checkpoint_name, pin=pin, rebind=rebind), as_json=app.as_json)


@click.command()
@click.argument("source")
@click.argument("name", required=False)
@click.option("--rebind", is_flag=True, help=_REBIND)
@click.option("--reseed/--no-reseed", default=None, help=_RESEED)
@with_app
def fork(app: App, source: str, name: str | None, rebind: bool, reseed: bool | None) -> None:
    """A new runtime that goes on from a runtime or a checkpoint.

    \b
    jupyter sandbox fork base kid
    jupyter sandbox fork exp
    """
    with app.client() as client:
        show(client.fork(source, name, rebind=rebind, reseed=reseed), as_json=app.as_json)


@click.command()
@click.argument("checkpoint_ref", metavar="CHECKPOINT")
@click.argument("name", required=False)
@click.option("--allow-busy-source", is_flag=True, help="Also while the checkpoint's runtime runs something.")
@click.option("--rebind", is_flag=True, help=_REBIND)
@click.option("--reseed/--no-reseed", default=None, help=_RESEED)
@with_app
def checkout(
    app: App, checkpoint_ref: str, name: str | None, allow_busy_source: bool, rebind: bool, reseed: bool | None
) -> None:
    """A new runtime from a checkpoint.

    \b
    jupyter sandbox checkout base kid
    """
    with app.client() as client:
        runtime = client.checkout(
            checkpoint_ref, name, allow_busy_source=allow_busy_source, rebind=rebind, reseed=reseed
        )
        show(runtime, as_json=app.as_json)


@click.command()
@click.argument("checkpoint_ref", metavar="CHECKPOINT")
@click.option("--unpin", is_flag=True, help="No longer keep it.")
@with_app
def pin(app: App, checkpoint_ref: str, unpin: bool) -> None:
    """Keep a checkpoint: delete refuses it, prune leaves it.

    \b
    jupyter sandbox pin base
    jupyter sandbox pin base --unpin
    """
    with app.client() as client:
        show(client.pin(checkpoint_ref, not unpin), as_json=app.as_json)


@click.command()
@click.argument("refs", nargs=-1, required=True, metavar="CHECKPOINT...")
@with_app
def delete(app: App, refs: tuple[str, ...]) -> None:
    """Delete checkpoints; what was forked from them goes on.

    \b
    jupyter sandbox delete base
    """
    with app.client() as client:
        found = [client.get_checkpoint(ref) for ref in refs]  # a wrong name deletes nothing
        for checkpoint in found:
            client.delete_checkpoint(checkpoint.id)
            if not app.as_json:
                click.echo(f"Deleted {checkpoint.ref}")
    if app.as_json:
        show_json(found)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_app
def prune(app: App, yes: bool) -> None:
    """Delete every checkpoint that is not pinned and that no paused runtime needs.

    \b
    jupyter sandbox prune --yes
    """
    if not yes and not app.as_json and sys.stdin.isatty():
        click.confirm("Delete every checkpoint that is not pinned?", abort=True)
    with app.client() as client:
        deleted = client.prune()
    if app.as_json:
        show_json({"deleted": deleted})
    else:
        click.echo(f"Deleted {', '.join(deleted)}" if deleted else "Nothing to delete")
