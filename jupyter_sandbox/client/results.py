"""Events of a stream -> one result, and how a result looks in a notebook."""

from __future__ import annotations

import re
from typing import Any

from jupyter_sandbox.client import render
from jupyter_sandbox.errors import CellFailed, CommandFailed
from jupyter_sandbox.models import (
    CellDone,
    CellEvent,
    CellOutput,
    CellResult,
    ExecDone,
    ExecEvent,
    ExecOutput,
    ExecResult,
)

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class CellResultView(CellResult):
    """A `CellResult` that shows what its cell showed."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        head = f"{self.status} · {render.milliseconds(self.elapsed_ms)}"
        trace = (
            "" if self.error is None else "\n".join(self.error.traceback) or f"{self.error.ename}: {self.error.evalue}"
        )
        shown = self.text + (trace and f"{trace}\n")
        return {
            "text/plain": f"{shown.rstrip()}\n[{head}]".lstrip("\n"),
            "text/html": f"<pre>{render.escape(_ANSI.sub('', shown).rstrip())}</pre><p>{render.escape(head)}</p>",
        }

    def __repr__(self) -> str:
        error = f", error={self.error.ename}: {self.error.evalue}" if self.error else ""
        return f"<CellResult {self.status} [{self.execution_count}] text={self.text!r}{error}>"

    __str__ = __repr__

    def raise_for_error(self) -> None:
        """Raise `CellFailed` unless the cell ended well; what ``run(check=True)`` does."""
        if self.status == "ok":
            return
        if self.error is not None:
            message = f"The cell failed with {self.error.ename}: {self.error.evalue}"
        else:
            message = "The cell was aborted"
        trace = self.error.traceback if self.error is not None else ()
        raise CellFailed(message, result=self, traceback=trace, status=self.status, timed_out=self.timed_out)


class ExecResultView(ExecResult):
    """An `ExecResult` that shows what its command printed."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        head = f"exit code {self.exit_code} · {render.milliseconds(self.elapsed_ms)}"
        shown = self.stdout + self.stderr
        return {
            "text/plain": f"{shown.rstrip()}\n[{head}]".lstrip("\n"),
            "text/html": f"<pre>{render.escape(_ANSI.sub('', shown).rstrip())}</pre><p>{render.escape(head)}</p>",
        }

    def __repr__(self) -> str:
        late = " timed out" if self.timed_out else ""
        return f"<ExecResult exit code {self.exit_code}{late} stdout={self.stdout!r} stderr={self.stderr!r}>"

    __str__ = __repr__

    def raise_for_error(self) -> None:
        """Raise `CommandFailed` unless the exit code is 0; what ``exec(check=True)`` does."""
        if self.exit_code == 0 and not self.timed_out:
            return
        reason = "ran into its time limit" if self.timed_out else f"ended with exit code {self.exit_code}"
        last = self.stderr.strip().rpartition("\n")[2]
        raise CommandFailed(
            f"The command {reason}" + (f": {last}" if last else ""),
            result=self,
            exit_code=self.exit_code,
            timed_out=self.timed_out,
        )


class CellCollector:
    """Feed it every event of a cell; `result` after the last."""

    def __init__(self) -> None:
        self._outputs: list[dict[str, Any]] = []
        self._done: CellDone | None = None

    def add(self, event: CellEvent) -> None:
        """Take one event."""
        if isinstance(event, CellDone):
            self._done = event
        elif isinstance(event, CellOutput):
            self._add_output(event.output)

    def _add_output(self, output: dict[str, Any]) -> None:
        last = self._outputs[-1] if self._outputs else {}
        if output.get("output_type") == "stream" == last.get("output_type") and output.get("name") == last.get("name"):
            self._outputs[-1] = {**last, "text": as_text(last.get("text")) + as_text(output.get("text"))}
        else:
            self._outputs.append(output)

    def result(self) -> CellResultView:
        """The cell as a whole."""
        done = self._done
        if done is None:
            raise RuntimeError("a cell's result was asked for before its last event")
        written = [
            as_text(o.get("text"))
            for o in self._outputs
            if o.get("output_type") == "stream" and o.get("name") == "stdout"
        ]
        values = [
            as_text(o.get("data", {}).get("text/plain"))
            for o in self._outputs
            if o.get("output_type") == "execute_result"
        ]
        return CellResultView(
            status=done.status,
            text="".join(written + values),
            outputs=tuple(self._outputs),
            execution_count=done.execution_count,
            error=done.error,
            timed_out=done.timed_out,
            elapsed_ms=done.elapsed_ms,
        )


class ExecCollector:
    """Feed it every event of a command; `result` after the last."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._done: ExecDone | None = None

    def add(self, event: ExecEvent) -> None:
        """Take one event."""
        if isinstance(event, ExecDone):
            self._done = event
        elif isinstance(event, ExecOutput):
            self._text[event.stream].append(event.text)

    def result(self) -> ExecResultView:
        """The command as a whole."""
        done = self._done
        if done is None:
            raise RuntimeError("a command's result was asked for before its last event")
        return ExecResultView(
            exit_code=done.exit_code,
            stdout="".join(self._text["stdout"]),
            stderr="".join(self._text["stderr"]),
            timed_out=done.timed_out,
            elapsed_ms=done.elapsed_ms,
        )


def as_text(value: Any) -> str:
    """Text of nbformat, which may be a list of lines."""
    return "".join(value) if isinstance(value, list) else str(value or "")
