"""Which session is bound to which live backend, and what happens when a backend ends by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jupyter_sandbox.engines.base import Backend, Engine
from jupyter_sandbox.errors import RuntimeFailed, SandboxError
from jupyter_sandbox.service.dirty import DirtyTracker
from jupyter_sandbox.service.tasks import Tasks

log = logging.getLogger(__name__)


class Binding:
    """A live backend, the sessions on it, and whether it changed."""

    def __init__(self, engine: Engine, backend: Backend) -> None:
        self.engine = engine
        self.backend = backend
        self.dirty = DirtyTracker()
        self.sessions: set[str] = set()
        self.watch: asyncio.Task[None] | None = None


class Backends:
    """The bindings of one control plane. Usually one session per backend; `share` binds more.

    Args:
        tasks: Where the watches over the backends run.
        on_death: Called with the binding, and the reason in a sentence, when a backend ended by itself.
    """

    def __init__(self, tasks: Tasks, on_death: Callable[[Binding, str], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._on_death = on_death
        self._of: dict[str, Binding] = {}
        self._unreleased: dict[str, Engine] = {}

    def bind(self, session_id: str, engine: Engine, backend: Backend, *, clean_on: str | None = None) -> Binding:
        """Bind a session to a backend that was made for it, or adopted.

        Args:
            session_id: The session.
            engine: Whose backend it is.
            backend: The live backend.
            clean_on: The provider snapshot that it was made from; until something changes it, it equals that.
        """
        binding = Binding(engine, backend)
        if clean_on is not None:
            binding.dirty.taken(clean_on, binding.dirty.generation)
        binding.sessions.add(session_id)
        self._of[session_id] = binding
        binding.watch = self._tasks.spawn(self._watch(binding))
        return binding

    def share(self, session_id: str, other: str) -> Binding:
        """Bind a session to the backend of another one."""
        binding = self.of(other)
        binding.sessions.add(session_id)
        self._of[session_id] = binding
        return binding

    def find(self, session_id: str) -> Binding | None:
        """The session's binding, None for one that is paused, failed or closed."""
        return self._of.get(session_id)

    def of(self, session_id: str) -> Binding:
        """The session's binding.

        Raises:
            RuntimeFailed: It has none: its backend ended a moment ago, or was never reached since the server started.
        """
        binding = self._of.get(session_id)
        if binding is None:
            raise RuntimeFailed(
                f"Runtime {session_id} has no live backend", remedy="Check out one of its checkpoints, or close it"
            )
        return binding

    async def unbind(self, session_id: str) -> None:
        """Take a session off its backend; the backend goes with the last one. Never fails: what stays is tried again."""
        binding = self._of.pop(session_id, None)
        if binding is None:
            return
        binding.sessions.discard(session_id)
        if not binding.sessions:
            if binding.watch is not None:
                binding.watch.cancel()
            await self.release(binding.engine, binding.backend.backend_id)

    async def release(self, engine: Engine, backend_id: str) -> None:
        """End a backend that no session is bound to; one that cannot be ended now is tried again at the next release."""
        self._unreleased[backend_id] = engine
        for waiting, its_engine in list(self._unreleased.items()):
            try:
                await its_engine.release(waiting)
            except SandboxError as error:
                log.warning("Backend %s could not be released: %s", waiting, error)
            else:
                self._unreleased.pop(waiting, None)

    async def _watch(self, binding: Binding) -> None:
        try:
            reason = await binding.backend.died()
        except SandboxError as error:
            reason = error.message
        for session_id in binding.sessions:
            self._of.pop(session_id, None)
        await self._on_death(binding, reason)
