"""The daemon: a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from jupyter_sandbox.rendezvous import ServerInfo, read_server_info
from tests.support.environment import process_environment

Daemon = subprocess.Popen[str]
Start = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts daemons; waits until each has said its line."""
    running: list[Daemon] = []

    def begin(*options: str, settings: dict | None = None) -> Daemon:
        config = tmp_path / "config" / "jupyter_server_config.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(json.dumps(settings or {}))
        with (tmp_path / "errors.log").open("a") as errors:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "jupyter_sandbox", "serve", "--port", "0", *options],
                env=process_environment(tmp_path),
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        running.append(daemon)
        return daemon

    yield begin
    for daemon in running:
        daemon.terminate()
        daemon.wait(30)
        assert daemon.stdout is not None
        daemon.stdout.close()


def first_line(daemon: Daemon) -> str:
    assert daemon.stdout is not None
    return daemon.stdout.readline()


def named(tmp_path: Path) -> ServerInfo:
    info = read_server_info(tmp_path / "store")
    assert info is not None, (tmp_path / "errors.log").read_text()
    return info


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_in_order(start, tmp_path, number):
    daemon = start()
    line = first_line(daemon)
    info = named(tmp_path)
    assert line == f"jupyter-sandbox serves {info.url}/ (its token is in {tmp_path / 'store' / 'server.json'})\n"
    assert info.pid == daemon.pid
    daemon.send_signal(number)
    rest, _ = daemon.communicate(timeout=30)
    assert daemon.returncode == 0
    assert rest == ""
    assert read_server_info(tmp_path / "store") is None
    assert info.token not in (tmp_path / "errors.log").read_text()
    assert list((tmp_path / "runtime").glob("jpserver-*")) == []


def test_it_has_our_api_and_nothing_else_of_jupyter(start, tmp_path):
    first_line(start())
    info = named(tmp_path)
    runtime_file = json.loads(next((tmp_path / "runtime").glob("jpserver-*.json")).read_text())
    with httpx.Client(headers={"Authorization": f"Bearer {runtime_file['token']}"}, trust_env=False) as client:
        assert client.get(f"{info.url}/api/v1/health").status_code == 200
        for path in ("contents", "kernels", "kernelspecs", "sessions", "terminals", "shutdown", "config/x"):
            assert client.get(f"{info.url}/api/{path}").status_code == 404, path
        for path in ("files/token.json", "view/token.json", "files/server.json", "lab", "tree", "nbconvert/html/x"):
            assert client.get(f"{info.url}/{path}").status_code == 404, path
    assert runtime_file["token"] != info.token


def test_the_users_other_settings_do_not_reach_it(start, tmp_path):
    first_line(
        start(
            settings={
                "ServerApp": {"base_url": "/elsewhere/", "port": 1, "jpserver_extensions": {"no_such_package": True}},
                "SandboxExtension": {"max_json_bytes": 77},
            }
        )
    )
    info = named(tmp_path)
    with httpx.Client(headers={"Authorization": f"Bearer {info.token}"}, trust_env=False) as client:
        answer = client.post(f"{info.url}/api/v1/runtimes", content=b" " * 78)
    assert (answer.status_code, answer.json()["context"]) == (413, {"limit_bytes": 77})


def test_a_private_one_ends_when_nothing_lives_in_it(start, tmp_path):
    daemon = start("--private", settings={"SandboxExtension": {"idle_timeout_s": 0.5}})
    first_line(daemon)
    assert daemon.wait(30) == 0
    assert read_server_info(tmp_path / "store") is None


def test_a_private_one_stays_while_a_runtime_lives(start, tmp_path):
    daemon = start("--private", settings={"SandboxExtension": {"idle_timeout_s": 0.2}})
    first_line(daemon)
    info = named(tmp_path)
    assert info.private
    headers = {"Authorization": f"Bearer {info.token}"}
    with httpx.Client(base_url=f"{info.url}/api/v1/", headers=headers, trust_env=False, timeout=60) as client:
        created = client.post("runtimes", json={})
        assert created.status_code == 200, created.text
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(1.0)
        client.post("runtimes/close", json={"runtime_id": created.json()["runtime"]["runtime_id"]}).raise_for_status()
    assert daemon.wait(30) == 0


def test_a_private_one_is_not_needed_beside_another(start, tmp_path):
    first_line(start())
    second = start("--private")
    assert "Another server holds the store" in first_line(second)
    assert second.wait(30) == 0
    named(tmp_path)


def test_a_store_that_cannot_be_opened_is_an_error(start, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "server.json").mkdir()
    daemon = start()
    assert first_line(daemon) == ""
    assert daemon.wait(30) != 0
