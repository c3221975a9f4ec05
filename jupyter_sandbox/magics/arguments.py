"""From a magic's line to its arguments: one line of `UsageError` for whatever is wrong with it, never a traceback."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.error import UsageError

from jupyter_sandbox.models import NAME_PATTERN

_HELP = frozenset({"-h", "--help"})
_BEFORE_COMMAND = re.compile(r"(?:^|\s)--(?:\s+|$)")


class HelpRequested(Exception):
    """``--help`` stands in the line: its text is the answer, and the magic has nothing else to do."""


def parse(magic: Callable[..., Any], line: str | Sequence[str]) -> argparse.Namespace:
    """The arguments of a magic declared with `magic_arguments`.

    Args:
        magic: The function that carries the declaration.
        line: What followed the magic's name, as text or in words.

    Raises:
        UsageError: The line does not fit the declaration.
        HelpRequested: The line asks for help.
    """
    parser: argparse.ArgumentParser = magic.parser  # type: ignore[attr-defined]
    words = split(line) if isinstance(line, str) else line
    if _HELP.intersection(words):
        raise HelpRequested(parser.format_help())
    return parser.parse_args(words)  # where argparse would exit, magic_arguments raises UsageError


def split(line: str) -> list[str]:
    """The words of a line as a shell sees them, without their quotes.

    Raises:
        UsageError: A quotation is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error} in: {line.strip()}") from None


def split_command(line: str) -> tuple[str, str | None]:
    """What stands before the first free-standing ``--``, and the raw command after it (None without one)."""
    found = _BEFORE_COMMAND.search(line)
    return (line, None) if found is None else (line[: found.start()], line[found.end() :].strip())


def name(text: str) -> str:
    """The name for something new. Of such an error argparse makes a message that names the argument."""
    if not re.fullmatch(NAME_PATTERN, text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name: letters, digits, '.', '_' and '-', a letter or digit first"
        )
    return text


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return number


def megabytes(text: str) -> int:
    """A positive whole number of MiB."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number of MiB")
    return int(text)


def variable(text: str) -> tuple[str, str]:
    """A variable for an environment: ``K=V``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form K=V")
    return key, value
