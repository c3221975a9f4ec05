"""A search in a process of its own.

A regular expression may take for ever on a short line ("catastrophic backtracking"), and Python's `re` neither gives
up nor lets other threads run meanwhile. So the search runs where it can be killed.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import commands
from .errors import AgentError
from .search import finish, search

TIMEOUT_S = 120.0
"""Seconds; what takes longer is most likely an expression that never ends."""


async def search_apart(root: str, *, timeout_s: float = TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
    """
    `search.search`, carried out in a child process; cancelling ends it at once.

    Args:
        root: The runtime's root directory.
        timeout_s: Seconds that it may take.
        arguments: Of `search.search`.

    Raises:
        AgentError: Those of `search.search`; ``OperationTimeout``.

    """
    output = bytearray()
    complaints = bytearray()

    async def collect(stream: commands.Stream, data: bytes) -> None:
        (output if stream == "stdout" else complaints).extend(data)

    main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    code, timed_out = await commands.run(
        argv=[sys.executable, "-I", "-S", main, "search"],
        root=root,
        env={},
        stdin=json.dumps({"root": root, **arguments}).encode(),
        timeout_s=timeout_s,
        on_output=collect,
    )
    if timed_out:
        raise AgentError(
            "OperationTimeout",
            f"the search took longer than {timeout_s:g} s",
            "Narrow the glob, or write the regular expression without nested repetition such as (a+)+.",
        )
    if code:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise AgentError("SandboxError", f"the search ended with exit code {code}: {last}")
    answer: dict[str, Any] = json.loads(output)
    if error := answer.get("error"):
        raise AgentError(error["code"], error["message"], error["remedy"], **error["context"])
    result: dict[str, Any] = answer["result"]
    return result


def main() -> None:
    """The child: the arguments come as JSON on stdin, the result or the error goes to stdout."""
    arguments = json.load(sys.stdin)
    try:
        answer = {"result": finish(search(**arguments))}
    except AgentError as error:
        answer = {"error": error.to_dict()}
    json.dump(answer, sys.stdout)
