from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_sandbox.client import Client, Runtime
from tests.cli.conftest import Cli


@pytest.fixture
def exp(client: Client) -> Runtime:
    return client.runtimes.create(name="exp")


def test_run_prints_what_the_cell_printed(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here("run", "exp", "import sys; x = 41; print(x); print('oh', file=sys.stderr); x + 1")
    assert result.stdout == "41\n42\n"
    assert result.stderr == "oh\n"


def test_code_from_a_file_and_from_stdin(cli_here: Cli, exp: Runtime, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("print('from file é')")
    assert cli_here("run", "exp", "-f", str(file)).stdout == "from file é\n"
    assert cli_here("run", "exp", "-", stdin="print('from stdin')").stdout == "from stdin\n"
    assert cli_here("run", "exp", "-f", "-", stdin="print('again')").stdout == "again\n"
    assert "Give the code" in cli_here("run", "exp", code=2).stderr
    assert "Give the code" in cli_here("run", "exp", "1", "-f", str(file), code=2).stderr


def test_a_cell_that_fails_is_exit_code_1_and_its_own_traceback(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here("run", "exp", "print('before'); 1/0", code=1)
    assert result.stdout == "before\n"
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "\x1b" not in result.stderr
    assert "jupyter_sandbox" not in result.stderr


def test_a_cell_that_takes_too_long(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here("run", "exp", "--timeout", "0.2", "import time; time.sleep(600)", code=1)
    assert "time limit" in result.stderr.splitlines()[-1]


def test_run_json_is_the_whole_result(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here.json("run", "exp", "print(1); 2")
    assert (result["status"], result["text"]) == ("ok", "1\n2")
    failed = cli_here.json("run", "exp", "1/0", code=1)
    assert failed["error"]["ename"] == "ZeroDivisionError"


def test_exec_ends_with_the_commands_code(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here("exec", "exp", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert cli_here("exec", "exp", "--", "sh", "-c", "kill -9 $$", code=137).output == ""
    assert cli_here("exec", "exp", "echo", "--json", "-x").stdout == "--json -x\n"


def test_exec_options(cli_here: Cli, exp: Runtime) -> None:
    exp.mkdir("d")
    result = cli_here(
        "exec",
        "--env",
        "A=b c",
        "--cwd",
        "d",
        "-i",
        "exp",
        "--",
        "sh",
        "-c",
        'cat; echo "$A"; basename "$PWD"',
        stdin="in ",
    )
    assert result.stdout == "in b c\nd\n"
    assert cli_here.json("exec", "exp", "--", "false", code=1)["exit_code"] == 1
    assert "time limit" in cli_here("exec", "--timeout", "0.2", "exp", "--", "sleep", "600", code=124).stderr
    assert "Missing argument" in cli_here("exec", "exp", code=2).stderr


def test_a_command_that_is_not_there(cli_here: Cli, exp: Runtime) -> None:
    result = cli_here("exec", "exp", "--", "no-such-program-here", code=1)
    assert "no-such-program-here" in result.stderr
    assert "Traceback" not in result.stderr
