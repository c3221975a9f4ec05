"""The verbs on sandboxes and checkpoints: ``%checkpoint``, ``%fork``, ``%checkout``, ``%pause`` … and their lists."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from jupyter_sandbox.client import Checkpoint, Checkpoints, LatencyView, LineageView, Runtime
from jupyter_sandbox.magics import arguments
from jupyter_sandbox.magics.announce import Announcements
from jupyter_sandbox.magics.boundary import magic
from jupyter_sandbox.magics.current import Desk


@magics_class
class VerbMagics(Magics):
    """Magics of one verb each. They act on the current sandbox unless told otherwise, and return what they made."""

    def __init__(self, shell: InteractiveShell, desk: Desk, announcements: Announcements) -> None:
        super().__init__(shell)
        self._desk = desk
        self._announcements = announcements

    @magic_arguments()
    @argument("name", nargs="?", type=arguments.name, metavar="CHECKPOINT", help="its name; without one it has an id")
    @argument("--on", metavar="RUNTIME", help="the sandbox (default: the current one)")
    @line_magic
    @magic
    def checkpoint(self, line: str) -> Checkpoint:
        """Keep a sandbox as it is now: its variables, generators, cursors, open files, and its own directory.

        A name that a checkpoint of the same lineage holds moves to the new one, so that a notebook can be run again.
        """
        args = self._read(self.checkpoint, line)
        runtime = self._desk.runtime(args.on)
        held = [each for each in self._desk.client.checkpoints() if args.name and each.name == args.name]
        checkpoint = runtime.checkpoint(args.name, rebind=True)
        if held:
            self._announcements.say(f"The checkpoint {args.name} of before lost its name to this one")
        return self._announcements.later(checkpoint)

    @magic_arguments()
    @argument("source", nargs="?", metavar="SOURCE", help="a checkpoint or sandbox (default: the current sandbox)")
    @argument("--name", type=arguments.name, metavar="RUNTIME", help="the fork's name; without one it has an id")
    @argument("--no-reseed", action="store_true", help="keep the random streams: each fork draws the same numbers")
    @line_magic
    @magic
    def fork(self, line: str) -> Runtime:
        """Start a sandbox that goes on from exactly where another one, or a checkpoint, is.

        A name that an older fork of the same lineage holds is taken over, and the old fork closed. The current
        sandbox stays the current one.
        """
        args = self._read(self.fork, line)
        source = args.source or self._desk.runtime().id
        replaced = self._holder(args.name)
        child = self._desk.client.fork(source, args.name, rebind=True, reseed=False if args.no_reseed else None)
        return self._branched(child, replaced)

    @magic_arguments()
    @argument("checkpoint", metavar="CHECKPOINT", help="its name or id")
    @argument("--name", type=arguments.name, metavar="RUNTIME", help="the sandbox's name; without one it has an id")
    @line_magic
    @magic
    def checkout(self, line: str) -> Runtime:
        """Start a sandbox from a checkpoint and make it the current one."""
        args = self._read(self.checkout, line)
        replaced = self._holder(args.name)
        child = self._desk.client.checkout(args.checkpoint, name=args.name, rebind=True, allow_busy_source=True)
        self._desk.use(child)
        return self._branched(child, replaced)

    @magic_arguments()
    @argument("runtime", nargs="?", metavar="RUNTIME", help="its name or id (default: the current one)")
    @line_magic
    @magic
    def pause(self, line: str) -> Runtime:
        """Checkpoint a sandbox and end its processes; ``%resume`` brings it back under the same id."""
        runtime = self._desk.runtime(self._read(self.pause, line).runtime)
        self._warn(runtime.pause())
        return self._announcements.later(runtime)

    @magic_arguments()
    @argument("runtime", nargs="?", metavar="RUNTIME", help="its name or id (default: the current one)")
    @line_magic
    @magic
    def resume(self, line: str) -> Runtime:
        """Bring a paused sandbox back, as it was and under the same id."""
        runtime = self._desk.runtime(self._read(self.resume, line).runtime)
        runtime.resume()
        return self._announcements.later(runtime)

    @magic_arguments()
    @argument("runtime", nargs="?", metavar="RUNTIME", help="its name or id (default: the current one)")
    @argument("--cascade", action="store_true", help="its children too, and the unpinned checkpoints of all of them")
    @line_magic
    @magic
    def close(self, line: str) -> Runtime:
        """End a sandbox. Its forks and its checkpoints live on."""
        args = self._read(self.close, line)
        runtime = self._desk.runtime(args.runtime)
        runtime.close(cascade=args.cascade)
        self._desk.leave(runtime.id)
        return self._announcements.later(runtime)

    @magic_arguments()
    @argument("checkpoint", metavar="CHECKPOINT", help="its name or id")
    @argument("--off", action="store_true", help="unpin it")
    @line_magic
    @magic
    def pin(self, line: str) -> Checkpoint:
        """Keep a checkpoint: ``%prune`` leaves it, and it cannot be deleted until it is unpinned."""
        args = self._read(self.pin, line)
        return self._announcements.later(self._desk.client.pin(args.checkpoint, not args.off))

    @magic_arguments()
    @line_magic
    @magic
    def prune(self, line: str) -> Sequence[str]:
        """Delete every checkpoint that is neither pinned nor what a paused sandbox resumes from; forks live on."""
        self._read(self.prune, line)
        deleted = self._desk.client.prune()
        if not deleted:
            self._announcements.say("No checkpoint to prune")
            return deleted
        return self._announcements.later(deleted)

    @magic_arguments()
    @line_magic
    @magic
    def checkpoints(self, line: str) -> Checkpoints:
        """List the checkpoints, oldest first; ``.to_frame()`` makes a DataFrame of them."""
        self._read(self.checkpoints, line)
        return self._desk.client.checkpoints()

    @magic_arguments()
    @argument("--all", action="store_true", help="closed sandboxes too from which nothing is left")
    @line_magic
    @magic
    def lineage(self, line: str) -> LineageView:
        """Show which sandbox and which checkpoint came from which, as a tree; ``.to_frame()`` makes a DataFrame."""
        return self._desk.client.lineage(all=self._read(self.lineage, line).all)

    @magic_arguments()
    @line_magic
    @magic
    def latency(self, line: str) -> LatencyView:
        """Show how long each operation took, in parts; ``.to_frame()`` makes a DataFrame."""
        self._read(self.latency, line)
        return self._desk.client.latency()

    def _read(self, declared: Callable[..., Any], line: str) -> argparse.Namespace:
        self._announcements.now()
        return arguments.parse(declared, line)

    def _holder(self, name: str | None) -> str | None:
        """The id of the live sandbox that has a name."""
        if name is None:
            return None
        return next((runtime.id for runtime in self._desk.client.runtimes.list() if runtime.name == name), None)

    def _branched(self, child: Runtime, replaced: str | None) -> Runtime:
        head = child.record.head_checkpoint_id
        if head is not None:
            self._warn(self._desk.client.get_checkpoint(head))
        if replaced is not None:
            self._announcements.say(f"The sandbox {child.name} of before was closed: this one takes its place")
            if self._desk.current_id == replaced:
                self._desk.use(child)  # whoever works in "a" goes on in "a"
        return self._announcements.later(child)

    def _warn(self, checkpoint: Checkpoint) -> None:
        """Show a checkpoint that was made on the way and has lost something; a named one was shown when it was made."""
        if checkpoint.record.not_captured and checkpoint.name is None:
            self._announcements.say(repr(checkpoint))
