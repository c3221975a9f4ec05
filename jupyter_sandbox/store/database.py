"""One SQLite file, one process that holds it, one thread that writes it.

All work on the database is a function of a connection, run as one transaction on the store's own thread: the event
loop never waits for a disk, and transactions never meet each other.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from jupyter_sandbox.errors import ServerUnavailable, StorageFull, StoreLocked
from jupyter_sandbox.rendezvous import read_server_info

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

T = TypeVar("T")

_ALEMBIC = threading.Lock()  # Alembic's context is a global of the process


class Store:
    """The open store. Made by `Store.open`, closed by `aclose`."""

    def __init__(self, directory: Path, lock: int) -> None:
        self.directory = directory
        self._lock = lock
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="jupyter-sandbox-store")
        self._connection: sa.Connection | None = None
        self._synchronous = ""
        self._broken = ""

    @classmethod
    async def open(cls, directory: Path) -> Store:
        """Lock the directory (made when absent, mode 0700), and bring its database to this version's schema.

        Raises:
            StoreLocked: Another server holds it; ``context["pid"]`` names the process when it is known.
            StorageFull: There is no room for the database.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        store = cls(directory, _lock(directory))
        try:
            await store._on_writer(store._connect)
        except BaseException:
            await store.aclose()
            raise
        return store

    async def aclose(self) -> None:
        """Finish what is queued, close the file, give the lock back. A second call does nothing."""
        if self._lock < 0:
            return
        await self._on_writer(self._disconnect)
        self._writer.shutdown()
        os.close(self._lock)  # closing ends the lock: it belongs to this open file
        self._lock = -1

    async def run(self, work: Callable[[sa.Connection], T], *, durable: bool = False) -> T:
        """Run ``work`` as one transaction: all of it is committed when this returns, none of it when this raises.

        Args:
            work: Called on the writer's thread with the connection; must not keep it.
            durable: Whether the commit must survive a power cut (``synchronous=FULL``), not only a kill of the process.

        Raises:
            StorageFull: The disk is full; nothing was written.
            ServerUnavailable: The disk failed: what it holds is unknown until the store is opened again.
        """
        if self._lock < 0:
            raise ServerUnavailable("The store is closed", remedy="Start the server again")
        return await self._on_writer(lambda: self._transact(work, durable=durable))

    async def _on_writer(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    # -- on the writer's thread

    def _connect(self) -> None:
        engine = sa.create_engine(sa.URL.create("sqlite", database=str(self.directory / "sandbox.db")))
        sa.event.listen(engine, "connect", _configure)
        # the driver's own BEGIN comes late (at the first write); ours comes first, so that reads belong to it too
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        self._connection = engine.connect()
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = self._connection
        try:
            with _ALEMBIC:
                command.upgrade(config, "head")
            self._connection.commit()
        except sa.exc.DatabaseError as error:
            raise self._explained(error) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            engine = self._connection.engine
            self._connection.close()
            engine.dispose()
            self._connection = None

    def _transact(self, work: Callable[[sa.Connection], T], *, durable: bool) -> T:
        if self._broken:
            raise ServerUnavailable(f"The store's disk failed: {self._broken}", remedy="Start the server again")
        connection = self._connection
        assert connection is not None  # noqa: S101 - `run` was called, so the store is open
        self._set_synchronous("FULL" if durable else "NORMAL")
        try:
            with connection.begin():
                return work(connection)
        except sa.exc.OperationalError as error:
            raise self._explained(error) from error

    def _set_synchronous(self, level: str) -> None:
        """SQLite accepts a change between transactions only."""
        if level != self._synchronous and self._connection is not None:
            driver: Any = self._connection.connection.driver_connection
            driver.execute(f"PRAGMA synchronous={level}")
            self._synchronous = level

    def _explained(self, error: sa.exc.DatabaseError) -> Exception:
        cause = error.orig
        name = getattr(cause, "sqlite_errorname", "") if isinstance(cause, sqlite3.Error) else ""
        if name == "SQLITE_FULL":
            return StorageFull(f"There is no room left for the store in {self.directory}", remedy="Free some space")
        if name.startswith("SQLITE_IOERR"):
            # after a failed fsync a second one may succeed without having written: trust nothing until reopened
            self._broken = str(cause)
            return ServerUnavailable(f"The store's disk failed: {cause}", remedy="Start the server again")
        return error


def _configure(driver: DBAPIConnection, _: object) -> None:
    driver.isolation_level = None
    cursor = driver.cursor()
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "busy_timeout=5000", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _lock(directory: Path) -> int:
    """Take the exclusive lock; the descriptor holds it until it is closed. Children that exec do not inherit it."""
    path = directory / "store.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        info = read_server_info(directory)
        written = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        pid = info.pid if info is not None else int(written) if written.isdigit() else None
        who = f"process {pid}" if pid is not None else "another process"
        raise StoreLocked(
            f"The store {directory} is held by {who}",
            remedy="Use that server, or end it first",
            store=str(directory),
            pid=pid,
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
