"""The daemon: real processes."""

from __future__ import annotations

import json
import shutil
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
    """Starts daemons on one store; those that still run end in order, by SIGTERM, and leave no name in it."""
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
    codes = []
    for daemon in running:
        daemon.terminate()
        rest, _ = daemon.communicate(timeout=30)
        codes.append((daemon.returncode, rest))
    shutil.rmtree(tmp_path / "store")  # an engine's keeper ends with it
    assert {rest for _, rest in codes} == {""}
    if "unopenable" not in tmp_path.name:
        assert {code for code, _ in codes} == {0}


def first_line(daemon: Daemon) -> str:
    assert daemon.stdout is not None
    return daemon.stdout.readline()


def named(tmp_path: Path) -> ServerInfo:
    info = read_server_info(tmp_path / "store")
    assert info is not None, (tmp_path / "errors.log").read_text()
    return info


def test_it_serves_our_api_and_nothing_else(start, tmp_path):
    elsewhere = {"base_url": "/elsewhere/", "port": 1, "jpserver_extensions": {"no_such_package": True}}
    daemon = start(settings={"ServerApp": elsewhere, "SandboxExtension": {"max_json_bytes": 77}})
    line = first_line(daemon)
    info = named(tmp_path)
    assert line == f"jupyter-sandbox serves {info.url}/ (its token is in {tmp_path / 'store' / 'server.json'})\n"
    assert info.pid == daemon.pid
    (runtime_file,) = (tmp_path / "runtime").glob("jpserver-*.json")
    token = json.loads(runtime_file.read_text())["token"]
    assert token != info.token
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        assert client.get(f"{info.url}/api/v1/health").status_code == 200
        too_large = client.post(f"{info.url}/api/v1/runtimes", content=b" " * 78)
        assert (too_large.status_code, too_large.json()["context"]) == (413, {"limit_bytes": 77})
        for path in ("contents", "kernels", "kernelspecs", "sessions", "terminals", "shutdown", "config/x"):
            assert client.get(f"{info.url}/api/{path}").status_code == 404, path
        for path in ("files/token.json", "view/token.json", "files/server.json", "lab", "tree", "nbconvert/html/x"):
            assert client.get(f"{info.url}/{path}").status_code == 404, path
    daemon.send_signal(signal.SIGINT)
    assert daemon.wait(30) == 0
    assert read_server_info(tmp_path / "store") is None
    assert not runtime_file.exists()
    log = (tmp_path / "errors.log").read_text()
    assert info.token not in log
    assert token not in log


def test_a_private_one_ends_with_the_last_that_lives_in_it(start, tmp_path):
    public = start()
    first_line(public)
    info = named(tmp_path)
    headers = {"Authorization": f"Bearer {info.token}"}
    with httpx.Client(base_url=f"{info.url}/api/v1/", headers=headers, trust_env=False, timeout=60) as client:
        created = client.post("runtimes", json={})
        assert created.status_code == 200, created.text
    second = start("--private")
    assert first_line(second) == "Another server holds the store: nothing to do here\n"
    assert second.wait(30) == 0
    assert named(tmp_path) == info
    public.terminate()
    assert public.wait(30) == 0
    assert read_server_info(tmp_path / "store") is None

    private = start("--private", settings={"SandboxExtension": {"idle_timeout_s": 0.2}})
    first_line(private)
    info = named(tmp_path)
    assert info.private
    with pytest.raises(subprocess.TimeoutExpired):
        private.wait(1.0)
    closed = httpx.post(
        f"{info.url}/api/v1/runtimes/close",
        json={"runtime_id": created.json()["runtime"]["runtime_id"]},
        headers=headers,
        timeout=60,
        trust_env=False,
    )
    assert closed.status_code == 200, closed.text
    assert private.wait(30) == 0
    assert read_server_info(tmp_path / "store") is None


def test_an_unopenable_store_is_an_error(start, tmp_path):
    (tmp_path / "store" / "server.json").mkdir(parents=True)
    daemon = start()
    assert first_line(daemon) == ""
    assert daemon.wait(30) == 1
