from __future__ import annotations

import random

import pytest

from jupyter_sandbox.client import wire
from jupyter_sandbox.errors import InvalidRequest
from jupyter_sandbox.models import ExecRequest, RuntimeCreateRequest


def test_lines_are_whole_however_they_come() -> None:
    random.seed(7)
    whole = ["", "a", "b\x85c", "\u2028", " ", "x" * 5000, "last"]
    data = "\n".join(whole).encode() + b"\n"
    for _ in range(200):
        splitter, lines, rest = wire.LineSplitter(), [], data
        while rest:
            n = random.randint(1, 900)
            lines += splitter.feed(rest[:n])
            rest = rest[n:]
        assert [line.decode() for line in lines] == ["a", "b\x85c", "\u2028", "x" * 5000, "last"]


def test_an_unfinished_line_is_kept_back() -> None:
    splitter = wire.LineSplitter()
    assert list(splitter.feed(b'{"a"')) == []
    assert list(splitter.feed(b": 1}\n{")) == [b'{"a": 1}']


def test_paths_quote_every_segment() -> None:
    assert wire.path("runtimes", "a b/..") == "/api/v1/runtimes/a%20b%2F.."
    assert wire.path("runtimes", "..") == "/api/v1/runtimes/%2E%2E"
    assert wire.file_path("r", "../a/./b") == "/api/v1/runtimes/r/files/%2E%2E/a/%2E/b"
    for empty in ("", "/", "//"):
        with pytest.raises(InvalidRequest, match="empty"):
            wire.file_path("r", empty)


def test_defaults_are_not_sent() -> None:
    assert wire.content(wire.build(RuntimeCreateRequest, engine="fork", name=None)) == b"{}"
    assert wire.content(wire.build(RuntimeCreateRequest, engine="qemu")) == b'{"engine":"qemu"}'
    assert wire.content(None) is None


def test_what_does_not_fit_names_its_field() -> None:
    with pytest.raises(InvalidRequest, match="timeout_s") as caught:
        wire.build(ExecRequest, argv=("a",), timeout_s=-1)
    assert caught.value.context == {"field": "timeout_s"}
    with pytest.raises(InvalidRequest, match="exactly one of argv and shell"):
        wire.build(ExecRequest)
