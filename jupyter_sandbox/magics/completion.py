"""Completion of what our magics take: verbs, flags, names of sandboxes and checkpoints."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.magic_arguments import argument

from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.magics.current import Desk

_FRESH_S = 2.0
_PATIENCE_S = 0.3
_LINE = re.compile(r"^\s*(?:[\w., ]+=\s*)?(?P<magic>%{1,2}\w+)\s(?P<rest>.*)$")

Declared = Callable[..., Any]
"""A function that `magic_arguments` has decorated: the one source of what can be completed."""


@dataclass(frozen=True)
class Names:
    """The names (else ids) that an argument may want, as the server knew them."""

    runtimes: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()

    def fitting(self, metavar: str | None) -> tuple[str, ...]:
        """Those that an argument of this metavar takes."""
        match metavar:
            case "RUNTIME":
                return self.runtimes
            case "CHECKPOINT":
                return self.checkpoints
            case "SOURCE":
                return self.runtimes + self.checkpoints
            case _:
                return ()


class NameCache:
    """Names for the completer: asked in a thread, waited for briefly, remembered for two seconds.

    A shell that is not connected gets no names: a press of Tab starts no server.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._names = Names()
        self._asked_at = float("-inf")
        self._answered = threading.Event()

    def get(self) -> Names:
        """The names, at worst those of the last answer."""
        if self._desk.connected is not None and time.monotonic() - self._asked_at > _FRESH_S:
            self._asked_at = time.monotonic()
            self._answered.clear()
            threading.Thread(target=self._ask, name="sandbox-names", daemon=True).start()
            self._answered.wait(_PATIENCE_S)
        return self._names

    def _ask(self) -> None:
        client = self._desk.connected
        try:
            if client is not None:
                self._names = Names(
                    runtimes=tuple(runtime.name or runtime.id for runtime in client.runtimes.list()),
                    checkpoints=tuple(checkpoint.ref for checkpoint in client.checkpoints()),
                )
        except SandboxError:
            self._names = Names()  # a server that does not answer has no names to offer
        finally:
            self._answered.set()


def matcher(
    lines: Mapping[str, Declared | Mapping[str, Declared]], names: NameCache
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """A matcher for ``ip.Completer.custom_matchers``.

    Args:
        lines: What follows each magic (``%pause``, ``%%sandbox`` …): its declaration, or one for each of its verbs.
        names: Where names come from.
    """

    @context_matcher(identifier="jupyter_sandbox")
    def match(context: CompletionContext) -> SimpleMatcherResult:
        found = _LINE.match(context.text_until_cursor)
        declared = lines.get(found["magic"]) if found else None
        if found is None or declared is None:
            return SimpleMatcherResult(completions=[])
        *before, word = re.split(r"\s+", found["rest"])
        fragment = word if context.token.endswith(word) else context.token
        candidates = _candidates(declared, [*filter(None, before)], word, names)
        matches = [SimpleCompletion(text=text, type="magic") for text in candidates if text.startswith(fragment)]
        return SimpleMatcherResult(completions=matches, matched_fragment=fragment, suppress=True, ordered=True)

    matching: Callable[[CompletionContext], SimpleMatcherResult] = match
    return matching


def _candidates(
    declared: Declared | Mapping[str, Declared], before: list[str], word: str, names: NameCache
) -> Iterable[str]:
    if isinstance(declared, Mapping):
        if not before:
            return declared
        verb, *before = before
        if verb not in declared:
            return ()
        declared = declared[verb]
    if "--" in before:
        return ()  # a command of the user's own
    option, equals, _ = word.partition("=")
    if equals:
        return names.get().fitting(_options(declared).get(option))
    if word.startswith("-"):
        return _options(declared)
    taken = _options(declared)
    if before and taken.get(before[-1]) is not None:
        return names.get().fitting(taken[before[-1]])
    position = sum(not w.startswith("-") and taken.get(previous) is None for previous, w in _pairs(before))
    positionals = list(_positionals(declared))
    return names.get().fitting(positionals[position]) if position < len(positionals) else _options(declared)


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    yield from zip(["", *words], words, strict=False)


def _options(declared: Declared) -> dict[str, str | None]:
    """Each flag of a declaration with the metavar of its value; None for one that takes no value."""
    return {
        flag: None if "action" in each.kwds and each.kwds["action"] != "append" else each.kwds.get("metavar", "")
        for each in _arguments(declared)
        for flag in each.args
        if flag.startswith("-")
    }


def _positionals(declared: Declared) -> Iterator[str | None]:
    for each in _arguments(declared):
        if not each.args[0].startswith("-"):
            yield each.kwds.get("metavar")


def _arguments(declared: Declared) -> list[argument]:
    decorators: list[Any] = declared.decorators  # type: ignore[attr-defined]
    return [each for each in reversed(decorators) if isinstance(each, argument)]
