"""``create``, ``pause``, ``resume``, ``close``: the life of a runtime."""

from __future__ import annotations

import click

from jupyter_sandbox.cli.app import App, key_values, with_app
from jupyter_sandbox.cli.output import show, show_json


@click.command()
@click.argument("name", required=False)
@click.option("--engine", default="fork", show_default=True, help="See `jupyter sandbox engines`.")
@click.option("--python", help="The interpreter, for engine fork  [default: this command's own]")
@click.option("--image", help="What engines with images start from.")
@click.option("--cwd", help="An existing directory, used in place and not captured  [default: one of its own]")
@click.option("--env", multiple=True, metavar="NAME=VALUE", callback=key_values, help="Added to its environment.")
@click.option("--memory-mb", type=int, help="Bound of its private memory, in MiB.")
@click.option("--cpus", type=float, help="Bound of its processors.")
@click.option("--pids", type=int, help="Bound of its processes.")
@click.option("--exist-ok", is_flag=True, help="A live runtime of that name is fine.")
@with_app
def create(
    app: App,
    name: str | None,
    engine: str,
    python: str | None,
    image: str | None,
    cwd: str | None,
    env: dict[str, str],
    memory_mb: int | None,
    cpus: float | None,
    pids: int | None,
    exist_ok: bool,
) -> None:
    """Make a runtime.

    \b
    jupyter sandbox create exp
    jupyter sandbox create exp --exist-ok --env SEED=7
    """
    limits = {
        name: value for name, value in (("memory_mb", memory_mb), ("cpus", cpus), ("pids", pids)) if value is not None
    }
    with app.client() as client:
        runtime = client.runtimes.create(
            engine, name, python=python, image=image, cwd=cwd, env=env, limits=limits, exist_ok=exist_ok
        )
        show(runtime, as_json=app.as_json)


@click.command()
@click.argument("name")
@click.option("--checkpoint", "checkpoint_name", help="A name for the checkpoint that it resumes from.")
@with_app
def pause(app: App, name: str, checkpoint_name: str | None) -> None:
    """Checkpoint a runtime and release what it holds; its id stays.

    \b
    jupyter sandbox pause exp
    """
    with app.client() as client:
        runtime = client.runtimes.get(name)
        checkpoint = runtime.pause(checkpoint_name)
        if app.as_json:
            show_json({"runtime": runtime, "checkpoint": checkpoint})
        else:
            click.echo(f"{runtime!r}\n{checkpoint!r}")


@click.command()
@click.argument("name")
@with_app
def resume(app: App, name: str) -> None:
    """Bring a paused runtime back, under the same id.

    \b
    jupyter sandbox resume exp
    """
    with app.client() as client:
        show(client.runtimes.get(name).resume(), as_json=app.as_json)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--cascade", is_flag=True, help="Its children too, and the unpinned checkpoints of all of them.")
@with_app
def close(app: App, names: tuple[str, ...], cascade: bool) -> None:
    """End runtimes; their checkpoints and forks stay.

    \b
    jupyter sandbox close exp kid
    jupyter sandbox close exp --cascade
    """
    with app.client() as client:
        # All are found before any is closed: a wrong name ends nothing, and a cascade takes names with it.
        runtimes = [client.runtimes.get(name) for name in names]
        closed = [runtime.close(cascade) for runtime in runtimes]
    if app.as_json:
        show_json(closed)
    else:
        click.echo("\n".join(map(repr, closed)))
