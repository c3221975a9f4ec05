from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from jupyter_sandbox.cli import cli
from jupyter_sandbox.errors import ServerUnavailable


def invoke(monkeypatch: pytest.MonkeyPatch, serve: Any, *words: str) -> Any:
    module = ModuleType("jupyter_sandbox.cli.serve")
    module.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    return CliRunner().invoke(cli, ["serve", *words])


def test_options_reach_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    result = invoke(monkeypatch, lambda **options: seen.append(options))
    assert result.exit_code == 0
    invoke(monkeypatch, lambda **options: seen.append(options), "--store", str(tmp_path), "--private", "--port", "80")
    assert seen == [
        {"store": None, "private": False, "port": 0, "ip": "127.0.0.1"},
        {"store": tmp_path, "private": True, "port": 80, "ip": "127.0.0.1"},
    ]


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(**_: Any) -> None:
        raise ServerUnavailable("The store cannot be opened", remedy="Free some space")

    result = invoke(monkeypatch, serve)
    assert (result.exit_code, result.stderr) == (1, "Error: The store cannot be opened. Free some space\n")
    assert invoke(monkeypatch, serve, "--port", "70000").exit_code == 2
