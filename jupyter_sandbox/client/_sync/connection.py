# Derived from jupyter_sandbox/client/_async/connection.py by scripts/derive_sync.py: change that, then run this.
"""Requests and streams to one server, with the second try that is safe, and the way to where the server moved."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, TypeAdapter

from jupyter_sandbox.client import discovery, wire
from jupyter_sandbox.client.endpoint import Endpoint
from jupyter_sandbox.errors import SandboxError

R = TypeVar("R", bound=BaseModel)
E = TypeVar("E")


class Connection:
    """One server, as seen by one client.

    Args:
        endpoint: Where it is.
        timeout: Seconds to wait for an answer; streams wait for ever, since a cell may.
        transport: Takes the place of the network.
    """

    def __init__(
        self, endpoint: Endpoint, *, timeout: float = 300.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.endpoint = endpoint
        self._timeout = httpx.Timeout(timeout, connect=10.0)
        self._transport = transport
        self._http: httpx.Client | None = None
        self._pid = os.getpid()

    def _client(self) -> httpx.Client:
        if self._http is None or self._pid != os.getpid():
            # A runtime may hold a client, and be forked: the sockets are then the parent's, never to be written to.
            self._pid = os.getpid()
            self._http = httpx.Client(
                timeout=self._timeout,
                transport=self._transport,
                trust_env=not self.endpoint.loopback,
                mounts=dict.fromkeys(wire.LOOPBACK_HOSTS),
            )
        return self._http

    def close(self) -> None:
        """Close the sockets; a later request opens new ones."""
        if self._http is not None and self._pid == os.getpid():
            self._http.close()
        self._http = None

    def call(
        self,
        result: type[R],
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        params: dict[str, str] | None = None,
        once: bool = False,
    ) -> R:
        """One request and its result; the arguments and errors are those of `send`."""
        response = self.send(method, path, content=wire.content(body), params=params, once=once)
        return wire.parse(result, response)

    def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
        once: bool = False,
    ) -> httpx.Response:
        """One request and its successful answer, read whole.

        When the connection breaks it is tried a second time, where the server is then.

        Args:
            method: In capitals.
            path: The API's path, from ``/api/v1`` on.
            content: The body.
            content_type: What the body is.
            params: The query.
            once: It must not be carried out twice. A POST then takes an ``Idempotency-Key`` along, the same for both
                tries; any other method is tried again only when nothing of it was sent.

        Raises:
            SandboxError: What the server answered, `ServerUnavailable` when it did not, `OperationTimeout`.
        """
        key = wire.new_key() if once and method == "POST" else None
        for last in (False, True):
            request = self._request(method, path, content=content, content_type=content_type, params=params, key=key)
            try:
                response = self._client().send(request)
            except httpx.TransportError as error:
                repeatable = key is not None or not once or wire.sent_nothing(error)
                if last or not repeatable or not self._try_again(error):
                    raise wire.unreachable(self.endpoint, error) from error
                continue
            if response.status_code == 401 and not last and self._moved(gone=False):
                continue
            break
        wire.check(self.endpoint, response)
        return response

    def events(
        self,
        adapter: TypeAdapter[E],
        path: str,
        body: BaseModel,
        *,
        abandoned: Callable[[], None] | None = None,
    ) -> Generator[E, None, None]:
        """The events of a stream, up to the one whose ``event`` is ``done``.

        Args:
            adapter: Parses one line.
            path: Where to post.
            body: What to post.
            abandoned: Called when the reader leaves early (closes the generator, is interrupted or cancelled).

        Raises:
            SandboxError: What the server answered, what a ``failed`` event carries, or `ServerUnavailable`.
        """
        response: httpx.Response | None = None
        splitter = wire.LineSplitter()
        done = False
        try:
            response = self._open(path, body, wire.JSON_LINES)
            for data in response.iter_bytes():
                for line in splitter.feed(data):
                    event = wire.parse_event(adapter, line)
                    done = getattr(event, "event", None) == "done"
                    yield event
                    if done:
                        return
            raise wire.cut_short(self.endpoint, "the stream")
        except httpx.TransportError as error:
            raise wire.cut_short(self.endpoint, "the stream") from error
        except Exception:
            raise
        except BaseException as error:  # interrupted, cancelled or closed: what was started must not go on unseen
            if abandoned is not None and not done:
                try:
                    abandoned()
                except SandboxError as failure:
                    error.add_note(f"The runtime could not be interrupted: {failure}")
            raise
        finally:
            if response is not None:
                response.close()

    def download(self, path: str, body: BaseModel, accept: str) -> Generator[bytes, None, None]:
        """The bytes of an answer as they come; raises as `events`."""
        response = self._open(path, body, accept)
        try:
            for data in response.iter_bytes():
                yield data
        except httpx.TransportError as error:
            raise wire.cut_short(self.endpoint, "the download") from error
        finally:
            response.close()

    def _open(self, path: str, body: BaseModel, accept: str) -> httpx.Response:
        """An answer whose body is still to be read. Tried again only when nothing was sent."""
        for last in (False, True):
            request = self._request("POST", path, content=wire.content(body), accept=accept, stream=True)
            try:
                response = self._client().send(request, stream=True)
            except httpx.TransportError as error:
                if last or not wire.sent_nothing(error) or not self._moved(gone=True):
                    raise wire.unreachable(self.endpoint, error) from error
                continue
            if response.is_success:
                return response
            try:
                response.read()
            finally:
                response.close()
            if response.status_code == 401 and not last and self._moved(gone=False):
                continue
            break
        wire.check(self.endpoint, response)
        return response

    def _request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
        key: str | None = None,
        accept: str = "application/json",
        stream: bool = False,
    ) -> httpx.Request:
        headers = wire.headers(self.endpoint, accept=accept, key=key)
        if content is not None:
            headers["Content-Type"] = content_type
        extra: dict[str, Any] = {"timeout": httpx.Timeout(None, connect=10.0)} if stream else {}
        return self._client().build_request(
            method, f"{self.endpoint.url}{path}", content=content, params=params, headers=headers, **extra
        )

    def _try_again(self, error: httpx.TransportError) -> bool:
        """Whether a second try makes sense: the server moved, or only an idle connection was dropped."""
        if isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout)):
            return False
        if self._moved(gone=True):
            return True
        return not wire.sent_nothing(error)

    def _moved(self, *, gone: bool) -> bool:
        """Go where the server is now, if it is known to be elsewhere (or to take another token)."""
        successor = discovery.successor(self.endpoint, gone=gone)
        if successor is None:
            return False
        self.endpoint = successor
        return True
