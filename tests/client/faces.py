"""One test for both faces of the client: a scripted server, and calls that are awaited where they must be."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx

from jupyter_sandbox.client import AsyncClient, Client, Endpoint

URL = "http://127.0.0.1:8888/base"
TOKEN = "sesame"
Handler = Callable[[httpx.Request], httpx.Response]


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces; an exception among them is raised at its turn."""

    def __init__(self, pieces: Iterable[bytes | BaseException]) -> None:
        self._pieces = list(pieces)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Script:
    """A server: answers ``METHOD /path`` (below ``/api/v1``) from a table, and keeps every request.

    An answer is a JSON value, a `httpx.Response`, a function of the request, an exception, or a list of those, used up
    one a request.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = dict(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        route = f"{request.method} {request.url.raw_path.decode().partition('?')[0].partition('/api/v1/')[2]}"
        assert route in self.answers, f"unexpected request {route}"
        answer = self.answers[route]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(r.content) if r.content else None for r in self.requests]

    @property
    def routes(self) -> list[str]:
        return [f"{r.method} {r.url.path.partition('/api/v1/')[2]}" for r in self.requests]


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


def stream(*pieces: bytes | BaseException) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(200, stream=Pieces(pieces))


class Face:
    """The sync or the async client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.opened: list[Client | AsyncClient] = []

    def client(self, script: Handler, endpoint: Endpoint | None = None, **options: Any) -> Any:
        kind = Client if self.name == "sync" else AsyncClient
        made = kind(endpoint or Endpoint(URL, TOKEN), transport=httpx.MockTransport(script), **options)
        self.opened.append(made)
        return made

    async def __call__(self, value: Any) -> Any:
        """What a call gave, awaited in the async face."""
        assert inspect.isawaitable(value) == (self.name == "async")
        return await value if self.name == "async" else value

    async def all(self, events: Iterable[Any] | AsyncIterable[Any]) -> list[Any]:
        if isinstance(events, AsyncIterable):
            return [event async for event in events]
        return list(events)

    async def next(self, events: Any) -> Any:
        return await anext(events) if self.name == "async" else next(events)

    async def close_iterator(self, events: Any) -> None:
        if self.name == "async":
            await events.aclose()
        else:
            events.close()

    async def close(self) -> None:
        for client in self.opened:
            await self(client.close())
