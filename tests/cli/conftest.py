"""A real server for all tests here, and the command line that finds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jupyter_sandbox.cli import cli
from jupyter_sandbox.client import Client, connect
from jupyter_sandbox.rendezvous import STORE_ENV, TOKEN_ENV, URL_ENV
from tests.support.server_process import ServerProcess


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("cli"))
    server.start()
    yield server
    server.close_runtimes()
    server.stop()


class Cli:
    """Runs ``jupyter sandbox …`` in this process."""

    def __call__(self, *words: str, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(cli, list(words), input=stdin, prog_name="jupyter sandbox")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, *words: str, **options: Any) -> Any:
        """What it answers with ``--json``, which must be one document and nothing else on stdout."""
        command, *rest = words
        return json.loads(self(command, "--json", *rest, **options).stdout)


@pytest.fixture
def cli_here(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line, in a process that belongs to the server; what a test made is gone after it."""
    monkeypatch.setenv(URL_ENV, server.url)
    monkeypatch.setenv(TOKEN_ENV, server.token)
    monkeypatch.setenv(STORE_ENV, str(server.store_dir))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    yield Cli()
    server.close_runtimes()


@pytest.fixture
def client(cli_here: Cli) -> Iterator[Client]:
    """A client of the same server."""
    with connect() as client:
        yield client
