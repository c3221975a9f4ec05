"""What a magic did is shown once: as the cell's own result when it is that, printed otherwise."""

from __future__ import annotations

from typing import Any, TypeVar

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

T = TypeVar("T")


class Announcements:
    """Values that magics returned and that nobody has seen yet.

    A notebook shows the value of a cell's last expression only. After ``cp = %checkpoint base``, or with three magics
    in one cell, what the others found (above all, what was *not* captured) must not stay unseen: a value is printed
    when the next magic comes, or when the cell ends without having shown it.

    Args:
        shell: Its ``post_run_cell`` event tells when a cell ends.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._unseen: Any = None
        shell.events.register("post_run_cell", self._cell_ended)

    def later(self, value: T) -> T:
        """Return ``value``; make sure that it is seen."""
        self.now()
        self._unseen = value
        return value

    def now(self) -> None:
        """Print what is still unseen."""
        if self._unseen is not None:
            unseen, self._unseen = self._unseen, None
            self.say(repr(unseen))

    def say(self, text: str) -> None:
        """Print a line."""
        self.now()
        print(text)  # noqa: T201 - a notebook's user reads it

    def stop(self) -> None:
        """Leave the shell."""
        self._shell.events.unregister("post_run_cell", self._cell_ended)

    def _cell_ended(self, result: ExecutionResult) -> None:
        if result.result is self._unseen:
            self._unseen = None
        self.now()
