"""``%sandbox`` (create, use, ls, exec; alone: the current one) and ``%%sandbox`` (a cell that runs in one)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from jupyter_sandbox.client import Runtime, RuntimesView
from jupyter_sandbox.magics import arguments
from jupyter_sandbox.magics.announce import Announcements
from jupyter_sandbox.magics.boundary import magic
from jupyter_sandbox.magics.cells import run_cell, run_command
from jupyter_sandbox.magics.current import Desk
from jupyter_sandbox.magics.display import Outputs
from jupyter_sandbox.models import Limits


class Verbs:
    """What ``%sandbox VERB`` does; each method's docstring and arguments are its help."""

    def __init__(self, shell: InteractiveShell, desk: Desk, announcements: Announcements) -> None:
        self._shell = shell
        self._desk = desk
        self._announcements = announcements

    @magic_arguments("sandbox create")
    @argument("name", nargs="?", type=arguments.name, metavar="NAME", help="its name; without one it has only an id")
    @argument("--engine", default="fork", metavar="ENGINE", help="what makes it (default: fork)")
    @argument("--python", metavar="PYTHON", help="the interpreter, for engine fork (default: this one)")
    @argument("--cwd", metavar="DIRECTORY", help="an existing directory, used in place and not captured")
    @argument("--env", action="append", default=[], type=arguments.variable, metavar="K=V", help="may be repeated")
    @argument("--memory", type=arguments.megabytes, metavar="MB", help="at most so many MiB of private memory")
    def create(self, line: str) -> Runtime:
        """Make a sandbox and make it the current one; one that has the name already is attached to."""
        args = arguments.parse(self.create, line)
        runtimes = self._desk.client.runtimes
        there = {runtime.id for runtime in runtimes.list() if args.name is not None and runtime.name == args.name}
        runtime = runtimes.create(
            args.engine,
            args.name,
            python=args.python,
            cwd=None if args.cwd is None else str(Path(args.cwd).expanduser().absolute()),
            env=dict(args.env),
            limits=Limits(memory_mb=args.memory),
            exist_ok=True,
        )
        if runtime.id in there:
            self._announcements.say(f"{args.name} exists already ({runtime.status}): attached to it as it is")
        self._desk.use(runtime)
        return self._announcements.later(runtime)

    @magic_arguments("sandbox use")
    @argument("runtime", metavar="RUNTIME", help="its name or id")
    def use(self, line: str) -> Runtime:
        """Make a sandbox the current one, which %%sandbox and the other magics mean when no other is named."""
        runtime = self._desk.runtime(arguments.parse(self.use, line).runtime)
        self._desk.use(runtime)
        return self._announcements.later(runtime)

    @magic_arguments("sandbox ls")
    @argument("--all", action="store_true", help="closed ones too")
    def ls(self, line: str) -> RuntimesView[Runtime]:
        """List the sandboxes; ``.to_frame()`` makes a DataFrame of them."""
        return self._desk.client.runtimes.list(all=arguments.parse(self.ls, line).all)

    @magic_arguments("sandbox exec")
    @argument("runtime", nargs="?", metavar="RUNTIME", help="its name or id (default: the current one)")
    @argument("--cwd", metavar="DIRECTORY", help="relative to the sandbox's own directory")
    @argument("--timeout", type=arguments.seconds, metavar="SECONDS", help="then the command is ended")
    def exec(self, line: str) -> None:
        """Run a command line beside the sandbox's cells: ``%sandbox exec [RUNTIME] -- COMMAND``."""
        head, command = arguments.split_command(line)
        args = arguments.parse(self.exec, head)
        if not command:
            raise UsageError("the command is missing: %sandbox exec [RUNTIME] -- COMMAND")
        run_command(self._desk.runtime(args.runtime), command, Outputs(self._shell), cwd=args.cwd, timeout=args.timeout)

    def table(self) -> Mapping[str, Callable[[str], Any]]:
        """Each verb and what it does."""
        return MappingProxyType({"create": self.create, "use": self.use, "ls": self.ls, "exec": self.exec})


@magics_class
class SandboxMagics(Magics):
    """The ``sandbox`` magic, for a line and for a cell."""

    def __init__(self, shell: InteractiveShell, desk: Desk, announcements: Announcements) -> None:
        super().__init__(shell)
        self._shell = shell
        self._desk = desk
        self._announcements = announcements
        self.verbs = Verbs(shell, desk, announcements).table()

    @line_cell_magic
    @magic
    def sandbox(self, line: str, cell: str | None = None) -> Any:
        """Make and choose sandboxes, and run cells in them.

        ::

          %sandbox                        the current sandbox
          %sandbox create [NAME]          make one, and make it the current one
          %sandbox use NAME               make another one the current one
          %sandbox ls [--all]             list them
          %sandbox exec [NAME] -- COMMAND run a command line in one

          %%sandbox [NAME] [--timeout SECONDS] [--quiet]
          code that runs in the current sandbox, or in NAME

        ``--help`` after any of them says more.
        """
        self._announcements.now()
        if cell is not None:
            return self.cell(line, cell)
        words = line.split(maxsplit=1)
        if not words:
            return self._current()
        if words[0] in {"-h", "--help"}:
            raise arguments.HelpRequested(inspect.getdoc(vars(SandboxMagics)["sandbox"]))
        if words[0] not in self.verbs:
            raise UsageError(f"%sandbox has no verb {words[0]!r}: it has {', '.join(self.verbs)}")
        return self.verbs[words[0]]("".join(words[1:]))

    def _current(self) -> Runtime | None:
        if self._desk.current_id is None:
            self._announcements.say("There is no current sandbox: %sandbox create makes one")
            return None
        return self._desk.runtime()

    @magic_arguments("%sandbox")
    @argument("runtime", nargs="?", metavar="RUNTIME", help="its name or id (default: the current one)")
    @argument("--timeout", type=arguments.seconds, metavar="SECONDS", help="then the cell is interrupted")
    @argument("--quiet", action="store_true", help="show nothing but an error that ends the cell")
    def cell(self, line: str, cell: str) -> None:
        """Run a cell in a sandbox; what it prints and displays appears here as it comes."""
        args = arguments.parse(self.cell, line)
        run_cell(self._desk.runtime(args.runtime), cell, Outputs(self._shell, quiet=args.quiet), timeout=args.timeout)
