"""What is done around a fork, in order: the one place where library hazards are met.

``CHECKPOINT`` runs in the source before the fork, ``THAW`` in a fork that becomes a runtime. The order matters: a
thawing process disowns what belongs to its source before anything else, and is ready only after the last step.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import inventory
from .openfiles import OpenFile, moved, repoint
from .worker import Worker

Context = TypeVar("Context")


@dataclass
class Checkpoint:
    """What the source learns before it forks, and its fork keeps.

    Attributes:
        worker: The source's worker.
        not_captured: Rows of ``kind``, ``what``, ``remedy``.
        random_state: Of `random`; Python reseeds it in every fork.
    """

    worker: Worker
    not_captured: list[dict[str, str]] = field(default_factory=list)
    random_state: Any = None


@dataclass
class Held:
    """What a frozen process holds; a template holds only its worker.

    Attributes:
        worker: The source's worker, as it was.
        root: The working directory that the source had.
        cwd: The directory that it was in.
        files: The files that were open.
        random_state: Of `random`.
    """

    worker: Worker
    root: str = ""
    cwd: str = ""
    files: list[OpenFile] = field(default_factory=list)
    random_state: Any = None


@dataclass
class Thaw:
    """A fork of a frozen process that becomes a runtime.

    Attributes:
        held: The fork's own copy of what the frozen process holds.
        directory: The new runtime's directory.
        root: The new runtime's working directory.
        reseed: Whether to renew random streams, or to go on with those of the checkpoint.
        env: Added to the environment.
        memory_bytes: The most private writable memory it may map; None for no bound.
    """

    held: Held
    directory: str
    root: str
    reseed: bool
    env: dict[str, str]
    memory_bytes: int | None


def _say_all(checkpoint: Checkpoint) -> None:
    """A buffer that is full at the fork would be written twice."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    checkpoint.worker.interpreter.freeze()


def _take_inventory(checkpoint: Checkpoint) -> None:
    worker = checkpoint.worker
    worker.reap_children()
    worker.interpreter.settle()
    checkpoint.not_captured = inventory.scan(worker.root, ours=worker.own_descriptors, own_pids=worker.own_children)


def _keep_random_state(checkpoint: Checkpoint) -> None:
    checkpoint.random_state = random.getstate()


def _leave_the_session(_thaw: Thaw) -> None:
    """Signals to the source's process group are not for us, and ours not for it."""
    os.setsid()


def _open_files_anew(thaw: Thaw) -> None:
    repoint(thaw.held.files, thaw.held.root, thaw.root)


def _enter_the_directory(thaw: Thaw) -> None:
    held = thaw.held
    os.chdir(moved(held.cwd, held.root, thaw.root) or held.cwd or thaw.root)
    held.worker.root = thaw.root


def _take_the_environment(thaw: Thaw) -> None:
    os.environ.update(thaw.env)


def _obey_the_limits(thaw: Thaw) -> None:
    if thaw.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (thaw.memory_bytes, thaw.memory_bytes))


def _become_somebody_else(thaw: Thaw) -> None:
    thaw.held.worker.interpreter.thaw()


def _renew_randomness(thaw: Thaw) -> None:
    """`random` was reseeded by the fork itself; numpy's global stream was not."""
    if not thaw.reseed:
        if thaw.held.random_state is not None:
            random.setstate(thaw.held.random_state)
        return
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def _attach(thaw: Thaw) -> None:
    thaw.held.worker.attach(thaw.directory)


CHECKPOINT: tuple[Callable[[Checkpoint], None], ...] = (_take_inventory, _keep_random_state, _say_all)
"""In the source, in this order."""

THAW: tuple[Callable[[Thaw], None], ...] = (
    _leave_the_session,
    _open_files_anew,
    _enter_the_directory,
    _take_the_environment,
    _obey_the_limits,
    _become_somebody_else,
    _renew_randomness,
    _attach,
)
"""In the fork, in this order."""


def run(steps: Iterable[Callable[[Context], None]], context: Context) -> None:
    """Run the steps; the first that raises ends it."""
    for step in steps:
        step(context)
