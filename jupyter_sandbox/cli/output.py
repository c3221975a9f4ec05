"""What commands print: JSON, tables (rich on a terminal, plain text in a pipe), and a cell's outputs as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jupyter_sandbox.client import Checkpoint, LineageView, Runtime, View, render
from jupyter_sandbox.client.results import as_text
from jupyter_sandbox.models import CellEvent, CellOutput, ExecEvent, ExecOutput


def show_json(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """Records, and what the client makes of them, as JSON values."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Runtime):
        return value.record.model_dump(mode="json")
    if isinstance(value, Checkpoint):
        timings = value.timings.model_dump() if value.timings else None
        return {**value.record.model_dump(mode="json"), "reused": value.reused, "timings": timings}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def show(value: Runtime | Checkpoint, *, as_json: bool) -> None:
    """One runtime or checkpoint."""
    if as_json:
        show_json(plain(value))
    else:
        click.echo(repr(value))


def show_view(view: View[Any], *, as_json: bool, console: Console | None = None) -> None:
    """A list: a table with colours on a terminal, aligned text in a pipe."""
    if as_json:
        show_json(list(view))
        return
    console = console or Console(highlight=False)
    if not console.is_terminal or not view or isinstance(view, LineageView):
        click.echo(view.text(), file=console.file)
        return
    rows = view.rows()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, number in zip(view.columns, render.number_columns(len(view.columns), rows), strict=True):
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "detail", overflow="fold")
    for row in rows:
        # Text, not markup: names and sentences of others may hold brackets.
        table.add_row(*(Text(render.printable(cell), style=_STYLE.get(cell.partition(":")[0], "")) for cell in row))
    if "detail" not in view.columns:
        # A row is a line, as in a pipe: a narrow terminal wraps it by itself and copies it whole.
        console.width = max(console.width, console.measure(table, options=console.options.update(width=_WIDE)).maximum)
    console.print(table, crop=False, soft_wrap=False)


_WIDE = 10_000
_STYLE = {
    "idle": "green",
    "running": "yellow",
    "paused": "cyan",
    "failed": "red",
    "closed": "dim",
    "lost": "red",
    "ready": "green",
    "none": "yellow",
}


def show_cell_event(event: CellEvent) -> None:
    """A cell's output, now: stdout and values to stdout, the rest to stderr."""
    if not isinstance(event, CellOutput):
        return
    output = event.output
    match output.get("output_type"):
        case "stream":
            _write(as_text(output.get("text")), err=output.get("name") == "stderr")
        case "execute_result" | "display_data" | "update_display_data":
            data = output.get("data", {})
            kinds = ", ".join(sorted(data))
            _write(f"{as_text(data['text/plain']) if 'text/plain' in data else f'[{kinds}]'}\n", err=False)
        case "error":
            trace = output.get("traceback") or [f"{output.get('ename')}: {output.get('evalue')}"]
            click.echo("\n".join(trace), err=True)  # echo takes the colours out unless stderr is a terminal


def show_exec_event(event: ExecEvent) -> None:
    """A command's output, now."""
    if isinstance(event, ExecOutput):
        _write(event.text, err=event.stream == "stderr")


def _write(text: str, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    stream.write(text)
    stream.flush()
