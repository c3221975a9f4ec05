"""What every magic does at its edge to IPython: help is an answer, and an interrupt shows no stack of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from jupyter_sandbox.magics.arguments import HelpRequested

P = ParamSpec("P")
T = TypeVar("T")


def magic(function: Callable[P, T]) -> Callable[P, T | None]:
    """Wrap the body of a magic: ``--help`` prints, Ctrl-C is one line and still fails the cell.

    Errors of ours need nothing here: IPython asks them how to be shown (`SandboxError._render_traceback_`).
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except HelpRequested as answer:
            print(answer)  # noqa: T201 - a notebook's user reads it
            return None
        except KeyboardInterrupt as interrupt:
            if not hasattr(interrupt, "_render_traceback_"):
                show_as(interrupt, ["KeyboardInterrupt"])
            raise

    return call


def show_as(error: BaseException, lines: Sequence[str]) -> None:
    """Let IPython show ``lines`` where it would show the stack of ``error``."""
    shown = list(lines)
    vars(error)["_render_traceback_"] = lambda: shown
