"""A plain interpreter for a worker whose Python has no ipykernel: Jupyter messages, text only.

It runs cells like ``python -i`` does: the value of a last expression is shown by `repr`. No magics, no rich display, no
top-level await.
"""

from __future__ import annotations

import ast
import builtins
import json
import linecache
import os
import rlcompleter
import signal
import sys
import traceback
import types
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from .frames import Channel

Say = Callable[[Channel, Sequence[bytes | memoryview]], None]
_DELIMITER = b"<IDS|MSG>"


class _Stream:
    """``sys.stdout`` or ``sys.stderr``: each write is said at once."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, interpreter: PlainInterpreter, name: str, descriptor: int) -> None:
        self._interpreter = interpreter
        self.name = name
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        if text:
            self._interpreter.say_text(self.name, text)
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


class PlainInterpreter:
    """Runs cells with ``exec``; answers ``execute_request`` and ``complete_request``."""

    rich = False
    wants_exit = False
    own_descriptors: frozenset[int] = frozenset()

    def __init__(self, say: Say) -> None:
        self._say = say
        self._session = uuid.uuid4().hex
        self._parent: dict[str, Any] = {}
        self.execution_count = 0
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            stream: Any = _Stream(self, name, descriptor)
            setattr(sys, name, stream)
        builtins.input = _no_input
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def warm_up(self) -> None:
        """There is nothing to import later."""

    def settle(self) -> None:
        """Nothing of ours runs."""

    def freeze(self) -> None:
        """Nothing is held back."""

    def thaw(self) -> None:
        self._session = uuid.uuid4().hex

    def say_text(self, name: str, text: str) -> None:
        """Say a piece of output, as the output of the cell that runs."""
        parent = str(self._parent.get("msg_id", "")).encode()
        self._say(Channel.stream, [name.encode(), parent, text.encode(errors="backslashreplace")])

    async def shell(self, parts: Sequence[bytes]) -> None:
        """Handle one message of the shell channel."""
        start = list(parts).index(_DELIMITER)
        header, content = json.loads(parts[start + 2]), json.loads(parts[start + 5])
        self._parent = header
        self._send(Channel.iopub, "status", {"execution_state": "busy"})
        match header["msg_type"]:
            case "execute_request":
                self._execute(content)
            case "complete_request":
                self._complete(content)
        self._send(Channel.iopub, "status", {"execution_state": "idle"})

    def _execute(self, content: dict[str, Any]) -> None:
        code, silent = content["code"], content.get("silent", False)
        if not silent:
            self.execution_count += 1
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self._run(code)
        except SystemExit as error:
            os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises is its result
            reply = _error_content(error)
            self._send(Channel.iopub, "error", reply)
            reply = {"status": "error", **reply}
        else:
            reply = {"status": "ok", "user_expressions": {}, "payload": []}
        finally:
            signal.signal(signal.SIGINT, handler)
        self._send(Channel.shell, "execute_reply", {"execution_count": self.execution_count, **reply})

    def _run(self, code: str) -> None:
        name = f"<cell {self.execution_count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self._module.__dict__)  # noqa: S102 - running code is the job
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), self._module.__dict__)  # noqa: S307
            if value is not None:
                self._module.__dict__["_"] = value
                self._send(
                    Channel.iopub,
                    "execute_result",
                    {"data": {"text/plain": repr(value)}, "metadata": {}, "execution_count": self.execution_count},
                )

    def _complete(self, content: dict[str, Any]) -> None:
        code, end = content["code"], content["cursor_pos"]
        start = end
        while start and (code[start - 1].isalnum() or code[start - 1] in "._"):
            start -= 1
        completer = rlcompleter.Completer(self._module.__dict__)
        matches: list[str] = []
        while (match := completer.complete(code[start:end], len(matches))) is not None:
            matches.append(match)
        reply = {"matches": matches, "cursor_start": start, "cursor_end": end, "metadata": {}, "status": "ok"}
        self._send(Channel.shell, "complete_reply", reply)

    def _send(self, channel: Channel, kind: str, content: dict[str, Any]) -> None:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "",
            "date": datetime.now(UTC).isoformat(),
            "version": "5.3",
        }
        parts = [json.dumps(part).encode() for part in (header, self._parent, {}, content)]
        self._say(channel, [kind.encode(), _DELIMITER, b"", *parts])


def _no_input(_prompt: object = "") -> str:
    raise RuntimeError("input() has nobody to ask in a sandbox; set a variable instead")


def _error_content(error: BaseException) -> dict[str, Any]:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # the user's frames only
    lines = traceback.format_exception(type(error), error, trace)
    return {"ename": type(error).__name__, "evalue": str(error), "traceback": "".join(lines).splitlines()}
