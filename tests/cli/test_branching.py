from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from jupyter_sandbox.client import Client, Runtime
from tests.cli.conftest import Cli


@pytest.fixture
def exp(client: Client) -> Runtime:
    runtime = client.runtimes.create(name="exp")
    runtime.run("x = 41; g = (i for i in range(9)); next(g)")
    return runtime


def test_checkpoint_fork_and_go_on(cli_here: Cli, client: Client, exp: Runtime) -> None:
    text = cli_here("checkpoint", "exp", "base").stdout
    assert text.startswith("Checkpoint base of exp · fork · ")
    assert "captured: memory, files" in text
    exp.run("x = 0; next(g)")
    assert cli_here("fork", "base", "kid").stdout.startswith("Runtime kid · idle")
    assert cli_here("run", "kid", "print(x, next(g))").stdout == "41 1\n"
    assert cli_here("fork", "exp", "live").exit_code == 0
    assert cli_here("run", "live", "print(x, next(g))").stdout == "0 2\n"


def test_checkpoint_json_names_and_pins(cli_here: Cli, exp: Runtime) -> None:
    made = cli_here.json("checkpoint", "exp", "base", "--pin")
    assert (made["name"], made["pinned"], made["source"]) == ("base", True, "exp")
    assert set(made["timings"]) == {"queue_ms", "service_ms", "engine_ms", "provider_ms"}
    assert "base" in cli_here("checkpoint", "exp", "base", code=1).stderr
    assert "pinned" in cli_here("delete", "base", code=1).stderr
    assert cli_here.json("pin", "base", "--unpin")["pinned"] is False
    moved = cli_here.json("checkpoint", "exp", "base", "--rebind")
    assert moved["checkpoint_id"] != made["checkpoint_id"]


def test_checkout(cli_here: Cli, exp: Runtime) -> None:
    made = cli_here.json("checkpoint", "exp")
    kid = cli_here.json("checkout", made["checkpoint_id"], "kid")
    assert (kid["name"], kid["parent_runtime_id"]) == ("kid", exp.id)
    assert "nothing-of-that-name" in cli_here("checkout", "nothing-of-that-name", code=1).stderr


def test_delete_and_prune(cli_here: Cli, exp: Runtime) -> None:
    for name in ("a", "b", "c"):
        exp.checkpoint(name)
    cli_here("pin", "a")
    assert "nothing" in cli_here("delete", "b", "nothing", code=1).stderr
    assert cli_here("delete", "b").stdout == "Deleted b\n"
    assert cli_here.json("prune") == {"deleted": ["c"]}
    assert cli_here("prune", "--yes").stdout == "Nothing to delete\n"
    assert [item["name"] for item in cli_here.json("checkpoints")] == ["a"]


def test_prune_asks_on_a_terminal(cli_here: Cli, exp: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sandbox.cli import branching

    exp.checkpoint("a")
    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True), stdout=sys.stdout)
    monkeypatch.setattr(branching, "sys", terminal)
    assert "not pinned?" in cli_here("prune", stdin="n\n", code=1).stdout
    assert cli_here("prune", stdin="y\n").stdout.endswith("Deleted a\n")
