"""
The IPython magics: ``%load_ext jupyter_sandbox``.

``sandbox`` (%sandbox, %%sandbox) and ``verbs`` (the others) declare them; ``arguments`` parses their lines; ``current``
knows the server and the current sandbox; ``cells`` runs a cell in one and ``display`` shows its outputs; ``announce``
sees to it that results are seen; ``completion`` completes; ``boundary`` is what all have at their edge to IPython.
"""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics

from jupyter_sandbox.magics.announce import Announcements
from jupyter_sandbox.magics.completion import Declared, NameCache, matcher
from jupyter_sandbox.magics.current import Desk
from jupyter_sandbox.magics.sandbox import SandboxMagics
from jupyter_sandbox.magics.verbs import VerbMagics

__all__ = ["load", "unload"]

_ATTRIBUTE = "_jupyter_sandbox_extension"


class _Extension:
    """All that one shell got from us, so that it can be taken away again."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._desk = Desk()
        self._announcements = Announcements(shell)
        sandbox = SandboxMagics(shell, self._desk, self._announcements)
        verbs = VerbMagics(shell, self._desk, self._announcements)
        self._magics: list[Magics] = [sandbox, verbs]
        for each in self._magics:
            shell.register_magics(each)
        lines: dict[str, Any] = {"%sandbox": sandbox.verbs, "%%sandbox": sandbox.cell}
        lines |= {f"%{name}": getattr(verbs, name) for name in verbs.magics["line"]}
        self._matcher: Declared | None = matcher(lines, NameCache(self._desk))
        shell.Completer.custom_matchers.append(self._matcher)

    def remove(self) -> None:
        """Take the magics, the matcher and the callback out of the shell and close the connection."""
        manager = self._shell.magics_manager
        for each in self._magics:
            manager.registry.pop(type(each).__name__, None)
            for kind, table in each.magics.items():
                for name, function in table.items():
                    if manager.magics[kind].get(name) == function:  # what a user has put in its place stays
                        del manager.magics[kind][name]
        self._shell.Completer.custom_matchers.remove(self._matcher)
        self._announcements.stop()
        self._desk.disconnect()


def load(shell: InteractiveShell) -> None:
    """Give our magics to a shell; one that has them keeps them, and its current sandbox."""
    if not hasattr(shell, _ATTRIBUTE):
        setattr(shell, _ATTRIBUTE, _Extension(shell))


def unload(shell: InteractiveShell) -> None:
    """Take our magics out of a shell. Sandboxes live on."""
    extension: _Extension | None = vars(shell).pop(_ATTRIBUTE, None)
    if extension is not None:
        extension.remove()
