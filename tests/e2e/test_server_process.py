"""A real Jupyter server with the extension enabled by its installation, and the real engine."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from jupyter_sandbox.rendezvous import read_server_info
from tests.support.server_process import ServerProcess


def cell(server: ServerProcess, runtime: str, code: str) -> str:
    """What a cell printed."""
    answer = server.post(f"runtimes/{runtime}/cells", code=code)
    assert answer.status_code == 200, answer.text
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1] | {"error": None} == events[-1], events[-1]
    return "".join(e["output"].get("text", "") for e in events if e["event"] == "output")


def create(server: ServerProcess, name: str) -> str:
    answer = server.post("runtimes", name=name)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["runtime"]["runtime_id"])


def names(server: ServerProcess) -> dict[str, str]:
    return {r["name"]: r["status"] for r in server.get("runtimes").json()["runtimes"]}


def test_a_request_without_a_token_gets_401(jupyter_server_process):
    server = jupyter_server_process
    with server.client("wrong") as client:
        for answer in (client.get("runtimes"), client.post("runtimes", json={})):
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["code"] == "Unauthorized"


def test_a_checkpoint_forks_into_independent_children(jupyter_server_process):
    server = jupyter_server_process
    runtime = create(server, "exp")
    cell(server, runtime, "x = 41\ng = (i * i for i in range(9))\nprint(next(g))")
    server.post("runtimes/checkpoint", runtime_id=runtime, name="base").raise_for_status()
    kids = [server.post("sandboxes/base/fork", name=name).json()["runtime"]["runtime_id"] for name in "ab"]
    assert cell(server, kids[0], "x += 1\nprint(x, next(g), next(g))") == "42 1 4\n"
    assert cell(server, kids[1], "print(x, next(g))") == "41 1\n"
    assert cell(server, runtime, "print(x, next(g))") == "41 1\n"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_outlives_the_server(jupyter_server_process, end):
    server = jupyter_server_process
    runtime = create(server, "exp")
    cell(server, runtime, "x = [1, 2, 3]")
    taken = server.post("runtimes/checkpoint", runtime_id=runtime, name="base").json()["checkpoint_id"]
    info = read_server_info(server.store_dir)
    assert server.process is not None
    assert info is not None
    assert (info.url, info.token, info.private) == (server.url, server.store_token, False)
    assert info.pid == server.process.pid
    if end == "stop":
        assert server.stop() == 0
        assert read_server_info(server.store_dir) is None
    else:
        server.kill()
    server.start()
    assert names(server) == {"exp": "idle"}
    assert cell(server, runtime, "print(x)") == "[1, 2, 3]\n"
    kid = server.post("sandboxes/base/fork", name="kid").json()["runtime"]["runtime_id"]
    assert cell(server, kid, "x.append(4); print(x)") == "[1, 2, 3, 4]\n"
    nodes = {node["id"]: node["parent_id"] for node in server.get("lineage?all=0").json()["nodes"]}
    assert nodes == {runtime: None, taken: runtime, kid: taken}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_running_cell_outlives_the_server(jupyter_server_process, tmp_path, end):
    server = jupyter_server_process
    runtime = create(server, "exp")
    go = tmp_path / "go"
    code = (
        f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nx = 5"
    )
    with server.client() as client, client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        lines = answer.iter_lines()
        assert "begun" in next(lines)
        if end == "stop":
            assert server.stop() == 0
            last = json.loads(next(lines))
            assert (last["event"], last["error"]["code"]) == ("failed", "ServerUnavailable")
        else:
            server.kill()
            with pytest.raises(httpx.RemoteProtocolError):
                next(lines)
    server.start()
    go.touch()
    assert cell(server, runtime, "print(x)") == "5\n"


def environment_of(mark: str) -> dict[str, str]:
    """The environment that the process whose command line has ``mark`` in it was started with."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        if mark.encode() in line.read_bytes():
            pairs = (line.parent / "environ").read_bytes().decode().split("\0")
            return dict(pair.split("=", 1) for pair in pairs if pair)
    raise AssertionError(f"no process with {mark} in its command line")


def test_kernels_inherit_the_way_to_the_server(jupyter_server_process):
    server = jupyter_server_process
    with server.client() as client:
        kernel = client.post(f"{server.url}/api/kernels", json={"name": "python3"}).json()
        inherited = environment_of(f"kernel-{kernel['id']}.json")
        client.delete(f"{server.url}/api/kernels/{kernel['id']}").raise_for_status()
    assert inherited["JUPYTER_SANDBOX_URL"] == server.url
    assert inherited["JUPYTER_SANDBOX_TOKEN"] == server.store_token
    assert not [name for name, value in inherited.items() if server.token in value]


def test_the_stores_token_opens_nothing_of_jupyter(jupyter_server_process):
    server = jupyter_server_process
    with server.client(server.store_token) as client:
        assert client.get("health").status_code == 200
        assert client.get(f"{server.url}/api/contents").status_code in {401, 403}
        assert client.post(f"{server.url}/api/kernels", json={}).status_code in {401, 403}


def test_no_token_is_in_the_log_or_the_process_list(jupyter_server_process):
    server = jupyter_server_process
    with server.client(server.store_token) as client:
        client.get("runtimes/nobody")
        client.get("health", params={"token": server.store_token})
    assert server.process is not None
    assert server.store_token not in server.log.read_text()
    assert server.store_token.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert (server.store_dir / "token.json").stat().st_mode & 0o777 == 0o600


def test_a_second_server_forwards_and_takes_over(jupyter_server_process, tmp_path):
    first = jupyter_server_process
    runtime = create(first, "exp")
    second = ServerProcess(tmp_path / "second", options=(f"--SandboxExtension.store_dir={first.store_dir}",))
    try:
        second.start()
        assert cell(second, runtime, "x = 7; print(x)") == "7\n"
        first.kill()
        assert cell(second, runtime, "print(x)") == "7\n"
        info = read_server_info(first.store_dir)
        assert info is not None
        assert info.url == second.url
    finally:
        if second.process is not None:
            second.stop()
