"""What the parts of the control plane share: the rows, the bindings, and the check before every step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import sqlalchemy as sa

from jupyter_sandbox.engines.base import Engine
from jupyter_sandbox.errors import SandboxError, SessionBusy
from jupyter_sandbox.lifecycle import Event, advance
from jupyter_sandbox.models import MemoryUse, RuntimeRecord, RuntimeSummary, SessionLifecycleStatus, SessionRecord
from jupyter_sandbox.service import names, reconcile
from jupyter_sandbox.service.backends import Backends, Binding
from jupyter_sandbox.service.config import ServiceConfig
from jupyter_sandbox.service.hosts import Hosts
from jupyter_sandbox.service.locks import Gates, Writes
from jupyter_sandbox.service.operations import Operation, operation
from jupyter_sandbox.service.snapshots import Snapshots
from jupyter_sandbox.service.tasks import Tasks
from jupyter_sandbox.store import sessions
from jupyter_sandbox.store.database import Store

log = logging.getLogger(__name__)


class Core:
    """The shared state of one control plane."""

    def __init__(
        self, config: ServiceConfig, store: Store, engines: Mapping[str, Engine], problems: Mapping[str, str]
    ) -> None:
        self.config = config
        self.store = store
        self.tasks = Tasks()
        self.gates = Gates()
        self.hosts = Hosts(config, engines, problems, self._reconcile)
        self.snapshots = Snapshots(store, self.hosts)
        self.backends = Backends(self.tasks, self._died)

    async def _reconcile(self, name: str, engine: Engine) -> None:
        await reconcile.engine(name, engine, self.store, self.backends, self.gates, self.snapshots)

    async def _died(self, binding: Binding, reason: str) -> None:
        """A backend ended by itself: what was bound to it is failed."""
        bound = tuple(binding.sessions)

        def mark(connection: sa.Connection) -> None:
            for session_id in bound:
                there = sessions.get(connection, session_id)
                # a pause or close that was quicker has let it go already
                if there is not None and there.backend_instance == binding.backend.backend_id:
                    status = advance(there.status, Event.fail, runtime=session_id)
                    sessions.update(connection, session_id, status=status, status_reason=reason)

        durable = binding.engine.capabilities.durable
        await self.store.run(mark, durable=durable)

    # -- rows

    def operation(self, word: str) -> AbstractAsyncContextManager[Operation]:
        """Begin an operation."""
        return operation(self.store, word)

    async def session(self, ref: str) -> SessionRecord:
        """The session that a reference means.

        Raises:
            RuntimeNotFound: There is none.
        """
        return await self.store.run(lambda c: names.runtime(c, ref))

    def durable(self, session: SessionRecord) -> bool:
        """Whether rows about it must survive a power cut."""
        return self.hosts.capabilities(session.settings.engine).durable

    async def release(self, session: SessionRecord) -> None:
        """Let go of the backend that a session was bound to; ``session`` is the record from before it was closed."""
        if self.backends.find(session.session_id) is not None:
            await self.backends.unbind(session.session_id)
        elif session.backend_instance is not None:  # it failed: what is left of the backend goes with its last session
            backend_id, name = session.backend_instance, session.settings.engine
            if backend_id not in await self.store.run(lambda c: sessions.bound_backends(c, name)):
                await self.backends.release(await self.hosts.get(name), backend_id)
        self.gates.part(session.session_id)

    # -- status

    def status(self, session: SessionRecord) -> SessionLifecycleStatus:
        """The status now: an idle row whose backend is in use is running."""
        if session.status is SessionLifecycleStatus.idle and self.gates.of(session.session_id).use is not None:
            return SessionLifecycleStatus.running
        return session.status

    def admit(self, session: SessionRecord, event: Event) -> SessionLifecycleStatus:
        """The status after ``event``, by what runs now.

        Raises:
            SessionBusy: Something runs or waits to; ``context["operation"]`` and ``["operation_id"]`` name it.
            RuntimeFailed, WrongStatus: The status machine has no such step.
        """
        use = self.gates.of(session.session_id).use
        try:
            return advance(
                self.status(session),
                event,
                runtime=session.name or session.session_id,
                operation=use.operation if use else None,
                reason=session.status_reason,
            )
        except SessionBusy as error:
            if use is not None:
                error.context["operation_id"] = use.operation_id
            raise

    def admit_row(self, session: SessionRecord, event: Event) -> SessionLifecycleStatus:
        """As `admit`, by the row only: for the one who has the turn, whoever waits behind."""
        runtime = session.name or session.session_id
        return advance(session.status, event, runtime=runtime, reason=session.status_reason)

    @asynccontextmanager
    async def alone(self, op: Operation, ref: str, event: Event, *, writes: Writes) -> AsyncIterator[SessionRecord]:
        """The runtime for one exclusive operation, and its session as it is then.

        Raises:
            SessionBusy, RuntimeFailed, WrongStatus: ``event`` does not fit, at arrival or when its turn comes.
        """
        session = await self.session(ref)
        self.admit(session, event)
        while True:
            gate = self.gates.of(session.session_id)
            async with op.waiting(gate.exclusive(op.word, op.id, writes=writes)):
                if self.gates.of(session.session_id) is not gate:
                    continue  # it left the backend whose order this was
                session = await self.session(session.session_id)
                self.admit_row(session, event)
                yield session
                return

    # -- what callers see

    def public(self, session: SessionRecord) -> RuntimeRecord:
        """The record, with the status of now."""
        return session.model_copy(update={"status": self.status(session)}).public()

    async def summary(self, session: SessionRecord) -> RuntimeSummary:
        """The record with what lists add; memory where the engine can tell."""
        capabilities = self.hosts.capabilities(session.settings.engine)
        if session.settings.cwd is not None:  # a directory of the caller's is used in place and not captured
            capabilities = capabilities.model_copy(update={"files": False})
        binding = self.backends.find(session.session_id)
        memory = await self._memory(binding) if binding else None
        return RuntimeSummary(
            **self.public(session).model_dump(),
            name=session.name,
            engine=session.settings.engine,
            isolation=capabilities.isolation,
            capabilities=capabilities,
            image=session.settings.image,
            cwd=binding.backend.cwd if binding else None,
            head_checkpoint_id=session.head_checkpoint_id,
            parent_runtime_id=session.parent_runtime_id,
            reason=session.status_reason,
            busy_with=self.gates.of(session.session_id).busy_with,
            memory=memory,
            metadata=session.metadata,
        )

    async def summaries(self, records: list[SessionRecord]) -> list[RuntimeSummary]:
        """As `summary`, for many at once."""
        return list(await asyncio.gather(*(self.summary(record) for record in records)))

    async def _memory(self, binding: Binding) -> MemoryUse | None:
        try:
            return await binding.backend.memory()
        except SandboxError as error:  # it is ending right now: its status will say so
            log.debug("No memory figure of %s: %s", binding.backend.backend_id, error)
            return None
