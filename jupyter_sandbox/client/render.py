"""Tables and trees as aligned text and as HTML that JupyterLab's sanitizer leaves whole: plain tags, all escaped."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape as _escape
from typing import TypeVar

from jupyter_sandbox.models import TimeMs

T = TypeVar("T")

NUMERIC = frozenset("0123456789.,- ")


def escape(text: object) -> str:
    """Text for HTML, in an element or an attribute."""
    return _escape(str(text), quote=True)


def printable(text: object) -> str:
    r"""One line that cannot move a terminal's cursor: control characters as ``\x1b``."""
    return "".join(
        char if unicodedata.category(char)[0] != "C" else char.encode("unicode_escape").decode() for char in str(text)
    )


def milliseconds(value: float) -> str:
    """``12.3 ms``."""
    return f"{value:.1f} ms"


def megabytes(value: int | None) -> str:
    """Bytes as ``12.3 MB`` (10^6); ``–`` when nobody knows."""
    return "–" if value is None else f"{value / 1e6:.1f} MB"


def moment(at_ms: TimeMs) -> str:
    """Milliseconds since the epoch as ``2026-01-31 12:00:00`` in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def short(identifier: str | None) -> str:
    """The start of an id that people can tell apart; a child's keeps the start of its own half."""
    if identifier is None:
        return "–"
    stem, dot, own = identifier.partition(".")
    return f"{stem[:11]}{dot}{own[:8]}" if dot else stem[:11]


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, two spaces apart; columns of numbers to the right."""
    clean = [[printable(cell) for cell in row] for row in rows]
    right = number_columns(len(columns), clean)
    widths = [max(map(len, column)) for column in zip(columns, *clean, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        for row in (columns, *clean)
    )
    return "\n".join(line.rstrip() for line in lines)


def number_columns(count: int, rows: Sequence[Sequence[str]]) -> list[bool]:
    """For each column whether all its cells are numbers, with or without a unit."""
    return [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(count)]


def _is_number(cell: str) -> bool:
    value = cell.removesuffix(" ms").removesuffix(" MB")
    return value == "–" or (bool(value) and set(value) <= NUMERIC)


def table_html(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def tree_text(roots: Sequence[T], children: Callable[[T], Sequence[T]], label: Callable[[T], str]) -> str:
    """A forest with box-drawing characters, one node a line."""
    lines: list[str] = []
    # A stack, not recursion: a lineage is as deep as somebody's notebook is long.
    stack = [(node, "", "", "") for node in reversed(roots)]
    while stack:
        node, lead, branch, below = stack.pop()
        lines.append(f"{lead}{branch}{printable(label(node))}")
        kids = children(node)
        inner = lead + below
        stack.extend(
            (kid, inner, "└─ ", "   ") if i == len(kids) - 1 else (kid, inner, "├─ ", "│  ")
            for i, kid in reversed(list(enumerate(kids)))
        )
    return "\n".join(lines)


class _EndOfList:
    """Marks where a node's children end, on `tree_html`'s stack."""


def tree_html(roots: Sequence[T], children: Callable[[T], Sequence[T]], label: Callable[[T], str]) -> str:
    """A forest as nested lists."""
    parts = ["<ul>"]
    stack: list[T | _EndOfList] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if isinstance(node, _EndOfList):
            parts.append("</ul></li>")
            continue
        parts.append(f"<li>{escape(label(node))}")
        kids = children(node)
        if kids:
            parts.append("<ul>")
            stack.append(_EndOfList())
            stack.extend(reversed(kids))
        else:
            parts.append("</li>")
    return "".join((*parts, "</ul>"))
