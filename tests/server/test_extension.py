from __future__ import annotations

import os
import subprocess
import sys

import pytest
from jupyter_server.extension.manager import ExtensionPackage

import jupyter_sandbox
from jupyter_sandbox.models import Isolation
from jupyter_sandbox.rendezvous import TOKEN_ENV, URL_ENV
from jupyter_sandbox.server.extension import SandboxExtension
from jupyter_sandbox.server.handler import SandboxHandler
from tests.server.conftest import JUPYTER_TOKEN


def test_jupyter_server_accepts_the_package():
    package = ExtensionPackage(name="jupyter_sandbox", enabled=True)
    assert package.validate()
    assert package.version == jupyter_sandbox.__version__
    assert [point.app.__class__ for point in package.extension_points.values()] == [SandboxExtension]


def test_importing_the_package_does_not_import_the_server():
    code = "import sys, jupyter_sandbox; print('jupyter_server' in sys.modules, 'sqlalchemy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False False\n"


async def test_kernels_learn_where_the_api_is_and_only_the_stores_token(server):
    assert os.environ[URL_ENV] == server.url == f"http://127.0.0.1:{server.port}"
    assert os.environ[TOKEN_ENV] == server.store_token
    assert JUPYTER_TOKEN not in os.environ.values()


async def test_the_environment_is_as_before_when_the_server_has_ended(serve, monkeypatch):
    monkeypatch.setenv(URL_ENV, "http://before")
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    server = await serve()
    assert os.environ[URL_ENV] == server.url
    await server.stop()
    assert os.environ[URL_ENV] == "http://before"
    assert TOKEN_ENV not in os.environ


async def test_the_base_url_is_part_of_all_paths(serve):
    server = await serve(ServerApp={"base_url": "/user/me/"})
    assert os.environ[URL_ENV] == server.url == f"http://127.0.0.1:{server.port}/user/me"
    assert (await server.client.get("health")).status_code == 200
    assert (await server.client.get("nothing")).json()["code"] == "NotFound"
    outside = await server.client.get(f"http://127.0.0.1:{server.port}/api/v1/health")
    assert outside.status_code == 404


@pytest.mark.parametrize("ip", ["0.0.0.0", "*"])
async def test_kernels_use_loopback_when_the_server_listens_everywhere(serve, ip):
    server = await serve(ServerApp={"ip": ip})
    assert os.environ[URL_ENV] == f"http://127.0.0.1:{server.port}"
    assert (await server.client.get("health")).status_code == 200


async def test_the_servers_least_isolation_holds(serve):
    server = await serve(SandboxExtension={"min_isolation": "container"})
    answer = await server.client.post("runtimes", json={"engine": "toy"})
    assert not answer.is_success
    assert "isolation" in answer.json()["message"] + answer.json()["remedy"]
    assert server.extension.min_isolation == Isolation.container


async def test_other_extensions_keep_their_paths_below_api_v1(server):
    ours = server.app.web_app.default_router.rules
    patterns = [
        rule.matcher.regex.pattern
        for group in ours
        if hasattr(group.target, "rules")
        for rule in group.target.rules
        if rule.target is SandboxHandler
    ]
    assert len(patterns) == 2
    assert "runtimes" in patterns[0]  # registered while extensions load
    assert patterns[1] == r"/api/v1(?:/.*)?$"  # registered after all have loaded


async def test_a_request_under_way_counts_as_activity(server):
    assert server.extension.current_activity() is None
    with server.extension.activity.request():
        assert server.extension.current_activity() == {"requests": 1}


async def test_a_private_server_is_live_while_it_holds_anything(server):
    extension = server.extension
    assert not await extension._live()
    runtime = await server.create()
    assert await extension._live()
    await server.client.post("runtimes/checkpoint", json={"runtime_id": runtime, "name": "kept"})
    await server.client.post("runtimes/close", json={"runtime_id": runtime})
    assert await extension._live()
    await server.client.delete("checkpoints/kept")
    assert not await extension._live()
