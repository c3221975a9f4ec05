"""The worker: the single-threaded process that holds a runtime's state and runs its cells.

It listens on ``link`` in its directory; whoever serves it connects, sends requests, and follows the journal for all
that the worker says (`journal`). When the server goes, the worker runs on; a new one connects. The last connection
wins. Nothing here may start a thread: the worker forks.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import inventory
from .errors import AgentError
from .frames import BrokenFrame, Channel, Frame, FrameDecoder, encode_op
from .journal import JournalLost, JournalWriter
from .processes import EXIT_CUT_OFF
from .sockets import listen_in
from .threads import run_times

LINK = "link"
WAKE = b"\0"
"""On the link: there is something in the journal."""
HANDLED = "handled"
"""The event of an op frame: the message ``msg_id`` of the shell channel was handled to its end."""
CANNOT_WRITE = b"!"
"""On the link: there should be an answer in the journal, but it could not be written."""

_WAKE_EVERY_NS = 10_000_000  # output is worth a context switch of the reader at most every 10 ms


class Interpreter(Protocol):
    """What runs cells: `kernel.KernelInterpreter`, or `plain.PlainInterpreter` where ipykernel is missing."""

    rich: bool

    @property
    def execution_count(self) -> int: ...

    @property
    def wants_exit(self) -> bool: ...

    @property
    def own_descriptors(self) -> frozenset[int]: ...

    async def warm_up(self) -> None: ...

    async def shell(self, parts: Sequence[bytes]) -> None: ...

    def settle(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Worker:
    """One runtime's process.

    Attributes:
        directory: Where its link and journal are; empty until it is thawed.
        root: The runtime's working directory.
        environment: The one that the runtime started with; its commands have it, whatever cells did to theirs.
        interpreter: What runs its cells.
    """

    def __init__(self) -> None:
        self.directory = ""
        self.root = ""
        self.environment: dict[str, str] = {}
        # Poll, not epoll: an epoll descriptor is one kernel object for source and fork.
        self.loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        asyncio.set_event_loop(self.loop)
        self._wake_on_signals()
        self._journal: JournalWriter | None = None
        self._listener: socket.socket | None = None
        self._connection: socket.socket | None = None
        self._woken_ns = 0
        self._lost = False  # whether a frame of what is going on could not be written
        self._tasks: set[asyncio.Task[None]] = set()
        self._outside: Callable[[], None] | None = None
        # Of the other threads, at the last checkpoint; None when some of them were the user's own.
        self._run_times: dict[int, int] | None = {}
        self._children: dict[int, int] = {}  # pid of a process of ours -> pidfd
        self.on_checkpoint: Callable[[Worker, dict[str, Any]], dict[str, Any] | None] | None = None
        self.interpreter: Interpreter = _make_interpreter(self)

    # What it says

    def say(self, channel: Channel, parts: Sequence[bytes | memoryview]) -> None:
        """Append a frame to the journal and tell the reader; dropped while the worker has no journal (at start)."""
        if self._journal is None:
            return
        try:
            self._journal.append(channel, parts)
        except JournalLost:
            os._exit(EXIT_CUT_OFF)
        except OSError:
            if channel is Channel.stream:
                raise  # print() tells the user's code that the disk is full
            self._lost = True
            return
        now = time.monotonic_ns()
        if channel is not Channel.stream or now - self._woken_ns > _WAKE_EVERY_NS:
            self._woken_ns = now
            self._send(WAKE)

    def _send(self, sign: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            connection.send(sign, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return  # it has bytes enough to wake up
        except OSError:
            return  # it is gone; the loop notices by itself

    def _answer(self, request: dict[str, Any], value: dict[str, Any]) -> None:
        self._conclude({"id": request.get("id"), **value})

    def _conclude(self, value: dict[str, Any]) -> None:
        """Say the last frame of something, and whether a frame before it could not be written."""
        lost, self._lost = self._lost, False
        self.say(Channel.op, encode_op({**value, "lost": lost})[1:])
        if self._lost:  # not even this one
            self._lost = False
            self._send(CANNOT_WRITE)

    # How it is served

    def attach(self, directory: str) -> None:
        """Become the runtime in ``directory``: journal, standard descriptors, link."""
        self.directory = directory
        self.environment = dict(os.environ)
        self._journal = JournalWriter(directory)
        os.dup2(self._journal.stdout, 1)
        os.dup2(self._journal.stderr, 2)
        self._listener = listen_in(directory, LINK)
        self._listener.setblocking(False)
        self.loop.add_reader(self._listener, self._accept)

    def detach(self) -> None:
        """Let go of everything that belongs to the runtime this process was forked from."""
        selector: selectors.BaseSelector = self.loop._selector  # type: ignore[attr-defined]
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
        for end in (self._connection, self._listener):
            if end is not None:
                end.close()
        if self._journal is not None:
            self._journal.close()
        self._connection = self._listener = self._journal = None
        self._tasks.clear()
        self._run_times = {}
        for descriptor in self._children.values():
            os.close(descriptor)
        self._children.clear()
        self.renew_loop()

    def renew_loop(self) -> None:
        """Give the loop a self-pipe of its own: the old one is shared with the process it was forked from."""
        loop: Any = self.loop
        loop._ssock.close()
        loop._csock.close()
        loop._internal_fds = 0
        loop._make_self_pipe()
        self._wake_on_signals()

    def _wake_on_signals(self) -> None:
        """An interrupt must end the loop's wait, or ``await asyncio.sleep(3600)`` notices it an hour later."""
        loop: Any = self.loop
        signal.set_wakeup_fd(loop._csock.fileno(), warn_on_full_buffer=False)

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        if self._connection is not None:
            self._drop_connection(self._connection)
        connection.setblocking(False)
        self._connection = connection
        decoder = FrameDecoder()
        self.loop.add_reader(connection, self._read, connection, decoder)

    def _drop_connection(self, connection: socket.socket) -> None:
        self.loop.remove_reader(connection)
        connection.close()
        if self._connection is connection:
            self._connection = None

    def _read(self, connection: socket.socket, decoder: FrameDecoder) -> None:
        try:
            data = connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            frames = decoder.feed(data) if data else None
        except BrokenFrame:
            frames = None
        if frames is None:
            self._drop_connection(connection)
            return
        for frame in frames:
            self._dispatch(frame)

    def _dispatch(self, frame: Frame) -> None:
        if frame.channel is Channel.shell:
            task = self.loop.create_task(self._shell(frame.parts))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif frame.channel is Channel.op:
            request = frame.json()
            try:
                answer = self._operate(request)
            except AgentError as error:
                answer = {"error": error.to_dict()}
            if answer is not None:
                self._answer(request, answer)

    async def _shell(self, parts: Sequence[bytes]) -> None:
        """One message of the shell channel; that it was handled is said even when its reply was never sent.

        An interrupt that comes when the user's code has just ended hits the kernel's own code, before its reply.
        """
        try:
            await self.interpreter.shell(parts)
        except KeyboardInterrupt:
            pass  # nothing of the user's runs any more
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            header = json.loads(parts[parts.index(b"<IDS|MSG>") + 2])
            self._conclude({"event": HANDLED, "msg_id": header["msg_id"]})

    def _operate(self, request: dict[str, Any]) -> dict[str, Any] | None:
        match request.get("op"):
            case "hello":
                return {"pid": os.getpid(), "busy": self.busy, "rich": self.interpreter.rich}
            case "quiescent":
                return {"quiescent": self.quiescent()}
            case "environment":
                return {"environment": self.environment}
            case "checkpoint":
                if self.busy:
                    raise AgentError("SessionBusy", "A cell is running", remedy="Wait until it ends")
                # Outside the loop: a fork inside a running callback would run the rest of that callback twice.
                self._outside = lambda: self._checkpoint(request)
                self.loop.stop()
                return None
            case "exit":
                os._exit(0)
            case unknown:
                raise AgentError("InvalidRequest", f"The worker has no operation {unknown!r}")

    def _checkpoint(self, request: dict[str, Any]) -> None:
        if self.on_checkpoint is None:
            raise AgentError("UnsupportedBackend", "This worker takes no checkpoints")
        try:
            answer = self.on_checkpoint(self, request)
        except AgentError as error:
            answer = {"error": error.to_dict()}
        except OSError as error:
            answer = {"error": AgentError("ProviderError", f"The fork failed: {error.strerror}").to_dict()}
        if answer is not None:  # None: this process is a fork of the one that was asked
            self._run_times = run_times() if threading.active_count() == 1 else None
            self._answer(request, answer)

    # What it does

    @property
    def busy(self) -> bool:
        """Whether a message of the shell channel is being handled or waits."""
        return bool(self._tasks)

    def quiescent(self) -> bool:
        """Whether nothing but cells can have changed this process's state since its last checkpoint (or its start)."""
        self.reap_children()
        if not self.busy:
            self.interpreter.settle()
        return (
            not self.busy
            and not asyncio.all_tasks(self.loop)
            and self._run_times is not None
            and inventory.quiescent(self._run_times, own_pids=self.own_children)
        )

    def watch_child(self, pid: int) -> None:
        """Reap a child of ours (not the user's) when it ends."""
        try:
            self._children[pid] = descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # it has ended, and the user ignores SIGCHLD: the kernel reaped it
        self.loop.add_reader(descriptor, self.reap_children)

    def reap_children(self) -> None:
        """Reap those of our own children that ended."""
        for pid in list(self._children):
            try:
                ended, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended = pid  # the user's os.wait() was quicker
            if ended:
                descriptor = self._children.pop(pid)
                self.loop.remove_reader(descriptor)
                os.close(descriptor)

    @property
    def own_children(self) -> frozenset[int]:
        """Child processes that are ours and not the user's."""
        return frozenset(self._children)

    @property
    def own_descriptors(self) -> frozenset[int]:
        """Descriptors that are ours and not the user's."""
        loop: Any = self.loop
        ends = [loop._ssock, loop._csock, self._listener, self._connection]
        numbers = {end.fileno() for end in ends if end is not None} | set(self._children.values())
        if self._journal is not None:
            numbers |= {*self._journal.descriptors, 1, 2}
        return frozenset(numbers) | self.interpreter.own_descriptors

    def serve(self) -> None:
        """Run until the process ends; forks of it come back here as runtimes of their own."""
        while True:
            try:
                self.loop.run_forever()
            except KeyboardInterrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                continue  # it came between two cells
            outside, self._outside = self._outside, None
            if outside is not None:
                outside()
            elif self.interpreter.wants_exit:
                os._exit(0)


def _make_interpreter(worker: Worker) -> Interpreter:
    try:
        from .kernel import KernelInterpreter
    except ImportError:
        from .plain import PlainInterpreter

        return PlainInterpreter(worker.say)
    return KernelInterpreter(worker.say)
