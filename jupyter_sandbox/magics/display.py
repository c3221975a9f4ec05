"""Outputs of a cell that ran elsewhere, shown here as if this cell had made them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from IPython.core.interactiveshell import InteractiveShell


class Outputs:
    """Shows nbformat outputs, one by one, in the cell that runs in ``shell``.

    Args:
        shell: The notebook's (or terminal's) IPython.
        quiet: Show nothing; an error still ends the cell.
    """

    def __init__(self, shell: InteractiveShell, *, quiet: bool = False) -> None:
        self._shell = shell
        self._quiet = quiet
        self._unflushed: TextIO | None = None
        self._held_error: Mapping[str, Any] | None = None

    def show(self, output: Mapping[str, Any]) -> None:
        """Show one output: any of nbformat's types, ``update_display_data`` or ``clear_output``."""
        if self._quiet:
            return
        self._show_held_error()
        match output["output_type"]:
            case "stream":
                self._write(sys.stderr if output["name"] == "stderr" else sys.stdout, output["text"])
            case "display_data" | "execute_result":
                self._publish(output)
            case "update_display_data":
                self._publish(output, update=True)
            case "clear_output":
                self.flush()
                self._shell.display_pub.clear_output(wait=bool(output.get("wait", False)))
            case "error":  # most often the one that ends the cell, which then fails with it
                self._held_error = output
            case unknown:
                self._write(sys.stderr, f"[an output of type {unknown} cannot be shown here]\n")

    def flush(self) -> None:
        """Bring what was written to the reader's eyes."""
        if self._unflushed is not None:
            self._unflushed.flush()
            self._unflushed = None

    def finish(self, *, failed: bool) -> None:
        """The cell is over. If it did not fail, an error that it only showed (``showtraceback``) is shown too."""
        if not failed:
            self._show_held_error()
        self._held_error = None
        self.flush()

    def _write(self, stream: TextIO, text: str) -> None:
        if self._unflushed not in {None, stream}:
            self.flush()  # each stream has a buffer of its own: without this, their order would be lost
        stream.write(text)
        self._unflushed = stream

    def _publish(self, output: Mapping[str, Any], *, update: bool = False) -> None:
        self.flush()
        self._shell.display_pub.publish(
            data=dict(output["data"]),
            metadata=dict(output.get("metadata") or {}),
            transient=dict(output.get("transient") or {}),
            update=update,
        )

    def _show_held_error(self) -> None:
        if self._held_error is not None:
            traceback = self._held_error.get("traceback") or [
                f"{self._held_error.get('ename')}: {self._held_error.get('evalue')}"
            ]
            self._held_error = None
            self._write(sys.stderr, "\n".join(traceback) + "\n")
