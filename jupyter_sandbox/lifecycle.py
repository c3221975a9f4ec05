"""The status machine of a session as one pure table: (status, event) -> status, or the error that refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from jupyter_sandbox.errors import Conflict, RuntimeFailed, SessionBusy, WrongStatus
from jupyter_sandbox.models import SessionLifecycleStatus as Status


class Event(StrEnum):
    """What can happen to a session."""

    start = "start"  # code, a command or a write begins
    finish = "finish"  # the last of these ended
    attach = "attach"  # reattach to the live handle
    checkpoint = "checkpoint"
    checkout = "checkout"  # a child is made from one of its checkpoints
    pause = "pause"
    resume = "resume"
    close = "close"
    fail = "fail"  # its backend died


class Refusal(NamedTuple):
    """Why an event does not fit a status, and what to do."""

    error: type[Conflict]
    message: str
    remedy: str


_BUSY = Refusal(SessionBusy, "is running {operation}", "Wait until it is idle, or interrupt it")
_FAILED = Refusal(RuntimeFailed, "has failed: {reason}", "Check out one of its checkpoints, or close it")
_CLOSED = Refusal(WrongStatus, "is closed", "Check out one of its checkpoints, or create a new runtime")
_PAUSED = Refusal(WrongStatus, "is paused", "Resume it first")
_PAUSED_HEAD = Refusal(WrongStatus, "is paused", "Fork the checkpoint it was paused at, or resume it first")
_NOT_PAUSED = Refusal(WrongStatus, "is not paused", "Only a paused runtime can be resumed")

S, E = Status, Event
TRANSITIONS: Mapping[tuple[Status, Event], Status | Refusal] = MappingProxyType(
    {
        (S.idle, E.start): S.running,
        (S.idle, E.finish): S.idle,
        (S.idle, E.attach): S.idle,
        (S.idle, E.checkpoint): S.idle,
        (S.idle, E.checkout): S.idle,
        (S.idle, E.pause): S.paused,
        (S.idle, E.resume): _NOT_PAUSED,
        (S.idle, E.close): S.closed,
        (S.idle, E.fail): S.failed,
        (S.running, E.start): S.running,  # queued behind what runs
        (S.running, E.finish): S.idle,
        (S.running, E.attach): S.running,
        (S.running, E.checkpoint): _BUSY,
        (S.running, E.checkout): _BUSY,
        (S.running, E.pause): _BUSY,
        (S.running, E.resume): _NOT_PAUSED,
        (S.running, E.close): S.closed,
        (S.running, E.fail): S.failed,
        (S.paused, E.start): _PAUSED,
        (S.paused, E.finish): S.paused,
        (S.paused, E.attach): _PAUSED,
        (S.paused, E.checkpoint): _PAUSED_HEAD,
        (S.paused, E.checkout): S.paused,
        (S.paused, E.pause): _PAUSED,
        (S.paused, E.resume): S.idle,
        (S.paused, E.close): S.closed,
        (S.paused, E.fail): S.failed,  # what it would resume from is gone
        (S.failed, E.start): _FAILED,
        (S.failed, E.finish): S.failed,
        (S.failed, E.attach): _FAILED,
        (S.failed, E.checkpoint): _FAILED,
        (S.failed, E.checkout): S.failed,
        (S.failed, E.pause): _FAILED,
        (S.failed, E.resume): _FAILED,
        (S.failed, E.close): S.closed,
        (S.failed, E.fail): S.failed,
        (S.closed, E.start): _CLOSED,
        (S.closed, E.finish): S.closed,
        (S.closed, E.attach): _CLOSED,
        (S.closed, E.checkpoint): _CLOSED,
        (S.closed, E.checkout): S.closed,
        (S.closed, E.pause): _CLOSED,
        (S.closed, E.resume): _CLOSED,
        (S.closed, E.close): S.closed,
        (S.closed, E.fail): S.closed,
    }
)
del S, E


def advance(
    status: Status, event: Event, *, runtime: str, operation: str | None = None, reason: str | None = None
) -> Status:
    """The status after ``event``.

    Args:
        status: The status before it.
        event: What is about to happen.
        runtime: The runtime's name or id, for the message.
        operation: What holds a running runtime, for the message.
        reason: Why a failed runtime failed, for the message.

    Raises:
        SessionBusy: The runtime is running and ``event`` needs it idle.
        RuntimeFailed: Its backend died.
        WrongStatus: Any other step that the machine does not have.
    """
    step = TRANSITIONS[status, event]
    if isinstance(step, Status):
        return step
    context = {"runtime": runtime, "status": status.value, "operation": operation}
    message = step.message.format(operation=operation or "an operation", reason=reason or "its process ended")
    raise step.error(f"Runtime {runtime} {message}", remedy=step.remedy, **context)
