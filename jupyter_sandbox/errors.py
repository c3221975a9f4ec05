"""
The one error tree of this project.

Every error carries a ``code`` (its class name, which is what HTTP sends), a ``message`` (the cause), a ``remedy``
(what the caller can do) and a ``context`` of JSON values; ``http_status`` belongs to the class.

::

    SandboxError                500   something of ours broke
    ├── ExecutionFailed         500   the user's own code failed and the caller asked to hear it as an exception
    │   ├── CellFailed                of ``run(check=True)``; never sent over HTTP, where it is a result
    │   └── CommandFailed             of ``exec(check=True)``
    ├── InvalidRequest          400   also a ValueError; context["field"] names the field
    ├── Unauthorized            401
    ├── Forbidden               403   also a PermissionError
    ├── NotFound                404   also a LookupError
    │   ├── RuntimeNotFound
    │   ├── CheckpointNotFound
    │   ├── EngineNotFound
    │   └── PathNotFound              also a FileNotFoundError
    ├── MethodNotAllowed        405   context["allow"] lists the methods of that path
    ├── Conflict                409
    │   ├── SessionBusy               an operation holds the runtime; context["operation"] names it
    │   ├── NameTaken
    │   ├── WrongStatus               the status machine has no such step
    │   ├── CheckpointPinned
    │   ├── CheckpointInUse
    │   ├── CheckpointLost            its frozen process (or image) is gone
    │   ├── SnapshotDeleted           the record is kept, the provider snapshot was deleted
    │   └── RuntimeFailed             the runtime's process died
    ├── TooLarge                413
    ├── IdempotencyMismatch     422
    ├── QuotaExceeded           429
    ├── UnsupportedBackend      501   the engine lacks this power; context["engines"] lists those that have it
    ├── ProviderError           502   the engine or its provider failed
    ├── ServerUnavailable       503   also a ConnectionError
    │   └── StoreLocked               another server holds the store
    ├── OperationTimeout        504   also a TimeoutError
    └── StorageFull             507   also an OSError
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class SandboxError(Exception):
    """
    Base of every error that this package raises.

    Args:
        message: The cause, one sentence without a final full stop.
        remedy: What the caller can do, one sentence; empty when there is nothing to do.
        context: JSON values that programs may want (ids, field names, the holder of a lock).

    """

    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, remedy: str = "", **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.context: dict[str, Any] = context

    @property
    def code(self) -> str:
        """The PascalCase class name: the value of ``code`` in HTTP answers."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}" if self.remedy else self.message

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of our stack: one readable line, and the cell still fails."""
        return [f"{self.code}: {self}"]

    def to_dict(self) -> dict[str, Any]:
        """The HTTP body: ``{"code", "message", "remedy", "context"}``."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy, "context": self.context}


class InvalidRequest(SandboxError, ValueError):
    http_status = 400


class Unauthorized(SandboxError):
    http_status = 401


class Forbidden(SandboxError, PermissionError):
    http_status = 403


class NotFound(SandboxError, LookupError):
    http_status = 404


class RuntimeNotFound(NotFound):
    pass


class CheckpointNotFound(NotFound):
    pass


class EngineNotFound(NotFound):
    pass


class PathNotFound(NotFound, FileNotFoundError):
    pass


class MethodNotAllowed(SandboxError):
    http_status = 405


class Conflict(SandboxError):
    http_status = 409


class SessionBusy(Conflict):
    pass


class NameTaken(Conflict):
    pass


class WrongStatus(Conflict):
    pass


class CheckpointPinned(Conflict):
    pass


class CheckpointInUse(Conflict):
    pass


class CheckpointLost(Conflict):
    pass


class SnapshotDeleted(Conflict):
    pass


class RuntimeFailed(Conflict):
    pass


class TooLarge(SandboxError):
    http_status = 413


class IdempotencyMismatch(SandboxError):
    http_status = 422


class QuotaExceeded(SandboxError):
    http_status = 429


class UnsupportedBackend(SandboxError):
    http_status = 501


class ProviderError(SandboxError):
    http_status = 502


class ServerUnavailable(SandboxError, ConnectionError):
    http_status = 503


class StoreLocked(ServerUnavailable):
    pass


class OperationTimeout(SandboxError, TimeoutError):
    http_status = 504


class StorageFull(SandboxError, OSError):
    http_status = 507


class ExecutionFailed(SandboxError):
    """
    The user's own code or command failed inside a runtime, and the caller asked to hear it as an exception.

    Args:
        message: The exception in one line, or the exit code.
        remedy: What the caller can do.
        result: The whole result, as without ``check``.
        traceback: The runtime's own traceback, in lines for a terminal; IPython shows it instead of the message.
        context: JSON values.

    """

    def __init__(
        self, message: str, *, remedy: str = "", result: object = None, traceback: Sequence[str] = (), **context: Any
    ) -> None:
        super().__init__(message, remedy=remedy, **context)
        self.result = result
        self.traceback = tuple(traceback)

    def _render_traceback_(self) -> list[str]:
        return list(self.traceback) or super()._render_traceback_()


class CellFailed(ExecutionFailed):
    pass


class CommandFailed(ExecutionFailed):
    pass


def _tree(cls: type[SandboxError]) -> dict[str, type[SandboxError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found |= _tree(child)
    return found


def from_dict(body: Mapping[str, Any], http_status: int = 500) -> SandboxError:
    """
    The error that an HTTP body (or a stored result) describes.

    A code that this version does not know becomes the class of the tree with that HTTP status, else `SandboxError`.
    """
    tree = _tree(SandboxError)
    code = str(body.get("code", ""))
    by_status = (c for c in SandboxError.__subclasses__() if vars(c).get("http_status") == http_status)
    cls = tree.get(code) or next(by_status, SandboxError)
    error = cls(str(body.get("message", code)), remedy=str(body.get("remedy", "")))
    error.context = dict(body.get("context") or {})
    return error
