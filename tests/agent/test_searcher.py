"""A search runs apart, answers as the search itself does, and can always be ended."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.searcher import search_apart


async def test_result_and_errors(tmp_path):
    (tmp_path / "f").write_text("é one\n")
    found = await search_apart(str(tmp_path), glob="*", text="one")
    assert found == {"matches": [{"path": "f", "line": 1, "text": "é one"}], "truncated": False}
    with pytest.raises(AgentError, match="not valid") as caught:
        await search_apart(str(tmp_path), glob="*", text="(")
    assert (caught.value.code, caught.value.context) == ("InvalidRequest", {"field": "text"})


async def test_an_expression_that_never_ends(tmp_path):
    (tmp_path / "f").write_text("a" * 60 + "\n")
    with pytest.raises(AgentError, match="longer than 1 s") as caught:
        await search_apart(str(tmp_path), text="(a+)+b", timeout_s=1.0)
    assert caught.value.code == "OperationTimeout"


async def test_cancelling(tmp_path):
    (tmp_path / "f").write_text("a" * 60 + "\n")
    before = set(psutil.Process().children())
    task = asyncio.create_task(search_apart(str(tmp_path), text="(a+)+b"))
    while not (searchers := set(psutil.Process().children()) - before):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(searcher.is_running() for searcher in searchers)
