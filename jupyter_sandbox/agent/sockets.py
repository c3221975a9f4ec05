"""Unix sockets in directories of any depth.

A socket's address holds 107 bytes of path at most. Going through ``/proc/self/fd`` makes every directory short, so
sockets live beside the files of the thing that they serve and vanish with its directory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _short(directory: str, name: str) -> Iterator[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def listen_in(directory: str, name: str, backlog: int = 128) -> socket.socket:
    """A listening unix socket ``name`` in ``directory`` (which guards it by its mode); an old one is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(directory, name) as path:
            if os.path.lexists(path):
                os.unlink(path)
            listener.bind(path)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_in(directory: str, name: str, timeout: float | None = None) -> socket.socket:
    """A blocking connection to the socket ``name`` in ``directory``.

    Raises:
        OSError: Nobody listens there (any more).
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        with _short(directory, name) as path:
            connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection
