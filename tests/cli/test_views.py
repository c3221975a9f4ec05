from __future__ import annotations

from jupyter_sandbox.client import Client
from tests.cli.conftest import Cli


def test_lists_in_a_pipe_are_plain_and_in_json_whole(cli_here: Cli, client: Client) -> None:
    exp = client.runtimes.create(name="exp")
    exp.checkpoint("base")
    client.fork("base", "kid").close()
    listed = cli_here("ls").stdout
    assert "\x1b" not in listed
    assert [line.split()[:4] for line in listed.splitlines()] == [
        ["name", "status", "engine", "isolation"],
        ["exp", "idle", "fork", "none"],
    ]
    assert [item["name"] for item in cli_here.json("ls", "--all")][-2:] == ["exp", "kid"]
    assert [item["name"] for item in cli_here.json("checkpoints")] == ["base"]
    assert cli_here("checkpoints").stdout.splitlines()[1].startswith("base  exp     ready  memory, files")


def test_lineage_is_a_tree(cli_here: Cli, client: Client) -> None:
    client.runtimes.create(name="exp").checkpoint("base")
    client.fork("base", "kid")
    lines = cli_here("lineage", "--live").stdout.splitlines()
    assert lines[0].startswith("exp · idle")
    assert lines[1].startswith("└─ ◆ base")
    assert lines[2].startswith("   └─ kid · idle")
    nodes = {node["id"]: node for node in cli_here.json("lineage")}
    kid = nodes[client.runtimes.get("kid").id]
    assert nodes[kid["parent_id"]]["checkpoint"]["name"] == "base"


def test_latency_and_engines(cli_here: Cli, client: Client) -> None:
    client.runtimes.create(name="exp").checkpoint()
    rows = {row["operation"]: row for row in cli_here.json("latency")}
    assert rows["checkpoint"]["n"] >= 1
    assert cli_here("latency", "--since-ms", str(10**14)).stdout == "No operations timed yet\n"
    assert any(line.startswith("fork    yes") for line in cli_here("engines").stdout.splitlines())
