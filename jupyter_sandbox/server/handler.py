"""One request of ours: who asks, which route, and its answer. What it means is the service's business."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from jupyter_server.auth import Authorizer, IdentityProvider
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import iostream, web

from jupyter_sandbox.errors import InvalidRequest, SandboxError, TooLarge, Unauthorized
from jupyter_sandbox.models import Record
from jupyter_sandbox.server import forward, http, routes
from jupyter_sandbox.server.routes import Answer, Nothing, Route
from jupyter_sandbox.service import ControlPlane

if TYPE_CHECKING:
    import httpx

    from jupyter_sandbox.server.extension import SandboxExtension

_PIECE = 1 << 20  # bytes written between two chances for other requests


class _Done(Record):
    """What a call without a result gives: answered by 204."""


@web.stream_request_body
class SandboxHandler(ExtensionHandlerMixin, APIHandler):
    """Every route of ours; `routes` says which they are."""

    auth_resource = "sandbox"

    def initialize(self, name: str) -> None:
        super().initialize(name)
        self._route: Route | None = None
        self._arguments: list[str] = []
        self._pieces: list[bytes] = []
        self._received = 0
        self._limit = 0
        self._refusal: SandboxError | web.HTTPError | None = None
        self._cut = False  # whether this answer ends the connection: a body is on its way that nobody reads
        self._pump: asyncio.Task[None] | None = None
        self._gone = False

    @property
    def app(self) -> SandboxExtension:
        """The extension that this handler belongs to."""
        return cast("SandboxExtension", self.extensionapp)

    # -- who asks

    @property
    def _has_store_token(self) -> bool:
        return self.app.store_token.presented_by(self.request.headers.get("Authorization", ""))

    @property
    def identity_provider(self) -> IdentityProvider:
        """The server's own, except for a request with the store's token."""
        return self.app.store_token.identity if self._has_store_token else super().identity_provider

    @property
    def authorizer(self) -> Authorizer:
        """The server's own, except for a request with the store's token."""
        return self.app.store_token.authorizer if self._has_store_token else super().authorizer

    def check_xsrf_cookie(self) -> None:
        """Jupyter's check; without a user the answer is 401, whatever the cookies say."""
        if hasattr(self, "_jupyter_current_user") and self.current_user is None:
            raise _unauthorized()
        super().check_xsrf_cookie()

    def get_login_url(self) -> str:
        """Programs ask here: 401, where Jupyter's pages redirect to the login page."""
        raise _unauthorized()

    # -- the request comes in

    async def prepare(self) -> None:  # type: ignore[override]  # as Jupyter's own APIHandler
        """Sign in, then find the route; the body has not been read yet.

        A request that is refused here is answered once its body (if any) is read and dropped: Tornado cuts the
        connection after an answer before that, and the caller, or its next request, would see that instead.
        """
        most = max(self.app.max_json_bytes, self.app.max_file_bytes)
        self.request.connection.set_max_body_size(most)  # type: ignore[union-attr]
        announced = self._announced_length()
        try:
            await super().prepare()
            if self.request.method == "OPTIONS":
                return
            if self.current_user is None:
                raise _unauthorized()
            self._route, self._arguments = routes.find(str(self.request.method), self._raw_path)
        except (SandboxError, web.HTTPError) as error:
            if self.request.method == "OPTIONS" or announced > most:
                self._cut = True
                raise
            self._refusal = error
            return
        self._limit = self.app.max_file_bytes if self._route.raw else self.app.max_json_bytes
        if announced > most:
            self._cut = True
            raise self._too_large()

    def _announced_length(self) -> float:
        """Bytes of the body by its headers; 1 for a body of unknown length."""
        if "Transfer-Encoding" in self.request.headers:
            return 1
        length = self.request.headers.get("Content-Length", "")
        return float(length) if length.isdecimal() else 0

    @property
    def _raw_path(self) -> str:
        return str(self.request.path).removeprefix(self.app.api_path).removeprefix("/")

    def data_received(self, chunk: bytes) -> None:
        """Keep a piece of the body, up to the limit."""
        self._received += len(chunk)
        if self._received <= self._limit:
            self._pieces.append(chunk)

    def _body(self) -> bytes:
        if self._received > self._limit:
            raise self._too_large()
        return b"".join(self._pieces)

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"The body is larger than {self._limit} bytes",
            remedy="Send less; files have a limit of their own, and both are settings of the server",
            limit_bytes=self._limit,
        )

    # -- the verbs

    @web.authenticated
    @authorized
    async def get(self, *_: str) -> None:
        """Answer a GET."""
        await self._respond()

    @web.authenticated
    @authorized
    async def post(self, *_: str) -> None:
        """Answer a POST."""
        await self._respond()

    @web.authenticated
    @authorized
    async def put(self, *_: str) -> None:
        """Answer a PUT."""
        await self._respond()

    @web.authenticated
    @authorized
    async def patch(self, *_: str) -> None:
        """Answer a PATCH."""
        await self._respond()

    @web.authenticated
    @authorized
    async def delete(self, *_: str) -> None:
        """Answer a DELETE."""
        await self._respond()

    async def _respond(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        assert self._route is not None  # noqa: S101 - prepare found it, or raised
        body = self._body()
        with self.app.activity.request():
            reached = await self.app.access.reach(
                lambda holder: self.app.forwarder.send(
                    holder,
                    str(self.request.method),
                    self._raw_path,
                    self.request.query,
                    self.request.headers,
                    body,
                ),
                forwarded=forward.FORWARDED in self.request.headers,
            )
            if isinstance(reached, ControlPlane):
                await self._serve(self._route, reached, body)
            else:
                await self._relay(reached)

    # -- the answer

    async def _serve(self, route: Route, control: ControlPlane, body: bytes) -> None:
        arguments: list[Any] = [*self._arguments]
        if route.raw:
            arguments.append(body)
        elif route.body is not None:
            request = http.parse_body(route.body, body)
            if route.body is not Nothing:
                arguments.append(request)
        query = http.parse_query(route.query, self.request.query)
        options = {name: getattr(query, name) for name in type(query).model_fields}

        async def record() -> Record:
            return await route.call(control, *arguments, **options) or _Done()

        key = self.request.headers.get("Idempotency-Key")
        match route.answer:
            case Answer.record if key is not None and route.method in http.RETRIED_WITH_KEY:
                mark = http.fingerprint(route.method, self._raw_path, body)
                await self._send_record(await control.idempotent(http.idempotency_key(key), mark, record))
            case Answer.events | Answer.tar if key is not None:
                raise InvalidRequest(
                    "Idempotency-Key is for requests that are answered by one record, not by a stream",
                    remedy="Leave it out",
                    field="Idempotency-Key",
                )
            case Answer.record:
                await self._send_record(await record())
            case Answer.octets:
                await self._send(await route.call(control, *arguments, **options), "application/octet-stream")
            case Answer.events:
                self.set_header("Content-Type", "application/x-ndjson")
                await self._stream(http.json_lines(route.call(control, *arguments, **options), self.log))
            case Answer.tar:
                self.set_header("Content-Type", "application/x-tar")
                await self._stream(route.call(control, *arguments, **options))

    async def _relay(self, response: httpx.Response) -> None:
        self.set_status(response.status_code)
        for name, value in forward.headers_back(response).items():
            self.set_header(name, value)
        if response.status_code == 204:
            await response.aclose()
            await self.finish()
        else:
            await self._stream(forward.pieces(response))

    async def _send_record(self, record: Record | dict[str, Any]) -> None:
        body = record.model_dump_json().encode() if isinstance(record, Record) else json.dumps(record).encode()
        if body == b"{}":
            self.set_status(204)
            await self.finish()
        else:
            await self._send(body, "application/json")

    async def _send(self, body: bytes, content_type: str) -> None:
        self.set_header("Content-Type", content_type)
        self.set_header("Content-Length", len(body))
        for start in range(0, len(body), _PIECE):
            self.write(body[start : start + _PIECE])
            await self.flush()
        await self.finish(set_content_type=content_type)

    async def _stream(self, pieces: AsyncIterator[bytes]) -> None:
        """Write pieces as they come; the caller's going away closes their source, which stops what makes them."""
        content_type = self._headers["Content-Type"]
        self._pump = asyncio.create_task(self._copy(pieces))
        try:
            await self._pump
        except (asyncio.CancelledError, iostream.StreamClosedError):
            if not (self._gone or self.request.connection.stream.closed()):  # type: ignore[union-attr]
                raise
        except Exception:
            if not self._headers_written:
                raise
            # A chunked body without its end is how HTTP says that it is not whole.
            self.log.exception("The answer to %s %s broke", self.request.method, self.request.path)
            self.detach().close()
        else:
            await self.finish(set_content_type=content_type)

    async def _copy(self, pieces: AsyncIterator[bytes]) -> None:
        async with aclosing(cast("AsyncGenerator[bytes]", pieces)):
            async for piece in pieces:
                self.write(piece)
                await self.flush()

    def on_connection_close(self) -> None:
        """The caller is gone: stop the stream that it was reading."""
        super().on_connection_close()
        self._gone = True
        if self._pump is not None:
            self._pump.cancel()

    def compute_etag(self) -> None:
        """None: hashing large answers would hold up the loop, and nothing of ours is cached."""

    # -- errors

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Our own errors are answers; others are logged whole. The query is left out: it may hold a token."""
        what = (self.request.method, self.request.path)
        if isinstance(value, SandboxError | web.HTTPError):
            log = self.log.warning if http.to_error(value, 500).http_status >= 500 else self.log.debug
            log("%s %s: %s", *what, value)
        else:
            self.log.error("%s %s broke", *what, exc_info=(typ, value, tb) if typ and value else True)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Every error is ``{"code", "message", "remedy", "context"}``."""
        exception = self._refusal or (kwargs.get("exc_info") or (None, None, None))[1]
        if isinstance(exception, web.HTTPError):
            status_code = exception.status_code
        error = http.to_error(exception, status_code)
        self.set_status(error.http_status if isinstance(exception, SandboxError) else status_code)
        if self._cut:
            self.set_header("Connection", "close")
        if isinstance(error, Unauthorized):
            self.set_header("WWW-Authenticate", "Bearer")
        if "allow" in error.context:
            self.set_header("Allow", ", ".join(error.context["allow"]))
        self.finish(http.error_body(error))


def _unauthorized() -> Unauthorized:
    return Unauthorized("A valid token is needed", remedy="Send it as Authorization: Bearer TOKEN")
