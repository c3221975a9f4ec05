from __future__ import annotations

from jupyter_sandbox.client import Checkpoint
from jupyter_sandbox.models import CheckpointState
from tests.client import samples


def test_it_says_what_was_captured_and_what_was_not() -> None:
    made = Checkpoint(samples.checkpoint(), timings=samples.TIMINGS)
    assert repr(made).splitlines() == [
        "Checkpoint base of exp · fork · 3.5 ms · 180.4 MB memory · 0.1 MB files",
        "  captured: memory, files",
        "  seen, not captured:",
        "    thread: pump (Join it before the checkpoint)",
    ]
    html = made._repr_mimebundle_()["text/html"]
    assert "<td>Join it before the checkpoint</td>" in html
    assert made._repr_mimebundle_()["text/plain"] == repr(made)


def test_nothing_left_out_is_not_mentioned() -> None:
    text = repr(Checkpoint(samples.checkpoint(not_captured=(), file_bytes=None)))
    assert text.splitlines() == ["Checkpoint base of exp · fork · 180.4 MB memory", "  captured: memory, files"]


def test_what_is_out_of_the_ordinary_is_said() -> None:
    record = samples.checkpoint(
        name=None, memory=False, files=False, pinned=True, state=CheckpointState.lost, state_reason="the host restarted"
    )
    text = repr(Checkpoint(record, reused=True))
    assert text.splitlines()[0] == (
        f"Checkpoint {samples.CP} of exp · fork · lost (the host restarted) · no memory · 0.1 MB files"
        " · nothing had changed: the earlier snapshot serves it · pinned"
    )
    assert "captured: nothing but the record" in text


def test_names_are_escaped() -> None:
    record = samples.checkpoint(
        source=samples.HOSTILE,
        not_captured=[{"kind": "thread", "what": samples.HOSTILE, "remedy": samples.HOSTILE}],
    )
    bundle = Checkpoint(record)._repr_mimebundle_()
    assert "<img" not in bundle["text/html"]
    assert "\x1b" not in bundle["text/plain"]


def test_references_and_the_summary() -> None:
    made = Checkpoint(samples.checkpoint())
    assert (made.ref, made.id, made.name) == ("base", samples.CP, "base")
    assert Checkpoint(samples.checkpoint(name=None)).ref == samples.CP
    assert made.summary().runtime_type == "fork"
