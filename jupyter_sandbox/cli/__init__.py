"""``jupyter sandbox …``: the verbs of the magics, for a shell.

``app`` (the group, errors, the options every command has) · ``output`` (text, tables, JSON) · ``runtimes``,
``running``, ``branching``, ``views``, ``serving`` (the commands).
"""

from __future__ import annotations

from jupyter_sandbox.cli import branching, running, runtimes, serving, views
from jupyter_sandbox.cli.app import cli

__all__ = ["cli", "main"]

for _command in (
    runtimes.create,
    running.run,
    running.exec_,
    branching.checkpoint,
    branching.fork,
    branching.checkout,
    runtimes.pause,
    runtimes.resume,
    runtimes.close,
    views.ls,
    views.checkpoints,
    views.lineage,
    views.latency,
    views.engines,
    branching.pin,
    branching.delete,
    branching.prune,
    serving.serve_command,
):
    cli.add_command(_command)
del _command


def main() -> None:
    """Run the command line; ends the process."""
    cli(prog_name="jupyter sandbox")
