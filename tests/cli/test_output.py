from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from jupyter_sandbox.cli import output
from jupyter_sandbox.client import Checkpoint, Checkpoints, EnginesView, LatencyView, LineageView
from jupyter_sandbox.models import CellDone, CellOutput
from tests.client import samples


def terminal(width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system="standard", highlight=False)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_gets_colours_and_everything_of_a_cell() -> None:
    console = terminal(80)
    output.show_view(EnginesView([samples.engine(detail="word " * 40)]), as_json=False, console=console)
    text = shown(console)
    assert "\x1b[1m" in text
    assert text.count("word") == 40


def test_a_row_is_a_line_however_narrow_the_terminal_is() -> None:
    console = terminal(20)
    output.show_view(LatencyView([samples.latency_row()]), as_json=False, console=console)
    assert len(shown(console).splitlines()) == 2
    assert "1234.5 ms" in shown(console)


def test_names_are_neither_markup_nor_control_sequences() -> None:
    console = terminal()
    record = samples.checkpoint(name="[red]x[/]", source="\x1b[2J")
    output.show_view(Checkpoints([Checkpoint(record)]), as_json=False, console=console)
    assert "[red]x[/]" in shown(console)
    assert "\x1b[2J" not in shown(console)


def test_a_tree_stays_a_tree_on_a_terminal() -> None:
    console = terminal()
    view = LineageView([samples.node("runtime", samples.RT, None), samples.node("checkpoint", samples.CP, samples.RT)])
    output.show_view(view, as_json=False, console=console)
    assert shown(console) == f"{view!r}\n"


def test_json_of_everything() -> None:
    made = Checkpoint(samples.checkpoint(), timings=samples.TIMINGS, reused=True)
    plain = output.plain({"a": (made, samples.runtime()), "b": "text", "c": None})
    assert json.loads(json.dumps(plain)) == plain
    assert plain["a"][0]["reused"] is True
    assert plain["a"][0]["timings"]["engine_ms"] == 2.0
    assert plain["a"][1]["runtime_id"] == samples.RT


@pytest.mark.parametrize(
    ("shape", "out", "err"),
    [
        ({"output_type": "stream", "name": "stdout", "text": ["a", "b"]}, "ab", ""),
        ({"output_type": "stream", "name": "stderr", "text": "e"}, "", "e"),
        ({"output_type": "execute_result", "data": {"text/plain": "42", "text/html": "<b>"}}, "42\n", ""),
        (
            {"output_type": "display_data", "data": {"image/png": "…", "image/svg+xml": "…"}},
            "[image/png, image/svg+xml]\n",
            "",
        ),
        (
            {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mT\x1b[0m", "E: v"]},
            "",
            "T\nE: v\n",
        ),
        ({"output_type": "error", "ename": "E", "evalue": "v"}, "", "E: v\n"),
        ({"output_type": "clear_output", "wait": True}, "", ""),
    ],
)
def test_outputs_of_a_cell(shape: dict[str, object], out: str, err: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.show_cell_event(CellOutput(output=shape))
    output.show_cell_event(CellDone(status="ok"))
    assert capsys.readouterr() == (out, err)
