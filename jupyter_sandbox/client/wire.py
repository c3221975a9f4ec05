"""The HTTP API as pure functions: URLs, request bodies, answers, errors, JSON lines. No I/O, so both faces share it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from jupyter_sandbox.client.endpoint import Endpoint
from jupyter_sandbox.errors import (
    Forbidden,
    InvalidRequest,
    OperationTimeout,
    SandboxError,
    ServerUnavailable,
    Unauthorized,
    from_dict,
)
from jupyter_sandbox.models import Failed

R = TypeVar("R", bound=BaseModel)
E = TypeVar("E")

API = "/api/v1"
JSON_LINES = "application/x-ndjson"
TAR = "application/x-tar"

# httpx sends these past any proxy of the environment, whatever the client was first connected to.
LOOPBACK_HOSTS = ("all://127.0.0.1", "all://localhost", "all://[::1]")


def path(*segments: str) -> str:
    """An API path; each segment is quoted whole, so that a name can never reach another route.

    Raises:
        InvalidRequest: A segment is empty: somebody's name or id is.
    """
    if not all(segments):
        raise InvalidRequest("A name or id is empty", remedy="Name a runtime or a checkpoint")
    return "/".join((API, *(_quote(part) for part in segments)))


def file_path(reference: str, name: str) -> str:
    """The API path of a file inside a runtime; its slashes stay, every part between them is quoted.

    Raises:
        InvalidRequest: The path is empty.
    """
    if not name.strip("/"):
        raise InvalidRequest("A file's path is empty", remedy="Name a file below the working directory", field="path")
    return f"{path('runtimes', reference, 'files')}/{'/'.join(_quote(part) for part in name.split('/'))}"


def _quote(segment: str) -> str:
    # URL libraries resolve "." and ".." before sending: these must reach the server, which refuses them by name.
    return segment.replace(".", "%2E") if segment in {".", ".."} else quote(segment, safe="")


def build(model: type[R], **fields: Any) -> R:
    """A request, validated here, before anything is sent.

    Raises:
        InvalidRequest: A field does not fit; ``context["field"]`` names it.
    """
    try:
        return model(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = str(first["msg"]).removeprefix("Value error, ")
        message = f"{where}: {what}" if where else what
        raise InvalidRequest(message, remedy="Correct the field", field=where) from None


def headers(endpoint: Endpoint, *, accept: str = "application/json", key: str | None = None) -> dict[str, str]:
    """The headers of one request; ``key`` is the same for every try of one logical call."""
    found = {"Accept": accept}
    if endpoint.token:
        found["Authorization"] = f"Bearer {endpoint.token}"
    if key is not None:
        found["Idempotency-Key"] = key
    return found


def new_key() -> str:
    """A fresh Idempotency-Key."""
    return secrets.token_hex(16)


def content(body: BaseModel | None) -> bytes | None:
    """A request's JSON; what was left at its default is not sent, so that older servers accept it."""
    return None if body is None else body.model_dump_json(exclude_defaults=True).encode()


def parse(model: type[R], response: httpx.Response) -> R:
    """The result in a successful answer.

    Raises:
        SandboxError: The answer is not one of this version's.
    """
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise _not_understood(str(response.url), error) from error


def parse_event(adapter: TypeAdapter[E], line: bytes) -> E:
    """One line of a stream.

    Raises:
        SandboxError: The line is a `Failed` event (then the error it carries), or is not understood.
    """
    try:
        event = adapter.validate_json(line)
    except ValidationError as error:
        raise _not_understood("a stream", error) from error
    if isinstance(event, Failed):
        raise from_dict(event.error, event.http_status)
    return event


def _not_understood(where: str, error: ValidationError) -> SandboxError:
    return SandboxError(
        f"The answer of {where} does not fit this version: {error.errors()[0]['msg']}",
        remedy="Install the same version of jupyter-sandbox for server and client",
    )


def check(endpoint: Endpoint, response: httpx.Response) -> None:
    """Raise what an unsuccessful answer (read whole) means: an error of ours, or words about who else answered."""
    if response.is_success:
        return
    body = _json_object(response)
    if "code" in body:
        raise from_dict(body, response.status_code)
    status = response.status_code
    said = str(body.get("message") or response.reason_phrase or "no reason given")
    if response.is_redirect or status == 401:
        raise Unauthorized(
            f"The server at {endpoint.url} did not accept the token",
            remedy="Pass its token (token=…, --token, JUPYTER_SANDBOX_TOKEN); `jupyter server list` shows it",
        )
    if status == 403:
        raise Forbidden(f"The server at {endpoint.url} refused: {said}", remedy="Pass a token that has this right")
    if status == 404:
        raise ServerUnavailable(
            f"The server at {endpoint.url} does not have the jupyter-sandbox API",
            remedy="Install jupyter-sandbox where that server runs and restart it, or correct the URL",
        )
    if status in {502, 503, 504}:
        raise ServerUnavailable(
            f"The server behind {endpoint.url} does not answer (HTTP {status}: {said})", remedy="Start it and try again"
        )
    raise from_dict({"message": f"The server at {endpoint.url} answered HTTP {status}: {said}"}, status)


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:  # a page of HTML from something in between
        return {}
    return body if isinstance(body, dict) else {}


def unreachable(endpoint: Endpoint, error: httpx.TransportError) -> SandboxError:
    """The error for a request that got no answer."""
    if isinstance(error, (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout)):
        return OperationTimeout(
            f"The server at {endpoint.url} did not answer in time",
            remedy="The operation may still finish: look at the runtime, or connect with a longer timeout",
        )
    cause = str(error) or type(error).__name__
    return ServerUnavailable(
        f"The server at {endpoint.url} cannot be reached ({cause})",
        remedy="Start it (`jupyter lab`, or `jupyter sandbox serve`), or call connect() again to find or start one",
        url=endpoint.url,
    )


def sent_nothing(error: httpx.TransportError) -> bool:
    """Whether a request failed before anything of it reached a server."""
    return isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def cut_short(endpoint: Endpoint, what: str) -> ServerUnavailable:
    """The error for a stream that ended before its last event."""
    return ServerUnavailable(
        f"The connection to {endpoint.url} ended before {what} did",
        remedy="Look at the runtime's status: what was started may go on",
        url=endpoint.url,
    )


class LineSplitter:
    r"""Bytes as they come -> whole lines, split at ``\n`` only.

    `httpx.Response.iter_lines` also splits at U+2028 and its like, which JSON strings hold unescaped.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that ``data`` completes, without their newline; empty ones are left out."""
        *whole, rest = data.split(b"\n")
        for line in whole:
            joined = b"".join((*self._parts, line))
            self._parts.clear()
            if joined.strip():
                yield joined
        if rest:
            self._parts.append(rest)
