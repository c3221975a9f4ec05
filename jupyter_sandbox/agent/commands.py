"""Commands beside the cells: each in a session of its own, its output streamed, ended with all its descendants.

Works with `subprocess`, a pidfd and the readers of a selector loop: asyncio's own subprocess support needs a child
watcher, which means threads or process-wide state, depending on the version of Python.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Literal

from .errors import AgentError, shown
from .paths import opened_directory
from .sessions import signal_session

Stream = Literal["stdout", "stderr"]
OnOutput = Callable[[Stream, bytes], Awaitable[None]]

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL after a timeout."""

LINGER_S = 0.2
"""Seconds that output is awaited after the command itself has ended while something it left still holds the pipe."""

_CHUNK = 1 << 16
_POLL_S = 0.02  # only where the kernel has no pidfd
_REAP_S = 5.0  # after SIGKILL; longer takes only what hangs in the kernel

_draining: set[int] = set()
_tidying: set[asyncio.Task[int]] = set()


def draining() -> frozenset[int]:
    """Our descriptors of pipes whose command has ended and which something it left still holds."""
    return frozenset(_draining)


async def run(
    *,
    argv: Sequence[str] | None = None,
    shell: str | None = None,
    root: str,
    cwd: str = ".",
    env: Mapping[str, str],
    stdin: bytes | None = None,
    timeout_s: float | None = None,
    on_output: OnOutput,
    on_start: Callable[[int], None] | None = None,
) -> tuple[int, bool]:
    """
    Run one command to its end.

    Cancelling ends the command and all of its session at once; so does an exception of ``on_output``. A descendant that
    it leaves in the background does not hold the call up and may run on; what that writes later is read and dropped.

    Args:
        argv: The program and its arguments, looked up in the ``PATH`` of ``env``; or
        shell: A line for ``/bin/sh -c``. Exactly one of the two.
        root: The runtime's root directory.
        cwd: Where to run, relative to the root.
        env: The whole environment.
        stdin: Bytes to feed, then end of file; None: ``/dev/null``.
        timeout_s: Seconds, then the whole session gets SIGTERM, and SIGKILL `GRACE_S` later.
        on_output: Awaited for every piece of output, in order for each stream; while it waits, the command's pipe fills
            and the command waits too.
        on_start: Told the session's id, which is the process id of the command (see `sessions`).

    Returns:
        The exit code (negative for a signal, as in `subprocess`), and whether the timeout ended it.

    Raises:
        AgentError: ``InvalidRequest`` (no such program, not executable, bad directory), ``TooLarge`` (argument list),
            ``QuotaExceeded`` (no more processes).

    """
    if (argv is None) == (shell is None) or argv == []:
        raise AgentError("InvalidRequest", "exactly one of argv and shell is needed", "Give one.", field="argv")
    process = _start(argv or ["/bin/sh", "-c", shell or ""], root, cwd, env, feed=stdin is not None)
    if on_start is not None:
        on_start(process.pid)
    ended = asyncio.create_task(_exited(process.pid))
    pipes: tuple[tuple[Stream, IO[bytes] | None], ...] = (("stdout", process.stdout), ("stderr", process.stderr))
    outputs = [_Output(pipe.fileno(), stream, on_output) for stream, pipe in pipes if pipe is not None]
    pumps = {asyncio.create_task(output.pump()) for output in outputs}
    tasks = {ended, *pumps}
    if process.stdin is not None:
        tasks.add(asyncio.create_task(_feed(process.stdin, stdin or b"")))
    timed_out = False
    try:
        if not await _wait(ended, tasks, timeout_s):
            timed_out = True
            signal_session(process.pid, signal.SIGTERM)
            await _wait(ended, tasks, GRACE_S)
            signal_session(process.pid, signal.SIGKILL)
            await _wait(ended, tasks, None)
        await asyncio.wait(pumps, timeout=LINGER_S)
        for output in outputs:
            output.finish()
        await asyncio.gather(*pumps)
    except BaseException:
        signal_session(process.pid, signal.SIGKILL)
        raise
    finally:
        # Goes on when this call is cancelled a second time.
        tidy = asyncio.create_task(_tidy(process, ended, tasks))
        _tidying.add(tidy)
        tidy.add_done_callback(_tidying.discard)
        await asyncio.shield(tidy)
    return tidy.result(), timed_out


