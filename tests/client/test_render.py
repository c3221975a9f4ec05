from __future__ import annotations

from html.parser import HTMLParser

import pytest

from jupyter_sandbox.client import render
from tests.client import samples

TREE = {"a": ["b", "c"], "b": ["d"], "c": [], "d": []}


def test_numbers_have_one_form() -> None:
    assert render.milliseconds(0.04) == "0.0 ms"
    assert render.milliseconds(1234.56) == "1234.6 ms"
    assert render.megabytes(180_440_000) == "180.4 MB"
    assert render.megabytes(0) == "0.0 MB"
    assert render.megabytes(None) == "–"
    assert render.moment(samples.AT_MS) == "2023-11-14 22:13:20"


def test_short_ids() -> None:
    assert render.short(samples.RT) == "rt_aaaaaaaa"
    assert render.short(samples.KID) == "rt_aaaaaaaa.bbbbbbbb"
    assert render.short(None) == "–"


def test_a_table_is_aligned_and_numbers_stand_right() -> None:
    text = render.table_text(("name", "ms"), [("a", "1.0 ms"), ("longer", "22.0 ms"), ("c", "–")])
    assert text.splitlines() == ["name         ms", "a        1.0 ms", "longer  22.0 ms", "c             –"]
    assert render.table_text(("name", "ms"), []) == "name  ms"


def test_a_tree_in_text() -> None:
    text = render.tree_text(["a", "x"], lambda n: TREE.get(n, []), str.upper)
    assert text.splitlines() == ["A", "├─ B", "│  └─ D", "└─ C", "X"]


def test_a_tree_in_html() -> None:
    html = render.tree_html(["a", "x"], lambda n: TREE.get(n, []), str.upper)
    assert html == "<ul><li>A<ul><li>B<ul><li>D</li></ul></li><li>C</li></ul></li><li>X</li></ul>"


def test_a_deep_tree_needs_no_deep_stack() -> None:
    def kids(n: int) -> list[int]:
        return [n + 1] if n < 5000 else []

    assert len(render.tree_text([0], kids, str).splitlines()) == 5001
    assert render.tree_html([0], kids, str).count("<li>") == 5001


@pytest.mark.parametrize("cell", [samples.HOSTILE, "<script>alert(1)</script>", "a & b"])
def test_everything_is_escaped(cell: str) -> None:
    class Texts(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: set[str] = set()
            self.text = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert attrs == []
            self.tags.add(tag)

        def handle_data(self, data: str) -> None:
            self.text += data

    for html in (
        render.table_html((cell,), [(cell,)]),
        render.tree_html([cell], lambda _: [], str),
    ):
        parser = Texts()
        parser.feed(html)
        assert parser.tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
        assert cell in parser.text


def test_text_cannot_steer_a_terminal() -> None:
    shown = render.table_text(("n",), [("a\x1b[2Jb\nc\u202e",)])
    assert shown.splitlines() == ["n", r"a\x1b[2Jb\nc\u202e"]
