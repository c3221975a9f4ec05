"""What happens when the connection breaks, the server moves, or the reader leaves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_sandbox.client import AsyncClient, Client, Endpoint, Origin, discovery
from jupyter_sandbox.errors import (
    EngineNotFound,
    Forbidden,
    OperationTimeout,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
)
from tests.client import samples
from tests.client.faces import TOKEN, URL, Face, Pieces, Script, lines, stream
from tests.client.test_client import CHECKPOINT, CHECKPOINTED, CREATED, RUNTIME
from tests.client.test_runtime import CELLS, EXEC, OK, made, out

INTERRUPT = f"POST runtimes/{samples.RT}/interrupt"
MOVED = Endpoint("http://127.0.0.1:9999", "other", Origin.store)
REFUSED = httpx.ConnectError("connection refused")
DROPPED = httpx.RemoteProtocolError("server disconnected")


class Successors:
    """What discovery finds when it is asked where the server went, and how it was asked."""

    def __init__(self) -> None:
        self.found: list[Endpoint] = []
        self.asked: list[tuple[Endpoint, bool]] = []

    def __call__(self, endpoint: Endpoint, *, gone: bool) -> Endpoint | None:
        self.asked.append((endpoint, gone))
        return self.found.pop(0) if self.found else None


@pytest.fixture
def successors(monkeypatch: pytest.MonkeyPatch) -> Successors:
    made = Successors()
    monkeypatch.setattr(discovery, "successor", made)
    return made


def keys(script: Script) -> list[str | None]:
    return [request.headers.get("Idempotency-Key") for request in script.requests]


async def test_nobody_there_is_said_with_a_remedy(face: Face, successors: Successors) -> None:
    client = face.client(Script(**{"GET runtimes": REFUSED}))
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1:8888.*connection refused.*jupyter sandbox serve"):
        await face(client.runtimes.list())
    assert successors.asked == [(Endpoint(URL, TOKEN), True)]


async def test_a_server_that_moved_is_followed_once(face: Face, successors: Successors) -> None:
    successors.found.append(MOVED)
    script = Script(**{"POST runtimes": [REFUSED, CREATED], "GET runtimes/exp": RUNTIME})
    client = face.client(script)
    await face(client.runtimes.create())
    assert [str(r.url) for r in script.requests] == [f"{URL}/api/v1/runtimes", f"{MOVED.url}/api/v1/runtimes"]
    assert script.requests[1].headers["Authorization"] == "Bearer other"
    await face(client.runtimes.get("exp"))
    assert client.endpoint == MOVED
    assert len(successors.asked) == 1


async def test_it_is_not_followed_twice(face: Face, successors: Successors) -> None:
    successors.found.extend([MOVED, MOVED])
    script = Script(**{"GET runtimes": [REFUSED, REFUSED]})
    with pytest.raises(ServerUnavailable, match="9999"):
        await face(face.client(script).runtimes.list())
    assert len(script.requests) == 2


async def test_a_dropped_connection_is_tried_again_with_the_same_key(face: Face, successors: Successors) -> None:
    script = Script(**{"POST sandboxes/exp/checkpoint": [DROPPED, CHECKPOINTED]})
    client = face.client(script)
    await face(client.checkpoint("exp"))
    first, second = keys(script)
    assert first is not None
    assert first == second
    script.answers["POST sandboxes/exp/checkpoint"] = CHECKPOINTED
    await face(client.checkpoint("exp"))
    assert keys(script)[2] not in {None, first}


async def test_a_delete_is_not_sent_twice(face: Face, successors: Successors) -> None:
    script = Script(**{"DELETE checkpoints/base": [DROPPED]})
    with pytest.raises(ServerUnavailable):
        await face(face.client(script).delete_checkpoint("base"))
    assert len(script.requests) == 1
    successors.found.append(MOVED)
    script.answers["DELETE checkpoints/base"] = [REFUSED, {"checkpoint": CHECKPOINT, "deleted_at_ms": 1}]
    await face(face.client(script).delete_checkpoint("base"))  # refused: nothing was sent


async def test_a_stale_token_is_renewed_once(face: Face, successors: Successors) -> None:
    successors.found.append(MOVED)
    no = httpx.Response(401, json={"code": "Unauthorized", "message": "who are you", "remedy": "", "context": {}})
    script = Script(**{"GET runtimes": [no, {"runtimes": []}, no]})
    client = face.client(script)
    await face(client.runtimes.list())
    assert successors.asked == [(Endpoint(URL, TOKEN), False)]
    with pytest.raises(Unauthorized, match="who are you"):
        await face(client.runtimes.list())


async def test_too_slow_is_a_timeout_and_never_repeated(face: Face, successors: Successors) -> None:
    script = Script(**{"POST runtimes": httpx.ReadTimeout("slow")})
    with pytest.raises(OperationTimeout, match="did not answer in time"):
        await face(face.client(script).runtimes.create())
    assert len(script.requests) == 1


async def test_timeouts_bound_answers_but_not_streams(face: Face) -> None:
    script = Script(**{CELLS: stream(lines(OK))})
    script.answers[f"GET runtimes/{samples.RT}"] = RUNTIME
    runtime = await face(face.client(script, timeout=7.0).runtimes.get(samples.RT))
    await face(runtime.run("x"))
    assert [r.extensions["timeout"]["read"] for r in script.requests] == [7.0, None]


@pytest.mark.parametrize(
    ("response", "error", "words"),
    [
        (httpx.Response(401), Unauthorized, "did not accept the token.*jupyter server list"),
        (httpx.Response(302, headers={"Location": "/login"}), Unauthorized, "did not accept the token"),
        (httpx.Response(403, json={"message": "Forbidden"}), Forbidden, "refused: Forbidden"),
        (httpx.Response(404, html="<h1>404</h1>"), ServerUnavailable, "does not have the jupyter-sandbox API"),
        (httpx.Response(502, text="bad gateway"), ServerUnavailable, "does not answer .HTTP 502"),
        (httpx.Response(413), TooLarge, "HTTP 413"),
        (httpx.Response(404, json={"code": "EngineNotFound", "message": "no q"}), EngineNotFound, "^no q$"),
        (httpx.Response(404, json=["not", "ours"]), ServerUnavailable, "does not have"),
    ],
)
async def test_every_answer_that_is_no_success_becomes_an_error(
    face: Face, response: httpx.Response, error: type[Exception], words: str
) -> None:
    copy = httpx.Response(response.status_code, headers=response.headers, content=response.content)
    with pytest.raises(error, match=words):
        await face(face.client(Script(**{"GET runtimes": copy})).runtimes.list())


async def test_a_stream_is_started_again_only_when_nothing_was_sent(face: Face, successors: Successors) -> None:
    script = Script(**{CELLS: [REFUSED, stream(lines(OK))]})
    runtime = await made(face, script)
    successors.found.append(MOVED)
    assert (await face(runtime.run("x"))).status == "ok"
    script.answers[CELLS] = [DROPPED]
    script.requests.clear()
    with pytest.raises(ServerUnavailable):
        await face(runtime.run("x"))
    assert len(script.requests) == 1


@pytest.mark.parametrize("end", [b"", httpx.ReadError("reset")])
async def test_a_stream_without_an_end_is_an_error(face: Face, end: Any) -> None:
    script = Script(**{CELLS: stream(lines(out("a")), end)})
    seen: list[Any] = []
    runtime = await made(face, script)
    with pytest.raises(ServerUnavailable, match="ended before"):
        await face(runtime.run("x", on_event=seen.append))
    assert len(seen) == 1
    assert script.routes == [CELLS]  # no interrupt: nobody left, the server did


async def test_ctrl_c_while_it_prints_interrupts_the_cell_first() -> None:
    pieces = Pieces([lines(out("a")), KeyboardInterrupt()])
    closed_at_interrupt: list[bool] = []

    def interrupt(_: httpx.Request) -> httpx.Response:
        closed_at_interrupt.append(pieces.closed)
        return httpx.Response(204)

    face = Face("sync")
    script = Script(**{CELLS: lambda _: httpx.Response(200, stream=pieces), INTERRUPT: interrupt})
    runtime = await made(face, script)
    with pytest.raises(KeyboardInterrupt):
        runtime.run("while True: print('a')")
    assert script.routes == [CELLS, INTERRUPT]
    assert closed_at_interrupt == [False]
    assert pieces.closed
    await face.close()


async def test_ctrl_c_before_the_first_output_interrupts_too() -> None:
    face = Face("sync")
    script = Script(**{CELLS: KeyboardInterrupt(), INTERRUPT: httpx.Response(204)})
    runtime = await made(face, script)
    with pytest.raises(KeyboardInterrupt):
        runtime.run("time.sleep(100)")
    assert script.routes == [CELLS, INTERRUPT]
    await face.close()


async def test_ctrl_c_stays_ctrl_c_when_the_server_is_gone(successors: Successors) -> None:
    face = Face("sync")
    script = Script(**{CELLS: KeyboardInterrupt(), INTERRUPT: REFUSED})
    runtime = await made(face, script)
    with pytest.raises(KeyboardInterrupt) as caught:
        runtime.run("x")
    assert "could not be interrupted" in caught.value.__notes__[0]
    await face.close()


async def test_a_cancelled_task_interrupts_its_cell() -> None:
    waiting = asyncio.Event()

    class Silent(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield lines(out("a"))
            waiting.set()
            await asyncio.Event().wait()

    face = Face("async")
    script = Script(**{CELLS: lambda _: httpx.Response(200, stream=Silent()), INTERRUPT: httpx.Response(204)})
    runtime = await made(face, script)
    task = asyncio.create_task(runtime.run("x"))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert script.routes == [CELLS, INTERRUPT]
    await face.close()


async def test_leaving_a_stream_interrupts_unless_the_cell_is_done(face: Face) -> None:
    script = Script(**{CELLS: stream(lines(out("a"), OK)), INTERRUPT: httpx.Response(204)})
    runtime = await made(face, script)
    events = runtime.stream("x")
    await face.next(events)
    await face.close_iterator(events)
    assert script.routes == [CELLS, INTERRUPT]
    script.requests.clear()
    events = runtime.stream("x")
    await face.next(events)
    await face.next(events)
    await face.close_iterator(events)
    assert script.routes == [CELLS]


async def test_a_callback_that_raises_interrupts_the_cell(face: Face) -> None:
    def callback(_: object) -> None:
        raise ZeroDivisionError

    script = Script(**{CELLS: stream(lines(out("a"), OK)), INTERRUPT: httpx.Response(204)})
    runtime = await made(face, script)
    with pytest.raises(ZeroDivisionError):
        await face(runtime.run("x", on_event=callback))
    assert script.routes == [CELLS, INTERRUPT]


async def test_leaving_a_command_closes_its_stream(face: Face) -> None:
    pieces = Pieces([lines({"event": "output", "stream": "stdout", "text": "a"}), b"never read"])
    script = Script(**{EXEC: lambda _: httpx.Response(200, stream=pieces)})
    runtime = await made(face, script)
    events = runtime.exec_stream(["yes"])
    await face.next(events)
    await face.close_iterator(events)
    assert pieces.closed  # which ends the command's process group at the server
    assert script.routes == [EXEC]


def test_the_sync_face_works_in_a_running_loop() -> None:
    async def notebook() -> int:
        with Client(
            Endpoint(URL, TOKEN), transport=httpx.MockTransport(Script(**{"GET runtimes": {"runtimes": []}}))
        ) as c:
            return len(c.runtimes.list())

    assert asyncio.run(notebook()) == 0


@pytest.mark.parametrize(("url", "trusted"), [(URL, False), ("http://[::1]:1", False), ("https://hub.example", True)])
def test_proxies_of_the_environment_are_for_other_hosts(
    url: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:3128")
    with Client(Endpoint(url, TOKEN)) as client:
        http = client._connection._client()
        assert http.trust_env is trusted
        for local in (URL, "http://localhost:1", "http://[::1]:2"):
            assert http._transport_for_url(httpx.URL(local)) is http._transport
        through_proxy = http._transport_for_url(httpx.URL("http://elsewhere.example")) is not http._transport
        assert through_proxy is trusted


def test_a_forked_process_opens_sockets_of_its_own() -> None:
    with Client(Endpoint(URL, TOKEN)) as client:
        connection = client._connection
        before = connection._client()
        assert connection._client() is before
        connection._pid = os.getpid() + 1  # as in a child, whose pid is another
        after = connection._client()
        assert after is not before
        before.close()


def test_closing_twice_and_using_again_is_fine() -> None:
    script = Script(**{"GET runtimes": {"runtimes": []}})
    client = Client(Endpoint(URL, TOKEN), transport=httpx.MockTransport(script))
    client.close()
    client.close()
    assert len(client.runtimes.list()) == 0
    client.close()


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Warnings are errors here: a socket that is left open would fail this test at its end."""
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with AsyncClient(Endpoint(url, TOKEN)) as client:
        assert len(await client.runtimes.list()) == 0
    with Client(Endpoint(url, TOKEN)) as sync_client:
        assert len(await asyncio.to_thread(sync_client.runtimes.list)) == 0
    server.close()
    await server.wait_closed()


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"runtimes": []}'
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
