"""Bytes to requests, errors to bodies: what every route of ours has in common with HTTP."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http.client import responses
from logging import Logger
from typing import TypeVar, cast
from urllib.parse import parse_qsl

from pydantic import ValidationError
from tornado.web import HTTPError

from jupyter_sandbox.errors import InvalidRequest, SandboxError, from_dict
from jupyter_sandbox.models import Failed, Record, Request

RequestT = TypeVar("RequestT", bound=Request)

RETRIED_WITH_KEY = frozenset({"POST", "PATCH", "DELETE"})
"""The methods that heed ``Idempotency-Key``; the others can be repeated as they are."""

_JUPYTERS_OWN = frozenset({"token", "_xsrf", "no_track_activity"})  # query parameters that any Jupyter route takes
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def parse_body(model: type[RequestT], body: bytes) -> RequestT:
    """The request in a JSON body; no body means ``{}``.

    Raises:
        InvalidRequest: Not JSON, not an object, an unknown field or a bad value; ``context["field"]`` names it.
    """
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise _invalid(model, error, whole="body") from None


def parse_query(model: type[RequestT], query: str) -> RequestT:
    """The request in a query string, without the parameters that belong to Jupyter itself.

    Raises:
        InvalidRequest: An unknown parameter or a bad value; ``context["field"]`` names it.
    """
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    try:
        return model.model_validate({name: value for name, value in pairs if name not in _JUPYTERS_OWN})
    except ValidationError as error:
        raise _invalid(model, error, whole="query") from None


def _invalid(model: type[Request], error: ValidationError, *, whole: str) -> InvalidRequest:
    # The value itself is left out: it may be large, or a secret.
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    found = [
        {
            "field": ".".join(map(str, problem["loc"])) or whole,
            "message": problem["msg"].removeprefix("Value error, "),
            "type": problem["type"],
        }
        for problem in problems[:20]
    ]
    first = found[0]
    remedy = ""
    message = f"{first['field']}: {first['message']}"
    if first["type"] == "extra_forbidden":
        message = f"There is no field {first['field']!r}"
        if "." not in first["field"]:
            known = sorted(field.alias or name for name, field in model.model_fields.items())
            remedy = f"The fields are {', '.join(known)}" if known else "Nothing is expected here"
    return InvalidRequest(message, remedy=remedy, field=first["field"], problems=found)


def idempotency_key(header: str) -> str:
    """A checked ``Idempotency-Key``.

    Raises:
        InvalidRequest: It is empty, longer than 255 characters, or not printable ASCII.
    """
    if not _KEY.fullmatch(header):
        raise InvalidRequest(
            "Idempotency-Key must be 1 to 255 printable ASCII characters without spaces", field="Idempotency-Key"
        )
    return header


def fingerprint(method: str, path: str, body: bytes) -> str:
    """What two requests with one ``Idempotency-Key`` must have in common; ``path`` is without the base URL."""
    digest = hashlib.sha256()
    for part in (method.encode(), path.encode(), body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def to_error(exception: BaseException | None, status: int) -> SandboxError:
    """The error of ours that tells a caller about any exception, without what it must not see."""
    if isinstance(exception, SandboxError):
        return exception
    if isinstance(exception, HTTPError):
        message = (exception.log_message or "") % exception.args if exception.args else exception.log_message
        return from_dict({"message": message or responses.get(status, "Refused")}, status)
    return SandboxError("Something inside the server broke", remedy="The server's log tells what; please report it")


def error_body(error: SandboxError) -> bytes:
    """``{"code", "message", "remedy", "context"}``."""
    return json.dumps(error.to_dict(), default=str).encode()


def failed_line(error: SandboxError) -> bytes:
    """The last JSON line of a stream that broke after it had begun."""
    body = json.loads(error_body(error))
    return Failed(error=body, http_status=error.http_status).model_dump_json().encode() + b"\n"


async def json_lines(events: AsyncIterator[Record], log: Logger) -> AsyncGenerator[bytes]:
    """Events as JSON lines, one piece each.

    An error before the first event is raised: it can still become the answer's status. A later one is the last line.
    Closing this closes ``events``.
    """
    begun = False
    async with aclosing(cast("AsyncGenerator[Record]", events)):
        try:
            async for event in events:
                begun = True
                yield event.model_dump_json().encode() + b"\n"
        except SandboxError as error:
            if not begun:
                raise
            yield failed_line(error)
        except Exception as exception:
            if not begun:
                raise
            log.exception("A stream broke")
            yield failed_line(to_error(exception, 500))
