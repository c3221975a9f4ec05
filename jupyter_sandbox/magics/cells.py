"""A cell or a command in a sandbox: its output as it comes, its failure as the cell's own, Ctrl-C carried over."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from jupyter_sandbox.client import CellResultView, Runtime
from jupyter_sandbox.errors import CellFailed, OperationTimeout
from jupyter_sandbox.magics.boundary import show_as
from jupyter_sandbox.magics.display import Outputs
from jupyter_sandbox.models import CellEvent, CellOutput, ExecEvent, ExecOutput

_PAUSE_S = 0.05  # an output that comes sooner belongs to the one before it; a notebook keeps them as one
_MORE_TIME = "Give it more time with --timeout"


@dataclass(frozen=True)
class _Ended:
    """What the reading thread leaves: the whole cell, or why there is none."""

    outcome: CellResultView | BaseException


def run_cell(runtime: Runtime, code: str, outputs: Outputs, *, timeout: float | None = None) -> None:
    """Run ``code`` in ``runtime`` and show its outputs as they come.

    The first KeyboardInterrupt interrupts the sandbox's cell, whose last outputs are still shown; a second one leaves
    it to itself and returns at once.

    Args:
        runtime: The sandbox.
        code: Python source; the sandbox's own IPython runs it.
        outputs: Where its outputs go.
        timeout: Seconds, then the cell is interrupted.

    Raises:
        CellFailed: The code raised; IPython shows the sandbox's traceback.
        OperationTimeout: It ran longer than ``timeout``.
        KeyboardInterrupt: Ctrl-C, after the sandbox's cell ended.
    """
    events = _start(runtime, code, timeout)
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            event = _next(events, outputs)
            if isinstance(event, _Ended):
                break
            if isinstance(event, CellOutput):
                outputs.show(event.output)
        except KeyboardInterrupt as pressed:
            if interrupt is not None:
                show_as(pressed, [f"KeyboardInterrupt: {runtime.name or runtime.id} may still be running the cell"])
                raise
            interrupt = pressed
            runtime.interrupt()
    _conclude(event.outcome, outputs, interrupt, timeout)


def run_command(
    runtime: Runtime, command: str, outputs: Outputs, *, cwd: str | None = None, timeout: float | None = None
) -> None:
    """Run a line for the shell in ``runtime`` and show its output as it comes; Ctrl-C ends it.

    Raises:
        CommandFailed: Its exit code is not 0.
        OperationTimeout: It ran longer than ``timeout`` seconds.
    """

    def show(event: ExecEvent) -> None:
        if isinstance(event, ExecOutput):
            outputs.show({"output_type": "stream", "name": event.stream, "text": event.text})
            outputs.flush()

    result = runtime.exec(shell=command, cwd=cwd, timeout=timeout, on_event=show)
    if result.timed_out:
        raise OperationTimeout(f"The command was ended after {timeout:g} s", remedy=_MORE_TIME)
    result.raise_for_error()


def _start(runtime: Runtime, code: str, timeout: float | None) -> queue.SimpleQueue[CellEvent | _Ended]:
    """Read the cell's events in a thread of their own: Ctrl-C in this one must not tear their stream."""
    events: queue.SimpleQueue[CellEvent | _Ended] = queue.SimpleQueue()

    def read() -> None:
        try:
            events.put(_Ended(runtime.run(code, timeout=timeout, on_event=events.put)))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            events.put(_Ended(error))

    threading.Thread(target=read, name="sandbox-cell", daemon=True).start()
    return events


def _next(events: queue.SimpleQueue[CellEvent | _Ended], outputs: Outputs) -> CellEvent | _Ended:
    """The next event; while the cell makes none, what it wrote so far is brought to the reader's eyes."""
    try:
        return events.get(timeout=_PAUSE_S)
    except queue.Empty:
        outputs.flush()
        return events.get()


def _conclude(
    outcome: CellResultView | BaseException,
    outputs: Outputs,
    interrupt: KeyboardInterrupt | None,
    timeout: float | None,
) -> None:
    if isinstance(outcome, BaseException):
        outputs.finish(failed=True)
        raise outcome
    outputs.finish(failed=outcome.status != "ok")
    traceback = outcome.error.traceback if outcome.error is not None else ()
    if interrupt is not None:
        show_as(interrupt, traceback or ["KeyboardInterrupt"])
        raise interrupt
    if outcome.timed_out:
        raise OperationTimeout(f"The cell was interrupted after {timeout:g} s", remedy=_MORE_TIME)
    try:
        outcome.raise_for_error()
    except CellFailed as error:
        if traceback:
            show_as(error, traceback)
        raise
