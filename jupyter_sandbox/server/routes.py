"""The HTTP API as one table: method, path, what to call, what it takes and what it answers.

Paths are below ``/api/v1/``. ``{ref}`` is one segment, ``{path}`` the rest; both are percent-decoded once, here, and
handed on as they are: ``..``, absolute paths and NUL are for the agent to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic import Field

from jupyter_sandbox import models
from jupyter_sandbox.errors import InvalidRequest, MethodNotAllowed, NotFound
from jupyter_sandbox.models import Record, Request
from jupyter_sandbox.service import ControlPlane

PREFIX = "api/v1"


class Nothing(Request):
    """The body or query of a request that has none: checked (an unknown field is an error), never handed on."""


class RuntimesQuery(Request):
    """``?all=1``: closed runtimes too."""

    include_closed: bool = Field(default=False, alias="all")


class CheckpointsQuery(Request):
    """``?all=1``: automatic checkpoints too."""

    include_auto: bool = Field(default=False, alias="all")


class LineageQuery(Request):
    """``?all=0``: without closed runtimes."""

    include_closed: bool = Field(default=True, alias="all")


class LatencyQuery(Request):
    """``?since_ms=``: only operations that started then or later."""

    since_ms: models.TimeMs | None = None


class Answer(Enum):
    """How a route answers."""

    record = auto()
    """One JSON object; no content when the call returns None."""
    events = auto()
    """JSON lines as they come (``application/x-ndjson``)."""
    tar = auto()
    """A tar as it comes (``application/x-tar``)."""
    octets = auto()
    """A file's bytes (``application/octet-stream``)."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One operation.

    Attributes:
        call: Called with the control plane, the path's arguments, then the body's request (or bytes); the query's
            fields are keyword arguments.
        body: The model of the JSON body; None: a body is not looked at.
        raw: The body is bytes that go to ``call`` as they are.
    """

    method: str
    path: str
    call: Callable[..., Any]
    body: type[Request] | None = None
    query: type[Request] = Nothing
    answer: Answer = Answer.record
    raw: bool = False

    @property
    def segments(self) -> list[str]:
        """The path, split; ``{ref}`` and ``{path}`` stand for arguments."""
        return self.path.split("/")

    def arguments(self, segments: list[str]) -> list[str] | None:
        """The decoded arguments when a request's raw segments fit this path, else None."""
        own = self.segments
        if own[-1] == "{path}" and len(segments) >= len(own):
            segments = [*segments[: len(own) - 1], "/".join(segments[len(own) - 1 :])]
        if len(segments) != len(own):
            return None
        pairs = list(zip(own, segments, strict=True))
        if any(not theirs if mine == "{ref}" else mine not in ("{path}", theirs) for mine, theirs in pairs):
            return None
        return [_decode(theirs) for mine, theirs in pairs if mine.startswith("{")]


def _decode(raw: str) -> str:
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The path is not UTF-8", field="path") from None


def _post(path: str, call: Callable[..., Any], body: type[Request] = Nothing, answer: Answer = Answer.record) -> Route:
    return Route(method="POST", path=path, call=call, body=body, answer=answer)


def _get(path: str, call: Callable[..., Any], query: type[Request] = Nothing) -> Route:
    return Route(method="GET", path=path, call=call, query=query)


async def _pin(control: ControlPlane, ref: str, request: models.PinRequest) -> Record:
    return await control.pin_checkpoint(ref, request.pinned)


C = ControlPlane
ROUTES: tuple[Route, ...] = (
    # the first seed's operations
    _post("runtimes/checkpoint", C.checkpoint, models.RuntimeCheckpointRequest),
    _post("runtimes/checkpoint/delete-snapshot", C.delete_snapshot, models.RuntimeCheckpointSnapshotDeleteRequest),
    _post("runtimes/checkout", C.checkout, models.RuntimeCheckoutRequest),
    _post("runtimes/pause", C.pause, models.RuntimePauseRequest),
    _post("runtimes/resume", C.resume, models.RuntimeResumeRequest),
    _post("runtimes/close", C.close, models.RuntimeCloseRequest),
    _post("runtimes/fork", C.fork_session, models.SessionForkRequest),
    # runtimes
    _post("runtimes", C.create, models.RuntimeCreateRequest),
    _get("runtimes", C.runtimes, RuntimesQuery),
    _get("runtimes/{ref}", C.runtime),
    Route(method="PATCH", path="runtimes/{ref}", call=C.update, body=models.RuntimeUpdateRequest),
    _post("runtimes/{ref}/attach", C.attach),
    # what runs inside
    _post("runtimes/{ref}/cells", C.run_cell, models.CellRequest, Answer.events),
    _post("runtimes/{ref}/exec", C.exec, models.ExecRequest, Answer.events),
    _post("runtimes/{ref}/interrupt", C.interrupt),
    _post("runtimes/{ref}/complete", C.complete, models.CompleteRequest),
    _post("runtimes/{ref}/search", C.search, models.SearchRequest),
    _post("runtimes/{ref}/export", C.export, models.ExportRequest, Answer.tar),
    _post("runtimes/{ref}/mkdir", C.create_dir_all, models.PathRequest),
    _post("runtimes/{ref}/temp-path", C.temp_path, models.TempPathRequest),
    _post("runtimes/{ref}/stat", C.stat, models.PathRequest),
    Route(method="GET", path="runtimes/{ref}/files/{path}", call=C.read_bytes, answer=Answer.octets),
    Route(method="PUT", path="runtimes/{ref}/files/{path}", call=C.write_bytes, raw=True),
    Route(method="DELETE", path="runtimes/{ref}/files/{path}", call=C.remove),
    # sandboxes: runtimes by name
    _post("sandboxes/{ref}/checkpoint", C.checkpoint_sandbox, models.SandboxCheckpointRequest),
    _post("sandboxes/{ref}/fork", C.fork, models.SandboxForkRequest),
    # checkpoints
    _get("checkpoints", C.checkpoints, CheckpointsQuery),
    _post("checkpoints/prune", C.prune_checkpoints),
    _get("checkpoints/{ref}", C.checkpoint_record),
    Route(method="DELETE", path="checkpoints/{ref}", call=C.delete_checkpoint),
    Route(method="PUT", path="checkpoints/{ref}/pin", call=_pin, body=models.PinRequest),
    # views
    _get("lineage", C.lineage, LineageQuery),
    _get("latency", C.latency, LatencyQuery),
    _get("engines", C.engines),
    _get("health", C.health),
)
del C

NOUNS = tuple(dict.fromkeys(route.segments[0] for route in ROUTES))
"""The first segments: what is ours below ``/api/v1/`` before any other extension."""


def find(method: str, raw_path: str) -> tuple[Route, list[str]]:
    """The route of a request and its decoded arguments.

    Args:
        method: In capitals.
        raw_path: Below ``/api/v1/``, not decoded.

    Raises:
        NotFound: No route has this path.
        MethodNotAllowed: One has, with other methods; ``context["allow"]`` lists them.
        InvalidRequest: An argument is not UTF-8.
    """
    segments = raw_path.split("/")
    fits = [(route, found) for route in ROUTES if (found := route.arguments(segments)) is not None]
    for route, arguments in fits:
        if route.method == method:
            return route, arguments
    if fits:
        allow = sorted({route.method for route, _ in fits})
        raise MethodNotAllowed(f"This path takes {', '.join(allow)}, not {method}", allow=allow)
    raise NotFound(f"There is nothing at /{PREFIX}/{raw_path[:200]}", path=raw_path[:200])
