"""The agent's one exception, and how an `OSError` becomes it.

The agent runs where this package is not installed, so it cannot use the package's error tree; it names the classes of
that tree, and the host raises them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CODES = {
    "PathNotFound": (errno.ENOENT,),
    "Forbidden": (errno.EACCES, errno.EPERM, errno.EROFS),
    "StorageFull": (errno.ENOSPC, errno.EDQUOT),
    "TooLarge": (errno.EFBIG, errno.E2BIG),
    "QuotaExceeded": (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
    "Conflict": (errno.EBUSY, errno.ETXTBSY, errno.ENOTEMPTY),
    "InvalidRequest": (
        errno.EINVAL,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOTDIR,
        errno.ENXIO,
        errno.EOPNOTSUPP,
        errno.EXDEV,
    ),
}
_CODE_OF = {number: code for code, numbers in _CODES.items() for number in numbers}

_CAUSES = {
    errno.EXDEV: "leads out of the runtime's directory",
    errno.ELOOP: "goes through too many symbolic links, or through one of /proc",
    errno.EISDIR: "is a directory",
    errno.ENOTDIR: "goes through something that is not a directory",
    errno.EEXIST: "exists already and is not a directory",
    errno.ENOENT: "does not exist",
    errno.ENAMETOOLONG: "is too long, or has too long a name in it",
    errno.EACCES: "is not permitted to the runtime's user",
    errno.EPERM: "is not permitted to the runtime's user",
    errno.ENOSPC: "does not fit: the disk is full",
    errno.EDQUOT: "does not fit: the disk quota is used up",
    errno.ENXIO: "is a socket or a device",
}

_REMEDIES = {
    "PathNotFound": "Paths are relative to the runtime's working directory.",
    "Forbidden": "Look at the owner and the mode of the file and of its directory.",
    "StorageFull": "Free some disk space and try again.",
    "QuotaExceeded": "End what the runtime no longer needs and try again.",
    "Conflict": "Something else uses it; try again when that has ended.",
    "InvalidRequest": "Give a path below the runtime's working directory.",
}


class AgentError(Exception):
    """
    An error that the host raises again as one of its own.

    Args:
        code: The class of the package's error tree, such as ``PathNotFound``.
        message: The cause, one sentence without a final full stop.
        remedy: What the caller can do, one sentence.
        context: JSON values that programs may want.

    """

    def __init__(self, code: str, message: str, remedy: str = "", **context: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.context: dict[str, Any] = context

    def to_dict(self) -> dict[str, Any]:
        """The body that the host makes its error from: ``{"code", "message", "remedy", "context"}``."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy, "context": self.context}


def shown(path: str) -> str:
    """A path as a message can hold it: quoted, of bounded length, always encodable."""
    text = path if len(path) <= 200 else f"{path[:120]}…{path[-60:]}"
    return repr(os.fsencode(text).decode("utf-8", "replace")) if text.isprintable() else ascii(text)


def from_os_error(error: OSError, path: str) -> AgentError:
    """What an `OSError` means for the path that the user wrote."""
    number = error.errno or 0
    code = _CODE_OF.get(number, "SandboxError")
    cause = _CAUSES.get(number) or f"failed: {error.strerror or error}"
    context: dict[str, Any] = {"errno": errno.errorcode.get(number, str(number))}
    if code == "InvalidRequest":
        context["field"] = "path"
    return AgentError(code, f"{shown(path)} {cause}", _REMEDIES.get(code, ""), **context)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Turn the `OSError` of what runs inside into an `AgentError` about ``path``."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error
