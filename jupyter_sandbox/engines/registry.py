"""Finds engines: every entry point of the group ``jupyter_sandbox.engines`` names a class."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from jupyter_sandbox.engines.base import Engine

GROUP = "jupyter_sandbox.engines"


class Found(NamedTuple):
    """The engines that loaded, by name, and for the others a sentence that says why not."""

    engines: dict[str, Engine]
    problems: dict[str, str]


def discover() -> Found:
    """Load and construct every installed engine. One that cannot be loaded does not stop the others."""
    found = Found({}, {})
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        try:
            found.engines[point.name] = _load(point)
        except (ImportError, AttributeError, TypeError) as error:
            found.problems[point.name] = f"Engine {point.name} ({point.value}) cannot be loaded: {error}"
    return found


def _load(point: EntryPoint) -> Engine:
    made = point.load()()
    if not isinstance(made, Engine):
        raise TypeError(f"{point.value} is not an engine")
    if made.name != point.name:
        raise TypeError(f"{point.value} calls itself {made.name!r}")
    return made
