"""The client against real servers and real runtimes: what mocks cannot show."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_sandbox.client import Client, Origin, connect, connect_async
from jupyter_sandbox.errors import InvalidRequest, NameTaken, PathNotFound, RuntimeNotFound, SessionBusy, WrongStatus
from jupyter_sandbox.models import CellDone
from jupyter_sandbox.rendezvous import STORE_ENV, TOKEN_ENV, URL_ENV, read_server_info
from tests.support.processes import wait_until_gone
from tests.support.server_process import ServerProcess, free_port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("client"))
    server.start()
    yield server
    server.close_runtimes()
    server.stop()


@pytest.fixture
def sb(server: ServerProcess) -> Iterator[Client]:
    with connect(server.url, server.token) as client:
        yield client
    server.close_runtimes()


def test_the_example_of_the_design(sb: Client, tmp_path: Path) -> None:
    rt = sb.runtimes.create(engine="fork", name="exp")
    assert rt.run("x = 41; g = (i for i in range(9)); next(g)").status == "ok"
    cp = rt.checkpoint("base")
    assert (cp.name, cp.captured(), cp.summary().source) == ("base", "memory, files", "exp")
    kid = sb.fork("base", "kid")
    assert kid.run("print(x, next(g))").text == "41 1\n"
    assert rt.run("print(x, next(g))").text == "41 1\n"
    assert rt.run("import sys; print(sys.executable)").text == f"{sys.executable}\n"
    rt.pause()
    assert rt.status == "paused"
    with pytest.raises(WrongStatus, match="paused"):
        rt.run("x")
    rt.resume()
    assert rt.run("next(g)").text == "2"
    assert [r.name for r in sb.runtimes.list()] == ["exp", "kid"]
    assert sb.checkpoints()[0].record.forks == 1
    assert {"exp", "kid", "base"} <= set(sb.lineage().to_frame()["name"])
    assert {"checkpoint", "fork", "pause", "resume"} <= set(sb.latency().to_frame()["operation"])
    with pytest.raises(NameTaken):
        sb.fork("base", "exp")
    with pytest.raises(RuntimeNotFound, match="nobody"):
        sb.runtimes.get("nobody")


async def test_the_same_from_a_running_loop(server: ServerProcess, sb: Client) -> None:
    async with await connect_async(server.url, server.token) as client:
        runtime = await client.runtimes.create(name="exp")
        seen = [event async for event in runtime.stream("for i in range(3): print(i)")]
        assert isinstance(seen[-1], CellDone)
        await runtime.run("x = 41")
        await runtime.checkpoint("base")
        kids = await asyncio.gather(*(client.fork("base", f"kid{i}") for i in range(3)))
        results = await asyncio.gather(*(kid.run(f"x + {i}") for i, kid in enumerate(kids)))
        assert [result.text for result in results] == ["41", "42", "43"]


def test_files_commands_and_an_export(sb: Client, tmp_path: Path) -> None:
    rt = sb.runtimes.create(name="exp")
    rt.write("d/ü #?%.txt", "héllo\nwörld\n")
    assert rt.read("d/ü #?%.txt") == "héllo\nwörld\n".encode()
    assert rt.stat("d/ü #?%.txt").size == 14
    assert rt.search("**/*.txt", "w.rld").matches[0].line == 2
    assert rt.exec(["cat", "d/ü #?%.txt"]).stdout == "héllo\nwörld\n"
    assert rt.exec(shell="cat; exit 3", stdin="in").exit_code == 3
    with tarfile.open(rt.export("d", tmp_path / "d.tar")) as tar:
        assert any(name.endswith("ü #?%.txt") for name in tar.getnames())
    big = os.urandom(3_000_000)
    rt.write("big", big)
    assert rt.read("big") == big
    rt.remove("d")
    with pytest.raises(PathNotFound):
        rt.read("d/ü #?%.txt")
    for outside in ("../../x", "/etc/passwd"):
        with pytest.raises(InvalidRequest):
            rt.read(outside)


def test_a_separator_that_unicode_calls_a_line_end(sb: Client) -> None:
    assert sb.runtimes.create().run(r"print('a\u2028b\x85c')").text == "a\u2028b\x85c\n"


def test_leaving_a_stream_frees_the_runtime(sb: Client) -> None:
    rt = sb.runtimes.create(name="exp")
    events = rt.stream("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    next(events)
    with pytest.raises(SessionBusy):
        rt.checkpoint()
    events.close()
    assert rt.run("print('free')", timeout=60).text == "free\n"


def test_a_kernel_follows_its_server_to_another_port(
    server: ServerProcess, sb: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_ENV, server.url)
    monkeypatch.setenv(TOKEN_ENV, server.token)
    monkeypatch.setenv(STORE_ENV, str(server.store_dir))
    with connect() as client:
        assert client.endpoint.origin is Origin.environment
        runtime = client.runtimes.create(name="exp")
        runtime.run("x = 41")
        server.kill()
        server.port = free_port()
        server.url = f"http://127.0.0.1:{server.port}"
        server.start()
        assert runtime.run("print(x)").text == "41\n"
        assert client.endpoint.url == server.url
        assert client.checkpoint("exp", "base").name == "base"


def test_two_clients_start_one_private_server_and_again_when_it_ended(own_directories: Path) -> None:
    store = own_directories / "store"
    barrier = threading.Barrier(2)

    def start(_: int) -> Client:
        barrier.wait()
        return connect()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(start, range(2))
    with first, second:
        assert first.endpoint.origin is second.endpoint.origin is Origin.private
        assert first.endpoint.url == second.endpoint.url
        info = read_server_info(store)
        assert info is not None
        assert info.private
        os.kill(info.pid, signal.SIGTERM)
        os.waitpid(info.pid, 0)
        assert first.health().live_runtimes == 0
        again = read_server_info(store)
        assert again is not None
        assert again.pid != info.pid
        assert second.health().live_runtimes == 0
        assert second.endpoint.url == first.endpoint.url == again.url
        with connect() as third:
            assert third.endpoint.origin is Origin.store
        os.kill(again.pid, signal.SIGTERM)
    assert wait_until_gone(own_directories) == []
