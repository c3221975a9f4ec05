"""The keeper: parent of all processes of one engine's state directory, so that they outlive the server.

It is the subreaper of workers and frozen processes (whatever this machine's init does with orphans), notes how its
children ended, starts templates, and ends when it has no children and nobody is connected. When its directory is
removed it ends all that is left: a deleted store leaves no process behind.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from typing import Any

from .frames import BrokenFrame, FrameDecoder, encode_op
from .frozen import write_identity
from .processes import become_subreaper, reap
from .sockets import listen_in

KEEPER = "keeper"
_LOOK_EVERY_MS = 2000


class Keeper:
    """Serves requests on the socket ``keeper`` in ``directory``: ``spawn`` (argv, env, log) answers ``{"pid"}``."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        # Held open, so that its inode cannot be given to a directory that comes after it.
        self._held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._listener = listen_in(directory, KEEPER)
        self._clients: dict[int, tuple[socket.socket, FrameDecoder]] = {}
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)

    def serve(self) -> None:
        """Run until there is nothing to keep."""
        wake, _ = self._wake_on_child()
        while True:
            for descriptor, _ in self._poll.poll(_LOOK_EVERY_MS):
                if descriptor == wake:
                    os.read(wake, 4096)
                elif descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._read(descriptor)
            if not self._directory_is_there():
                self._end_all()
                return
            if not reap(self._directory) and not self._clients:
                return

    def _wake_on_child(self) -> tuple[int, int]:
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(readable, select.POLLIN)
        return readable, writable

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._clients[connection.fileno()] = (connection, FrameDecoder())
        self._poll.register(connection, select.POLLIN)

    def _read(self, descriptor: int) -> None:
        connection, decoder = self._clients[descriptor]
        try:
            data = connection.recv(1 << 16)
            requests = [frame.json() for frame in decoder.feed(data)] if data else None
            for request in requests or ():
                connection.sendall(b"".join(encode_op(self._operate(request))))
        except (OSError, BrokenFrame, ValueError):
            requests = None  # a client that went away, or none of ours
        if requests is None:
            self._poll.unregister(descriptor)
            del self._clients[descriptor]
            connection.close()

    def _operate(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") != "spawn":
            return {"error": f"the keeper has no operation {request.get('op')!r}"}
        try:
            with open(request["log"], "ab") as log:
                process = subprocess.Popen(
                    request["argv"],
                    env=request["env"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._directory,
                    start_new_session=True,
                )
        except OSError as error:
            return {"error": f"{error.filename}: {error.strerror}"}
        process.returncode = 0  # `reap` waits for it; Popen must not
        return {"pid": process.pid}

    def _directory_is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._directory), os.fstat(self._held))
        except FileNotFoundError:
            return False

    def _end_all(self) -> None:
        while children := _children():
            for pid in children:
                os.kill(pid, signal.SIGKILL)  # our own unreaped children: the pids cannot have been reused
            for pid in children:
                os.waitpid(pid, 0)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def main(directory: str) -> None:
    """Keep ``directory``, as a daemon: returns (in the caller's process, by ending it) when requests are answered."""
    keeper = Keeper(directory)
    if os.fork():
        os._exit(0)
    os.setsid()
    become_subreaper()
    write_identity(directory)
    keeper.serve()
