"""``run`` and ``exec``: code and commands inside a runtime, with their output as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

import click

from jupyter_sandbox.cli.app import App, fail, key_values, with_app
from jupyter_sandbox.cli.output import show_cell_event, show_exec_event, show_json
from jupyter_sandbox.models import CellEvent, ExecEvent


@click.command()
@click.argument("name")
@click.argument("code", required=False)
@click.option("-f", "--file", type=click.File("r", encoding="utf-8"), help="Read the code from a file; - is stdin.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Then interrupt it.")
@with_app
def run(app: App, name: str, code: str | None, file: TextIO | None, timeout: float | None) -> None:
    """Run code in a runtime, where its variables are.

    CODE may be - for stdin. The exit code is 1 when the code failed.

    \b
    jupyter sandbox run exp 'x = 41; print(x)'
    jupyter sandbox run exp -f train.py
    echo 'x + 1' | jupyter sandbox run exp -
    """
    if (code is None) == (file is None):
        raise click.UsageError("Give the code, or -f FILE, or - for stdin.")
    if file is not None:
        code = file.read()
    elif code == "-":
        code = sys.stdin.read()
    on_event: Callable[[CellEvent], None] | None = None if app.as_json else show_cell_event
    with app.client() as client:
        result = client.runtimes.get(name).run(code or "", timeout, on_event)
    if app.as_json:
        show_json(result)
    if result.timed_out:
        fail("The cell ran into its time limit and was interrupted. Give it more with --timeout")
    if result.status == "aborted" and not app.as_json:
        fail("The cell was aborted")
    if result.status != "ok":
        raise click.exceptions.Exit(1)


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--env", multiple=True, metavar="NAME=VALUE", callback=key_values, help="Added to its environment.")
@click.option("--cwd", help="Relative to the runtime's working directory.")
@click.option("-i", "--stdin", is_flag=True, help="Read stdin whole and give it to the command.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Then end it and what it started.")
@with_app
def exec_(
    app: App,
    name: str,
    argv: tuple[str, ...],
    env: dict[str, str],
    cwd: str | None,
    stdin: bool,
    timeout: float | None,
) -> None:
    """Run a command beside the cells of a runtime, and exit with its code.

    Options come before NAME.

    \b
    jupyter sandbox exec exp -- ls -l
    jupyter sandbox exec --timeout 10 exp -- sh -c 'make test | tail'
    """
    words = argv[1:] if argv[0] == "--" else argv
    if not words:
        raise click.UsageError("Give a command after --.")
    text = sys.stdin.read() if stdin else None
    on_event: Callable[[ExecEvent], None] | None = None if app.as_json else show_exec_event
    with app.client() as client:
        runtime = client.runtimes.get(name)
        result = runtime.exec(words, env=env, cwd=cwd, stdin=text, timeout=timeout, on_event=on_event)
    if app.as_json:
        show_json(result)
    if result.timed_out:
        fail("The command ran into its time limit and was ended. Give it more with --timeout", code=124)
    # Ended by signal n: 128 + n, as shells have it.
    raise click.exceptions.Exit(result.exit_code if result.exit_code >= 0 else 128 - result.exit_code)
