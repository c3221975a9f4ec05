from __future__ import annotations

import sys

import pytest
from IPython.utils.capture import capture_output

from jupyter_sandbox.magics.display import Outputs


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["first", "second"]}


@pytest.fixture
def outputs(bare_shell):
    return Outputs(bare_shell)


def test_streams_go_where_they_came_from(outputs):
    with capture_output() as seen:
        outputs.show(stream("out"))
        outputs.show(stream("err", "stderr"))
        outputs.finish(failed=False)
    assert (seen.stdout, seen.stderr) == ("out", "err")


def test_a_change_of_stream_flushes_the_other(outputs, monkeypatch):
    order = []

    class Buffered:
        def __init__(self, name):
            self.name, self.text = name, ""

        def write(self, text):
            self.text += text

        def flush(self):
            order.append((self.name, self.text))
            self.text = ""

    monkeypatch.setattr(sys, "stdout", Buffered("stdout"))
    monkeypatch.setattr(sys, "stderr", Buffered("stderr"))
    outputs.show(stream("a"))
    outputs.show(stream("b"))
    outputs.show(stream("c", "stderr"))
    outputs.show(stream("d"))
    outputs.finish(failed=False)
    assert order == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]


@pytest.mark.parametrize("kind", ["display_data", "execute_result"])
def test_rich_data_is_displayed_whole(outputs, kind):
    data = {"text/plain": "x", "text/html": "<b>x</b>", "image/png": "iVBO"}
    with capture_output() as seen:
        outputs.show({"output_type": kind, "data": data, "metadata": {"isolated": True}, "execution_count": 3})
    (shown,) = seen.outputs
    assert (shown.data, shown.metadata) == (data, {"isolated": True})


def test_an_update_keeps_its_display_id(outputs):
    with capture_output() as seen:
        for kind in ("display_data", "update_display_data"):
            outputs.show(
                {"output_type": kind, "data": {"text/plain": kind}, "metadata": {}, "transient": {"display_id": "7"}}
            )
    assert [shown.transient for shown in seen.outputs] == [{"display_id": "7"}] * 2
    assert [shown.update for shown in seen.outputs] == [False, True]


def test_clear_output_waits_when_told_to(outputs, bare_shell, monkeypatch):
    calls = []
    monkeypatch.setattr(bare_shell.display_pub, "clear_output", lambda *, wait: calls.append(wait))
    outputs.show({"output_type": "clear_output", "wait": True})
    outputs.show({"output_type": "clear_output"})
    assert calls == [True, False]


def test_an_error_that_fails_the_cell_is_left_to_the_cell(outputs):
    with capture_output() as seen:
        outputs.show(ERROR)
        outputs.finish(failed=True)
    assert seen.stderr == ""


@pytest.mark.parametrize("then", [None, stream("go on")])
def test_an_error_that_was_only_shown_is_shown(outputs, then):
    with capture_output() as seen:
        outputs.show(ERROR)
        if then is not None:
            outputs.show(then)
        outputs.finish(failed=False)
    assert seen.stderr == "first\nsecond\n"


def test_quiet_shows_nothing(bare_shell):
    outputs = Outputs(bare_shell, quiet=True)
    with capture_output() as seen:
        outputs.show(stream("out"))
        outputs.show({"output_type": "display_data", "data": {"text/plain": "x"}, "metadata": {}})
        outputs.show(ERROR)
        outputs.finish(failed=False)
    assert (seen.stdout, seen.stderr, seen.outputs) == ("", "", [])


def test_what_it_does_not_know_is_said(outputs):
    with capture_output() as seen:
        outputs.show({"output_type": "hologram"})
        outputs.finish(failed=False)
    assert "hologram" in seen.stderr
