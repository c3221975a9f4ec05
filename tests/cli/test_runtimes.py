from __future__ import annotations

from pathlib import Path

from jupyter_sandbox.client import Client
from tests.cli.conftest import Cli


def test_create_says_what_it_made(cli_here: Cli, client: Client, tmp_path: Path) -> None:
    text = cli_here("create", "exp", "--env", "COLOUR=red", "--cwd", str(tmp_path)).stdout
    assert text.startswith("Runtime exp · idle · fork · isolation none")
    assert (
        client.runtimes.get("exp").run("import os; print(os.environ['COLOUR'], os.getcwd())").text
        == f"red {tmp_path}\n"
    )
    assert "exp" in cli_here("create", "exp", code=1).stderr
    again = cli_here.json("create", "exp", "--exist-ok")
    assert again["runtime_id"] == client.runtimes.get("exp").id


def test_create_without_a_name(cli_here: Cli) -> None:
    made = cli_here.json("create")
    assert made["name"] is None
    assert made["status"] == "idle"
    assert made["runtime_id"] in cli_here("ls").stdout


def test_wrong_values_name_the_field(cli_here: Cli) -> None:
    assert "name" in cli_here("create", "no/slash", code=1).stderr
    assert "memory_mb" in cli_here("create", "--memory-mb", "1", code=1).stderr
    assert "NAME=VALUE" in cli_here("create", "--env", "nonsense", code=2).stderr
    assert "engine" in cli_here("create", "--engine", "warp", code=1).stderr.lower()


def test_pause_resume_close(cli_here: Cli, client: Client) -> None:
    runtime = client.runtimes.create(name="exp")
    runtime.run("x = 41")
    text = cli_here("pause", "exp", "--checkpoint", "lunch").stdout
    assert text.startswith("Runtime exp · paused")
    assert "Checkpoint lunch of exp" in text
    assert "paused" in cli_here("run", "exp", "1", code=1).stderr
    assert cli_here("resume", "exp").stdout.startswith("Runtime exp · idle")
    assert runtime.run("print(x)").text == "41\n"
    paused = cli_here.json("pause", "exp")
    assert paused["runtime"]["status"] == "paused"
    assert paused["checkpoint"]["runtime_id"] == runtime.id
    assert cli_here.json("resume", "exp")["status"] == "idle"
    other = client.runtimes.create(name="other")
    closed = cli_here.json("close", "exp", other.id)
    assert [item["status"] for item in closed] == ["closed", "closed"]


def test_close_with_what_came_from_it(cli_here: Cli, client: Client) -> None:
    client.runtimes.create(name="exp").fork("kid")
    assert "nobody" in cli_here("close", "exp", "nobody", code=1).stderr
    assert [item["status"] for item in cli_here.json("ls")] == ["idle", "idle"]
    lines = cli_here("close", "exp", "kid", "--cascade").stdout.splitlines()
    assert [line.split(" · ")[:2] for line in lines] == [["Runtime exp", "closed"], ["Runtime kid", "closed"]]
    assert cli_here("ls").stdout == "No runtimes\n"