def _start(argv: Sequence[str], root: str, cwd: str, env: Mapping[str, str], *, feed: bool) -> subprocess.Popen[bytes]:
    program = shown(argv[0])
    with opened_directory(root, cwd) as directory:
        try:
            process = subprocess.Popen(
                list(argv),
                bufsize=0,
                stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=f"/proc/self/fd/{directory}",  # the child goes there before it closes its descriptors
                env=dict(env),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise AgentError(
                "InvalidRequest",
                f"{program} was not found (neither the program, nor the interpreter that its first line may name)",
                "Look at the PATH of the runtime, or install the program.",
                field="argv",
            ) from error
        except (ValueError, UnicodeError) as error:  # a NUL; "=" in the name of a variable
            raise AgentError(
                "InvalidRequest", f"{program} cannot be started: {error}", "Mend argv or env.", field="argv"
            ) from error
        except OSError as error:
            number = error.errno
            if number == errno.E2BIG:
                code, remedy = "TooLarge", "Pass long input through stdin or a file."
            elif number in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}:
                code, remedy = "QuotaExceeded", "End what runs in the runtime, or raise its limits."
            else:
                code, remedy = "InvalidRequest", "Name an executable file."
            raise AgentError(
                code, f"{program} cannot be started: {os.strerror(number or 0)}", remedy, field="argv"
            ) from error
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
    return process


async def _wait(ended: asyncio.Task[None], tasks: set[asyncio.Task[None]], timeout_s: float | None) -> bool:
    """Wait for the command's end; False when the time is over. An error of a task is raised at once."""
    loop = asyncio.get_running_loop()
    end = None if timeout_s is None else loop.time() + timeout_s
    waiting = {task for task in tasks if not task.done()}
    while not ended.done():
        left = None if end is None else end - loop.time()
        if left is not None and left <= 0:
            return False
        done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return True


async def _tidy(process: subprocess.Popen[bytes], ended: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> int:
    """Reap the command, stop our tasks, and close the pipes or leave them to be drained; returns the exit code."""
    await asyncio.wait({ended}, timeout=_REAP_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if process.stdin is not None:
        process.stdin.close()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            _drain(os.dup(pipe.fileno()))
            pipe.close()
    return _reap(process)


def _reap(process: subprocess.Popen[bytes]) -> int:
    """The exit code. Not by ``poll()``, which says 0 when somebody else in the process waited for the child."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError as error:
        process.returncode = -1  # so that Popen does not wait for a stranger later
        raise AgentError(
            "SandboxError", "how the command ended is unknown: something else in the agent waited for it"
        ) from error
    if not pid:  # it hangs in the kernel, and dies when it leaves it
        return -signal.SIGKILL
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


def _over(pid: int) -> bool:
    """Whether a child has ended; it stays a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _drain(fd: int) -> None:
    """Read a pipe to its end and drop it: a closed one would kill whoever still writes to it."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            if os.read(fd, _CHUNK):
                return
        except BlockingIOError:
            return
        loop.remove_reader(fd)
        _draining.discard(fd)
        os.close(fd)

    _draining.add(fd)
    loop.add_reader(fd, read)
    read()


async def _exited(pid: int) -> None:
    """Wait until a child has ended; it is left as a zombie, so that its id stays ours until we are done with it."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM, errno.EINVAL}:
            raise
        while not _over(pid):  # noqa: ASYNC110 nothing tells us without a pidfd
            await asyncio.sleep(_POLL_S)
        return
    try:
        await _ready(fd)
    finally:
        os.close(fd)


async def _ready(fd: int, future: asyncio.Future[None] | None = None, *, write: bool = False) -> None:
    """Wait until a descriptor can be read (or written), or until somebody resolves the future."""
    loop = asyncio.get_running_loop()
    future = future or loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(fd, _resolve, future)
    try:
        await future
    finally:
        remove(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Output:
    """Hands on what comes out of a pipe."""

    def __init__(self, fd: int, stream: Stream, on_output: OnOutput) -> None:
        self._fd = fd
        self._stream: Stream = stream
        self._on_output = on_output
        self._last = False
        self._waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self) -> None:
        """Hand on only what is in the pipe by now: somebody in the background still holds it."""
        self._last = True
        _resolve(self._waiting)

    async def pump(self) -> None:
        """Read to the end of the pipe, or as far as `finish` allows."""
        while not self._last:
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                self._waiting = asyncio.get_running_loop().create_future()
                await _ready(self._fd, self._waiting)
                continue
            if not data:
                return
            await self._on_output(self._stream, data)
            await asyncio.sleep(0)  # whoever writes without pause leaves the loop to others, too
        # What the command itself wrote is in the pipe, before what others write now.
        (left,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        while left > 0 and (data := os.read(self._fd, min(left, _CHUNK))):
            left -= len(data)
            await self._on_output(self._stream, data)


async def _feed(pipe: IO[bytes], data: bytes) -> None:
    """Write a command's input and close it; a command that does not read to the end is fine."""
    rest = memoryview(data)
    with pipe, suppress(BrokenPipeError):
        while rest:
            try:
                rest = rest[os.write(pipe.fileno(), rest) :]
            except BlockingIOError:
                await _ready(pipe.fileno(), write=True)
