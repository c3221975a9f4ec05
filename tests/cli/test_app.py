from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from jupyter_sandbox import __version__
from jupyter_sandbox.cli import app, cli
from jupyter_sandbox.client import Client
from tests.cli.conftest import Cli
from tests.support.server_process import ServerProcess, free_port

COMMANDS = sorted(cli.commands)


def test_the_commands_of_the_issue_are_there() -> None:
    wanted = [
        "create",
        "run",
        "checkpoint",
        "fork",
        "checkout",
        "pause",
        "resume",
        "close",
        "ls",
        "checkpoints",
        "lineage",
        "latency",
        "pin",
        "prune",
        "delete",
        "exec",
        "serve",
    ]
    assert set(wanted) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"], prog_name="jupyter sandbox")
    assert result.exit_code == 0
    assert f"  jupyter sandbox {name}" in result.output.partition("Options:")[0].partition("\n")[2]
    if name != "serve":
        for option in ("--json", "--url", "--token"):
            assert option in result.output


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "jupyter_sandbox"],
        [str(Path(sys.executable).with_name("jupyter-sandbox"))],
        [str(Path(sys.executable).with_name("jupyter")), "sandbox"],
    ],
    ids=["module", "script", "subcommand"],
)
def test_it_starts_by_every_name(command: list[str]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"jupyter sandbox, version {__version__}\n"


def test_an_error_is_one_line_on_stderr(cli_here: Cli) -> None:
    result = cli_here("close", "nobody", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert "nobody" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_usage_is_exit_code_2(cli_here: Cli) -> None:
    assert "No such option" in cli_here("ls", "--wrong", code=2).stderr
    assert "Missing argument" in cli_here("close", code=2).stderr


def test_url_and_token_win_over_the_environment(
    cli_here: Cli, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_SANDBOX_URL", f"http://127.0.0.1:{free_port()}")
    assert cli_here("ls", "--url", server.url, "--token", server.token).stdout == "No runtimes\n"
    assert "token" in cli_here("ls", "--url", server.url, "--token", "wrong", code=1).stderr


def test_a_server_that_is_not_there(cli_here: Cli) -> None:
    result = cli_here("ls", "--url", f"http://127.0.0.1:{free_port()}", code=1)
    assert "cannot be reached" in result.stderr
    assert "jupyter sandbox serve" in result.stderr


def test_ctrl_c_is_130() -> None:
    @click.group(cls=app.Group)
    def group() -> None:
        pass

    @group.command()
    def work() -> None:
        raise KeyboardInterrupt

    result = CliRunner().invoke(group, ["work"])
    assert result.exit_code == 130
    assert result.stderr == "\n"


def test_ctrl_c_interrupts_the_cell_and_leaves_no_traceback(cli_here: Cli, client: Client) -> None:
    runtime = client.runtimes.create(name="exp")
    code = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_sandbox", "run", "exp", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.strip() == ""
    # The runtime is free again: a cell would otherwise wait behind the 600 s.
    assert runtime.run("print('free')", timeout=60).text == "free\n"


def test_a_closed_pipe_is_no_traceback(cli_here: Cli, client: Client) -> None:
    client.runtimes.create(name="exp")
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_sandbox", "exec", "exp", "--", "yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "y\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(30) != 0
    process.stderr.close()


def test_the_command_line_needs_neither_pandas_nor_a_server() -> None:
    code = (
        "import sys, jupyter_sandbox.cli; "
        "print([m for m in ('pandas', 'IPython', 'tornado', 'jupyter_server', 'sqlalchemy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_name_value_pairs() -> None:
    option = click.Option(["--env"])
    assert app.key_values(click.Context(cli), option, ("A=1", "B=a=b", "C=")) == {"A": "1", "B": "a=b", "C": ""}
    for wrong in ("A", "=1"):
        with pytest.raises(click.BadParameter, match="NAME=VALUE"):
            app.key_values(click.Context(cli), option, (wrong,))
