from __future__ import annotations

import asyncio
import json
import os

import httpx
import pytest

from jupyter_sandbox.rendezvous import ServerInfo, read_server_info, write_server_info
from jupyter_sandbox.server import access
from tests.server.conftest import JUPYTER_TOKEN
from tests.toy_engine import ToyEngine


async def test_the_first_server_holds_the_store_and_names_itself(server):
    info = read_server_info(server.store_dir)
    assert info is not None
    assert (info.url, info.token, info.pid) == (server.url, server.store_token, os.getpid())
    assert (server.store_dir / "server.json").stat().st_mode & 0o777 == 0o600
    assert JUPYTER_TOKEN not in (server.store_dir / "server.json").read_text()
    await server.stop()
    assert read_server_info(server.store_dir) is None


async def test_a_second_server_sends_requests_to_the_first(serve):
    first, second = await serve(), await serve()
    assert second.extension.access.control is None
    runtime = await second.create("here")
    listed = (await first.client.get("runtimes")).json()
    assert listed == (await second.client.get("runtimes")).json()
    assert [r["runtime_id"] for r in listed["runtimes"]] == [runtime]
    assert second.engine.calls == []


async def test_what_is_sent_on_arrives_whole_and_so_do_its_answers(serve):
    first, second = await serve(), await serve()
    runtime = await second.create("r")
    data = os.urandom(3_000_000)
    file = f"runtimes/{runtime}/files/d/%2E%2E.bin"
    assert (await second.client.put(file, content=data)).status_code == 204
    answer = await second.client.get(file)
    assert answer.content == data
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert (await first.client.get(file)).content == data
    refused = await second.client.get("runtimes/nobody")
    assert (refused.status_code, refused.json()["code"]) == (404, "RuntimeNotFound")
    assert (await second.client.get(f"runtimes/{runtime}/files/%2E%2E/%2E%2E/x")).json()["code"] == "InvalidRequest"
    assert (await second.client.delete("runtimes")).headers["Allow"] == "GET, POST"
    assert (await second.client.get("runtimes?al=1")).json()["context"]["field"] == "al"
    key = {"Idempotency-Key": "k"}
    one = await second.client.post("runtimes", json={"engine": "toy"}, headers=key)
    two = await first.client.post("runtimes", json={"engine": "toy"}, headers=key)
    assert one.json() == two.json()


async def test_who_asks_is_checked_before_anything_is_sent_on(serve):
    await serve()
    second = await serve()
    assert (await (await second.stranger()).get("runtimes")).status_code == 401


async def test_a_stream_that_is_sent_on_arrives_as_it_comes_and_stops_with_its_caller(serve):
    first, second = await serve(), await serve()
    runtime = await second.create()
    code = "import asyncio\nprint('first')\nawait asyncio.Event().wait()"
    async with second.client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        lines = answer.aiter_lines()
        assert json.loads(await anext(lines))["output"]["text"] == "first\n"
        assert (await first.client.get(f"runtimes/{runtime}")).json()["status"] == "running"
    while (await first.client.get(f"runtimes/{runtime}")).json()["status"] != "idle":
        await asyncio.sleep(0.01)


async def test_the_second_server_takes_over_when_the_first_ends(serve):
    engine = ToyEngine()
    first, second = await serve(engine), await serve(engine)
    runtime = await first.create("survivor")
    await first.stop()
    answer = await second.client.get("runtimes")
    assert [r["runtime_id"] for r in answer.json()["runtimes"]] == [runtime]
    info = read_server_info(second.store_dir)
    assert info is not None
    assert info.url == second.url
    assert second.extension.access.control is not None


async def test_it_takes_over_without_being_asked(serve, monkeypatch):
    monkeypatch.setattr(access, "TAKEOVER_S", 0.02)
    first, second = await serve(), await serve()
    await first.stop()
    while (info := read_server_info(second.store_dir)) is None:  # the first took its own back
        await asyncio.sleep(0.01)
    assert info.url == second.url
    assert second.extension.access.control is not None


async def test_a_name_that_a_dead_server_left_is_no_obstacle(serve, tmp_path):
    dead = ServerInfo(url="http://127.0.0.1:1", token="x", pid=1, started_at_ms=0)
    write_server_info(tmp_path / "store", dead)
    server = await serve()
    assert (await server.client.get("health")).status_code == 200


async def test_a_holder_that_does_not_answer_is_named(serve, monkeypatch):
    monkeypatch.setattr(access, "PATIENCE_S", 0.1)
    first, second = await serve(), await serve()
    gone = ServerInfo(url="http://127.0.0.1:1", token="x", pid=12345, started_at_ms=0)
    write_server_info(first.store_dir, gone)
    answer = await second.client.get("health")
    assert (answer.status_code, answer.json()["code"]) == (503, "ServerUnavailable")
    assert answer.json()["context"]["holder"] == {"url": "http://127.0.0.1:1", "pid": 12345}


async def test_a_request_is_not_sent_on_twice(serve, monkeypatch):
    monkeypatch.setattr(access, "PATIENCE_S", 0.1)
    _, second, third = await serve(), await serve(), await serve()
    write_server_info(second.store_dir, ServerInfo(url=second.url, token=second.store_token, pid=1, started_at_ms=0))
    answer = await third.client.get("health")  # goes to the second, which does not hold the store either
    assert (answer.status_code, answer.json()["code"]) == (503, "ServerUnavailable")


async def test_a_holder_with_another_token_is_told_apart_from_a_caller_with_one(serve):
    first, second = await serve(), await serve()
    wrong = ServerInfo(url=first.url, token="wrong", pid=1, started_at_ms=0)
    write_server_info(first.store_dir, wrong)
    answer = await second.client.get("health")
    assert (answer.status_code, answer.json()["code"]) == (503, "ServerUnavailable")


async def test_a_store_that_cannot_be_opened_is_told_to_every_caller(serve, tmp_path, caplog):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "server.json").mkdir()  # where the name must go
    with pytest.raises(Exception, match="cannot be opened"):
        await serve()


async def test_a_server_that_ends_says_so(serve):
    server = await serve()
    await server.extension.access.aclose()
    answer = await server.client.get("health")
    assert (answer.status_code, answer.json()["code"]) == (503, "ServerUnavailable")


async def test_the_holders_end_breaks_a_stream_with_a_failed_line(serve):
    first, second = await serve(), await serve()
    runtime = await second.create()
    code = "import asyncio\nprint('first')\nawait asyncio.Event().wait()"
    async with second.client.stream("POST", f"runtimes/{runtime}/cells", json={"code": code}) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        await first.app.http_server.close_all_connections()
        failed = json.loads(await anext(lines))
        assert (failed["event"], failed["error"]["code"]) == ("failed", "ServerUnavailable")
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
    assert isinstance(answer, httpx.Response)
