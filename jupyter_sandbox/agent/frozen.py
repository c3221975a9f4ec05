"""A frozen process: a fork that holds a runtime's state, does nothing, and is forked again to thaw it.

It listens on ``frozen`` in its directory. A request ``thaw`` makes a child that becomes a runtime and answers for
itself; ``drop`` ends the process. It reaps its children, so that how they ended is known.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import Any

from .errors import AgentError
from .frames import BrokenFrame, Frame, FrameDecoder, encode_op
from .openfiles import open_files, unshare
from .processes import own_process_id, reap
from .sockets import listen_in
from .steps import CHECKPOINT, THAW, Checkpoint, Held, Thaw, run
from .worker import Worker

FROZEN = "frozen"
IDENTITY = "process.json"
_REAP_EVERY_MS = 1000


def write_identity(directory: str) -> None:
    """Note which process serves ``directory``: ``{"pid", "start_time"}``."""
    path = os.path.join(directory, IDENTITY)
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(own_process_id()._asdict(), file)
    os.replace(f"{path}.new", path)


def checkpoint(worker: Worker, request: dict[str, Any]) -> dict[str, Any] | None:
    """Fork the worker into a frozen process that serves ``request["directory"]``.

    Returns:
        The answer for the caller; None in a process that was thawed from the fork.

    Raises:
        AgentError: The fork could not be made; the worker goes on as if nothing had been asked.
    """
    _need_standard_descriptors()
    context = Checkpoint(worker)
    run(CHECKPOINT, context)
    ours = worker.own_descriptors
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _freeze_fork(worker, request, context, ours | {writable}, writable)
        return None
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        report = json.loads(pipe.read() or b'{"error": "the fork ended before it was ready"}')
    worker.watch_child(pid)
    if "error" in report:
        raise AgentError("ProviderError", f"The frozen process did not start: {report['error']}")
    return {"not_captured": context.not_captured, "root": worker.root}


def _freeze_fork(
    worker: Worker, request: dict[str, Any], context: Checkpoint, ours: frozenset[int], report: int
) -> None:
    """In the fork: freeze, say so, serve; returns only in a process that was thawed from it."""
    directory = request["directory"]
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        held = Held(worker, worker.root, _current_directory(worker.root), open_files(ours), context.random_state)
        worker.detach()
        _silence()
        unshare(held.files)
        listener = listen_in(directory, FROZEN)
        _say(report, {})
        _leave_the_family(directory)
    except BaseException as error:  # noqa: BLE001 - this fork must never run on as a second source
        _say(report, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    serve(held, listener, request["state_dir"])


def _leave_the_family(directory: str) -> None:
    """Stop being the source's child: its ``os.wait()`` must not meet us. The source has its answer already.

    A second fork before that answer would do it too, and would make the source wait twice as long.
    """
    with suppress(OSError):  # no memory for it: stay where we are, which works as well
        if os.fork():
            os._exit(0)
    write_identity(directory)


def _say(report: int, value: dict[str, str]) -> None:
    try:
        os.write(report, json.dumps(value).encode())
        os.close(report)
    except OSError:
        os._exit(1)  # it was said and closed before; there is nobody to tell


def _need_standard_descriptors() -> None:
    """A cell may have closed 0, 1 or 2; then the next pipe would get that number, and be overwritten."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)


def _current_directory(root: str) -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return root  # it was deleted; the inventory says so


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def serve(held: Held, listener: socket.socket, state_dir: str) -> None:
    """Wait for requests; returns only in a process that was thawed."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    children: set[int] = set()  # pidfds of the runtimes that were thawed here
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in children:
                poll.unregister(descriptor)
                children.discard(descriptor)
                os.close(descriptor)
                reap(state_dir)
                continue
            connection, _ = listener.accept()
            connection.settimeout(10)
            request = _receive(connection) or {}
            match request.get("op"):
                case "drop":
                    os._exit(0)
                case "ping":
                    _send(connection, {})
                case "thaw":
                    pid = _fork(connection)
                    if pid == 0:
                        listener.close()
                        for child in children:
                            os.close(child)
                        _thaw(held, connection, request)
                        return
                    if pid is not None:
                        child = os.pidfd_open(pid)
                        children.add(child)
                        poll.register(child, select.POLLIN)
            connection.close()


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    decoder = FrameDecoder()
    try:
        while data := connection.recv(1 << 18):
            frames: list[Frame] = decoder.feed(data)
            if frames:
                return frames[0].json()
    except (OSError, BrokenFrame, ValueError):
        return None  # not a client of ours, or one that went away: it hears nothing
    return None


def _send(connection: socket.socket, value: dict[str, Any]) -> None:
    try:
        connection.sendall(b"".join(encode_op(value)))
    except OSError:
        return  # the client went away; what was asked is done all the same


def _fork(connection: socket.socket) -> int | None:
    try:
        return os.fork()
    except OSError as error:
        reason = AgentError("ProviderError", f"The fork failed: {error.strerror}", "Free some memory or end processes")
        _send(connection, {"error": reason.to_dict()})
        return None


def _thaw(held: Held, connection: socket.socket, request: dict[str, Any]) -> None:
    """In a fork of the frozen process: become a runtime, and tell who asked."""
    try:
        held.worker.renew_loop()
        run(
            THAW,
            Thaw(
                held=held,
                directory=request["directory"],
                root=request["root"],
                reseed=request["reseed"],
                env=request["env"],
                memory_bytes=request["memory_bytes"],
            ),
        )
        write_identity(request["directory"])
    except BaseException as error:  # noqa: BLE001 - this fork must never run on as a second frozen process
        reason = error if isinstance(error, AgentError) else _unexpected(error)
        _send(connection, {"error": reason.to_dict()})
        os._exit(1)
    _send(connection, {**own_process_id()._asdict(), "environment": held.worker.environment})
    connection.close()


def _unexpected(error: BaseException) -> AgentError:
    return AgentError("ProviderError", f"The runtime did not thaw: {type(error).__name__}: {error}")


def serve_template(directory: str, state_dir: str) -> None:
    """Become a template: a frozen process that never ran anything. Its thawed forks run as workers."""
    worker = Worker()
    worker.on_checkpoint = checkpoint
    worker.loop.run_until_complete(worker.interpreter.warm_up())
    worker.detach()
    gc.collect()
    gc.freeze()  # the forks' collector leaves these pages alone, so they stay shared
    listener = listen_in(directory, FROZEN)
    write_identity(directory)
    serve(Held(worker), listener, state_dir)
    worker.serve()
