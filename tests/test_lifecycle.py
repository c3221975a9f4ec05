from __future__ import annotations

import itertools

import pytest

from jupyter_sandbox.errors import RuntimeFailed, SessionBusy, WrongStatus
from jupyter_sandbox.lifecycle import TRANSITIONS, Event, Refusal, advance
from jupyter_sandbox.models import SessionLifecycleStatus as Status

# the whole machine once more, as a reader would draw it: rows are statuses, columns events; "-" is a refusal
DRAWN = """
          start    finish   attach   checkpoint  checkout  pause   resume  close   fail
idle      running  idle     idle     idle        idle      paused  -       closed  failed
running   running  idle     running  -           -         -       -       closed  failed
paused    -        paused   -        -           paused    -       idle    closed  failed
failed    -        failed   -        -           failed    -       -       closed  failed
closed    -        closed   -        -           closed    -       -       closed  closed
"""
HEADER, *ROWS = [line.split() for line in DRAWN.strip().splitlines()]
CASES = [(row[0], event, result) for row in ROWS for event, result in zip(HEADER, row[1:], strict=True)]
REFUSED_BY = {"running": SessionBusy, "failed": RuntimeFailed}


def test_every_status_and_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(itertools.product(Status, Event))
    assert len(CASES) == len(TRANSITIONS)


@pytest.mark.parametrize(("status", "event", "result"), CASES)
def test_step(status: str, event: str, result: str) -> None:
    if result != "-":
        assert advance(Status(status), Event(event), runtime="exp") == result
        return
    error = WrongStatus if event == "resume" and status == "running" else REFUSED_BY.get(status, WrongStatus)
    with pytest.raises(error) as caught:
        advance(Status(status), Event(event), runtime="exp", operation="cell", reason="it was killed")
    assert type(caught.value) is error
    assert "exp" in caught.value.message
    assert caught.value.remedy
    assert caught.value.context["status"] == status
    if error is SessionBusy:
        assert "running cell" in caught.value.message
    if error is RuntimeFailed:
        assert "it was killed" in caught.value.message


def test_every_refusal_has_a_remedy() -> None:
    assert all(step.remedy for step in TRANSITIONS.values() if isinstance(step, Refusal))
