"""The command group: one place for errors, exit codes and the options that every command has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from jupyter_sandbox._version import __version__
from jupyter_sandbox.client import Client, connect
from jupyter_sandbox.errors import SandboxError

USER_ERROR = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Group(click.Group):
    """Shows commands in the order of a runtime's life, and our errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order they were added."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what it raises becomes a line on stderr and an exit code, never a traceback."""
        try:
            return super().invoke(ctx)
        except SandboxError as error:
            fail(str(error))
        except KeyboardInterrupt:
            click.echo(err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None


def fail(message: str, code: int = USER_ERROR) -> NoReturn:
    """Say what went wrong, and end with an exit code."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="jupyter sandbox")
def cli() -> None:
    """Branch a live computation the way you branch code.

    \b
    jupyter sandbox create exp
    jupyter sandbox run exp 'x = 41'
    jupyter sandbox checkpoint exp base
    jupyter sandbox fork base kid
    jupyter sandbox run kid 'print(x)'

    Commands find the server that holds your store, and start a private one when there is none.
    """


class App:
    """What a command was told about the server and the form of its answer."""

    def __init__(self, url: str | None, token: str | None, *, as_json: bool) -> None:
        self._url = url
        self._token = token
        self.as_json = as_json

    @contextmanager
    def client(self) -> Iterator[Client]:
        """The server, while the block lasts."""
        with connect(self._url, self._token) as client:
            yield client


def with_app(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--json``, ``--url`` and ``--token`` to a command, whose first argument becomes the `App`."""

    @click.option("--json", "as_json", is_flag=True, help="Answer with JSON.")
    @click.option(
        "--url",
        help="The server  [default: JUPYTER_SANDBOX_URL, else the one that holds the store, else a private one]",
    )
    @click.option("--token", help="Its token  [default: JUPYTER_SANDBOX_TOKEN, or the one in the store]")
    @functools.wraps(function)
    def command(*, url: str | None, token: str | None, as_json: bool, **arguments: Any) -> None:
        function(App(url, token, as_json=as_json), **arguments)

    return command


def key_values(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """A click callback: repeated ``NAME=VALUE`` -> a dict."""
    pairs = [value.partition("=") for value in values]
    wrong = [name for name, equals, _ in pairs if not name or not equals]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE", param=option)
    return {name: value for name, _, value in pairs}
