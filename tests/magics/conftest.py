"""A real server for all tests here, and for each test an IPython that is connected to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from traitlets.config import Config

from jupyter_sandbox.client import Client, connect
from jupyter_sandbox.rendezvous import STORE_ENV, TOKEN_ENV, URL_ENV
from tests.support.server_process import ServerProcess


@pytest.fixture
def connected(jupyter_server_process: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> ServerProcess:
    """This process belongs to the server, as a kernel that it started would."""
    monkeypatch.setenv(URL_ENV, jupyter_server_process.url)
    monkeypatch.setenv(TOKEN_ENV, jupyter_server_process.token)
    monkeypatch.setenv(STORE_ENV, str(jupyter_server_process.store_dir))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    return jupyter_server_process


@pytest.fixture
def client(connected: ServerProcess) -> Iterator[Client]:
    """A client of the server; whatever the test made there is gone afterwards."""
    with connect() as client:
        yield client


@dataclass(frozen=True)
class Ran:
    """A cell that ran: its own result, and what a reader saw."""

    execution: ExecutionResult
    stdout: str
    stderr: str
    displayed: list[RichOutput]

    @property
    def value(self) -> Any:
        return self.execution.result

    @property
    def failed(self) -> bool:
        return not self.execution.success

    @property
    def error(self) -> BaseException | None:
        return self.execution.error_in_exec


@pytest.fixture
def bare_shell() -> Iterator[InteractiveShell]:
    """An IPython as in a terminal, without history file and colours."""
    settings = Config()
    settings.HistoryManager.enabled = False
    settings.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=settings)
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(bare_shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The same with our extension."""
    bare_shell.run_line_magic("load_ext", "jupyter_sandbox")
    yield bare_shell
    bare_shell.run_line_magic("unload_ext", "jupyter_sandbox")


@pytest.fixture
def run(shell: InteractiveShell, client: Client) -> Callable[[str], Ran]:
    """Runs a cell in the shell, with the server there."""

    def run_cell(code: str) -> Ran:
        with capture_output() as seen:
            execution = shell.run_cell(code, store_history=True)
        return Ran(execution, seen.stdout, seen.stderr, seen.outputs)

    return run_cell
