"""A real IPython kernel without ZMQ: what a worker holds where ipykernel can be imported.

Everything that ipykernel starts around its kernel (five sockets, an IOPub thread, a heartbeat, a control thread, a
history thread, a parent poller) would not survive a fork. Here each is absent or replaced by something without a
thread; the kernel, its shell, display hook, comms and configuration are ipykernel's own.

Written against ipykernel 7; the names that it overrides are private there, so the range in pyproject.toml is narrow.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from ipykernel.displayhook import ZMQDisplayHook
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.error import StdinNotImplementedError
from jupyter_client.session import Session, new_id
from tornado import ioloop
from traitlets import Any as AnyTrait
from traitlets import Type
from traitlets.config import Config

from .frames import Channel

_THREAD_END_S = 0.1

Say = Callable[[Channel, Sequence[bytes | memoryview]], None]
"""Writes one frame to whoever serves this worker."""


class _Outlet:
    """Stands where ipykernel expects a ZMQ socket or stream: what is sent to it is said."""

    closed = False

    def __init__(self, say: Say, channel: Channel) -> None:
        self._say = say
        self._channel = channel

    def send_multipart(self, parts: Sequence[Any], *_args: object, **_kwargs: object) -> None:
        # Sessions hand over bytes, memoryviews and, for buffers, zmq frames.
        self._say(self._channel, [getattr(part, "buffer", part) for part in parts])

    def flush(self, *_args: object) -> None:
        """Nothing is held back."""

    def close(self, *_args: object) -> None:
        """Nothing to close."""


class _NoIOPubThread(IOPubThread):
    """The sending half of ipykernel's IOPub thread, without the thread."""

    def __init__(self, outlet: _Outlet) -> None:  # deliberately without super().__init__: it opens sockets
        self.socket = outlet
        self.background_socket = outlet
        self.io_loop = None
        self.thread = None

    closed = False

    def schedule(self, f: Callable[[], object]) -> None:
        f()

    def send_multipart(self, parts: Sequence[Any], *_args: object, **_kwargs: object) -> None:
        self.socket.send_multipart(parts)

    def stop(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


class _Stream(OutStream):
    """``sys.stdout`` or ``sys.stderr``: each write is said at once.

    No buffer, so nothing has to be flushed by a timer; threads and forked children of the user may write too.
    """

    def __init__(self, session: Session, outlet: _Outlet, say: Say, name: str, descriptor: int) -> None:
        super().__init__(session, _NoIOPubThread(outlet), name, watchfd=False)
        self._say = say
        self._parts = name.encode()
        # What subprocess.run(stdout=sys.stdout) writes to.
        self._original_stdstream_copy = descriptor

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        if self.pub_thread is None:
            raise ValueError("I/O operation on closed file")
        parent = self.parent_header
        if self._hooks:
            message = self.session.msg("stream", {"name": self.name, "text": string}, parent=parent)
            for hook in self._hooks:
                message = hook(message)
                if message is None:
                    return len(string)
            self.session.send(self.pub_thread, message, ident=self.topic)
        elif string:
            text = string.encode(errors="backslashreplace")
            self._say(Channel.stream, [self._parts, parent.get("msg_id", "").encode(), text])
        return len(string)

    def flush(self) -> None:
        """Nothing is held back."""

    def _flush(self) -> None:
        """Nothing is held back."""

    def _schedule_flush(self) -> None:
        """Nothing is held back."""


class _NoShellThread:
    """ipykernel 7 asks its shell thread which thread runs cells; this one answers and is false: there is none."""

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


class _Kernel(IPythonKernel):
    shell_stream = AnyTrait()
    control_stream = AnyTrait()
    debugpy_stream = AnyTrait(None)
    _supports_kernel_subshells = False

    def raw_input(self, prompt: str = "") -> str:
        if not self._allow_stdin:
            raise StdinNotImplementedError("input() has nobody to ask in a sandbox; set a variable instead")
        return str(super().raw_input(prompt))

    def getpass(self, prompt: str = "", stream: Any = None, **kwargs: Any) -> str:
        if not self._allow_stdin:
            raise StdinNotImplementedError("getpass() has nobody to ask in a sandbox; pass the value by env instead")
        return str(super().getpass(prompt, stream, **kwargs))


_Kernel.__name__ = _Kernel.__qualname__ = IPythonKernel.__name__  # tracebacks and reprs read as they do elsewhere


class _App(IPKernelApp):
    kernel_class = Type(_Kernel)
    say: Say

    def init_connection_file(self) -> None:
        self.session.key = b""  # the link is a 0700 directory: no signatures

    def init_poller(self) -> None:
        """Nobody's child: the worker outlives its server."""

    def init_sockets(self) -> None:
        self.iopub_socket = _Outlet(self.say, Channel.iopub)
        self.stdin_socket = _Outlet(self.say, Channel.stdin)
        self.iopub_thread = _NoIOPubThread(self.iopub_socket)
        self.control_thread = None
        self.shell_channel_thread = _NoShellThread()

    def init_heartbeat(self) -> None:
        """The link's end is the heartbeat."""

    def write_connection_file(self, **_kwargs: object) -> None:
        """There are no ports."""

    def log_connection_info(self) -> None:
        self._ports = {}

    def init_io(self) -> None:
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            stream = _Stream(self.session, self.iopub_socket, self.say, name, descriptor)
            setattr(sys, name, stream)
        self.displayhook = ZMQDisplayHook(self.session, self.iopub_socket)
        sys.displayhook = self.displayhook
        self.patch_io()

    def init_kernel(self) -> None:
        self.kernel = _Kernel.instance(
            parent=self,
            session=self.session,
            control_stream=_Outlet(self.say, Channel.control),
            shell_stream=_Outlet(self.say, Channel.shell),
            iopub_socket=self.iopub_socket,
            iopub_thread=self.iopub_thread,
            stdin_socket=self.stdin_socket,
            shell_channel_thread=self.shell_channel_thread,
            log=self.log,
            profile_dir=self.profile_dir,
        )
        self.kernel._execute_sleep = 0
        self.displayhook.get_execution_count = lambda: self.kernel.execution_count

    def close(self) -> None:
        """Nothing is open."""


class KernelInterpreter:
    """Runs cells in an IPython kernel. One per process.

    Args:
        say: Where frames go.
    """

    rich = True

    def __init__(self, say: Say) -> None:
        _App.say = staticmethod(say)
        config = Config()
        config.HistoryManager.hist_file = ":memory:"  # no thread, no shared file; In and Out are the runtime's own
        self._app = _App.instance(config=config)
        self._app.initialize([])
        self.kernel = self._app.kernel
        self.kernel.io_loop = ioloop.IOLoop.current()
        self.kernel._control_lock = asyncio.Lock()
        self.kernel.shell.exit_now = False
        self._app.log.setLevel(self._app.log_level)  # else each message is formatted for handlers that drop it
        # Log lines belong to the engine's log, not to a cell's output.
        self._log = os.fdopen(os.dup(2), "w", buffering=1)
        for handler in self._app.log.handlers:
            if getattr(handler, "stream", None) is sys.__stderr__:
                handler.stream = self._log

    @property
    def own_descriptors(self) -> frozenset[int]:
        """Descriptors that are ours and not the user's."""
        return frozenset({self._log.fileno()})

    @property
    def execution_count(self) -> int:
        return int(self.kernel.execution_count)

    @property
    def wants_exit(self) -> bool:
        """Whether the user's code called ``exit`` or ``quit``."""
        return bool(self.kernel.shell.exit_now)

    async def shell(self, parts: Sequence[bytes]) -> None:
        """Handle one message of the shell channel; ipykernel runs them one at a time."""
        await self.kernel.shell_main(None, [zmq.Message(part) for part in parts])

    async def warm_up(self) -> None:
        """Import now what the first cell, the first error and the first completion would import; leaves no trace."""
        before = set(self.kernel.shell.user_ns)
        for kind, content in (
            ("execute_request", {"code": "raise Exception", "silent": True}),
            ("execute_request", {"code": "'warm'", "silent": True}),
            ("complete_request", {"code": "str.jo", "cursor_pos": 6}),
        ):
            message = self.kernel.session.msg(kind, content)
            await self.shell(self.kernel.session.serialize(message))
        for name in set(self.kernel.shell.user_ns) - before:
            del self.kernel.shell.user_ns[name]
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            if hasattr(sys, name):
                delattr(sys, name)
        self.kernel.set_parent([], {})

    def settle(self) -> None:
        """End what IPython itself left running: the thread that ``%%bash`` and its like keep for their next use."""
        scripts = self._scripts
        if scripts is None or scripts.bg_processes or scripts.event_loop is None:
            return
        if hasattr(scripts, "stop_event_loop"):  # since IPython 9.18
            thread_count = _native_thread_count()
            scripts.stop_event_loop()
            deadline = time.monotonic() + _THREAD_END_S  # join returns a moment before the kernel's thread is gone
            while _native_thread_count() >= thread_count > 1 and time.monotonic() < deadline:
                time.sleep(0.0002)

    @property
    def _scripts(self) -> Any:
        return self.kernel.shell.magics_manager.registry.get("ScriptMagics")

    def freeze(self) -> None:
        """Leave nothing half-said before a fork."""
        self.kernel.shell.history_manager.writeout_cache()

    def thaw(self) -> None:
        """Become a kernel of its own: ids, and what is tied to a process or an event loop."""
        kernel = self.kernel
        kernel.session.pid = os.getpid()
        kernel.session.session = new_id()
        kernel.ident = str(uuid.uuid4())
        kernel.shell.displayhook.topic = kernel._topic("execute_result")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, OutStream):
                stream._master_pid = os.getpid()
        scripts = self._scripts
        if scripts is not None:
            scripts.event_loop = None  # %%bash waits for ever on the loop of another process
            scripts._event_loop_finalizer = None


def _native_thread_count() -> int:
    return len(os.listdir("/proc/self/task"))
