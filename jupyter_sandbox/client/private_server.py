"""Starts a server of the user's own on loopback, which ends by itself when nothing lives in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jupyter_sandbox.errors import ServerUnavailable
from jupyter_sandbox.rendezvous import STORE_ENV, TOKEN_ENV, URL_ENV

T = TypeVar("T")

LOG_NAME = "private-server.log"
LOG_LIMIT = 1_000_000  # bytes; a longer log is begun anew
TAIL_LINES = 12
START_TIMEOUT_S = 60.0
POLL_S = 0.05

# What belongs to the process that asks, and would mislead a server that outlives it.
_NOT_INHERITED = (URL_ENV, TOKEN_ENV, "JPY_PARENT_PID", "JPY_SESSION_NAME", "MPLBACKEND")


def serve_command(store: Path) -> list[str]:
    """The command line of a private server."""
    # -P: a file of the user's that happens to be called json.py must not take the place of a module.
    return [sys.executable, "-P", "-m", "jupyter_sandbox", "serve", "--private", "--store", str(store)]


def start_private_server(
    store: Path,
    up: Callable[[], T | None],
    *,
    timeout: float = START_TIMEOUT_S,
    command: Callable[[Path], list[str]] = serve_command,
) -> T:
    """Start a private server for a store and wait until it (or a faster one) is up. Blocks.

    When two clients start one at once, the store's lock decides; the other server exits with 0, and its client finds
    the one that is up.

    Args:
        store: The store's directory.
        up: Looks for the server; None while there is none.
        timeout: Seconds to wait.
        command: Makes the server's command line.

    Returns:
        What ``up`` found.

    Raises:
        ServerUnavailable: It ended or did not come up in time; the message holds the end of its log.
    """
    _reap_ended()
    log = store / LOG_NAME
    try:
        process, offset = _start(command(store), store, log)
    except OSError as error:
        raise ServerUnavailable(
            f"A private server cannot be started in {store}: {error}",
            remedy=f"Make that directory writable, or set {STORE_ENV} to another one",
        ) from error
    deadline = time.monotonic() + timeout
    try:
        while True:
            # Before the look: a server that ended only counts when none was up after its end.
            code = process.poll()
            found = up()
            if found is not None:
                return found
            if code:
                raise _failed(f"A private server could not start (exit code {code})", log, offset)
            if time.monotonic() > deadline:
                process.terminate()
                raise _failed(f"A private server did not answer within {timeout:.0f} s", log, offset)
            time.sleep(POLL_S)
    finally:
        if process.returncode is None:
            process.returncode = 0  # it outlives us on purpose: Popen need not warn
            _started.add(process.pid)


_started: set[int] = set()
"""Servers of this process that ran when we last looked."""


def _reap_ended() -> None:
    for pid in [*_started]:
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid  # somebody else waited for it
        if ended:
            _started.discard(pid)


def _start(command: list[str], store: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        flags |= os.O_TRUNC
    descriptor = os.open(log, flags, 0o600)
    try:
        offset = os.fstat(descriptor).st_size
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=store,
            env={name: value for name, value in os.environ.items() if name not in _NOT_INHERITED},
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return process, offset


def _failed(message: str, log: Path, offset: int) -> ServerUnavailable:
    tail = log.read_bytes()[offset:].decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
    shown = "\n".join(("", *(f"  {line}" for line in tail))) if tail else ""
    return ServerUnavailable(
        f"{message}{shown}", remedy=f"See {log}, or run `jupyter sandbox serve` to watch it start", log=str(log)
    )
