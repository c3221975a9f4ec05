from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from jupyter_sandbox.errors import NameTaken, ServerUnavailable, StorageFull, StoreLocked
from jupyter_sandbox.models import now_ms
from jupyter_sandbox.rendezvous import ServerInfo, write_server_info
from jupyter_sandbox.store import names
from jupyter_sandbox.store.database import Store
from jupyter_sandbox.store.schema import metadata


def pragma(name: str):
    return lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar()


async def test_the_pragmas(store: Store) -> None:
    assert await store.run(pragma("journal_mode")) == "wal"
    assert await store.run(pragma("foreign_keys")) == 1
    assert await store.run(pragma("busy_timeout")) == 5000
    for durable, level in ((False, 1), (True, 2), (False, 1)):
        assert await store.run(pragma("synchronous"), durable=durable) == level


async def test_the_directory_is_private(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o755)
    store = await Store.open(tmp_path / "store")
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    await store.aclose()


async def test_migrations_lead_to_the_schema(store: Store) -> None:
    differences = await store.run(lambda c: compare_metadata(MigrationContext.configure(c), metadata))
    assert differences == []


async def test_work_runs_on_the_one_writer_thread(store: Store) -> None:
    seen = {await store.run(lambda c: threading.get_ident()) for _ in range(5)}
    assert len(seen) == 1
    assert threading.get_ident() not in seen


async def test_all_or_nothing(store: Store) -> None:
    def work(connection: sa.Connection) -> None:
        names.take(connection, "a", "runtime", "x")
        names.take(connection, "b", "runtime", "x")
        names.take(connection, "a", "runtime", "y")

    with pytest.raises(NameTaken):
        await store.run(work)
    assert await store.run(lambda c: names.holder(c, "b")) is None


async def test_rows_outlive_the_store(tmp_path: Path) -> None:
    for round_ in range(2):
        store = await Store.open(tmp_path)
        if round_ == 0:
            await store.run(lambda c: names.take(c, "a", "runtime", "x"))
        assert await store.run(lambda c: names.holder(c, "a")) == ("runtime", "x")
        await store.aclose()


async def test_the_lock_names_its_holder(store: Store) -> None:
    with pytest.raises(StoreLocked) as caught:
        await Store.open(store.directory)
    assert caught.value.context["pid"] == os.getpid()
    write_server_info(
        store.directory, ServerInfo(url="http://127.0.0.1:1", token="t", pid=4321, started_at_ms=now_ms())
    )
    with pytest.raises(StoreLocked, match="process 4321"):
        await Store.open(store.directory)
    await store.aclose()
    await store.aclose()
    again = await Store.open(store.directory)
    await again.aclose()


async def test_the_lock_goes_with_its_process_and_not_with_its_children(tmp_path: Path) -> None:
    code = (
        "import asyncio, subprocess, sys; from pathlib import Path;"
        "from jupyter_sandbox.store.database import Store;"
        "asyncio.run(Store.open(Path(sys.argv[1])));"
        "null = subprocess.DEVNULL; child = subprocess.Popen(['sleep', '60'], close_fds=False, stdin=null, stdout=null); print(child.pid, flush=True); sys.stdin.read()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    try:
        with pytest.raises(StoreLocked) as caught:
            await Store.open(tmp_path)
        assert caught.value.context["pid"] == process.pid
        process.kill()
        await process.wait()
        store = await Store.open(tmp_path)
        await store.aclose()
    finally:
        os.kill(child, 9)
    await process.communicate()


async def test_a_full_disk_is_said_and_nothing_is_written(store: Store) -> None:
    pages = await store.run(pragma("page_count"))
    await store.run(pragma(f"max_page_count={pages}"))

    def fill(connection: sa.Connection) -> None:
        names.take(connection, "first", "runtime", "x")
        for n in range(5000):
            names.take(connection, f"n{n}", "runtime", "x" * 500)

    with pytest.raises(StorageFull):
        await store.run(fill)
    await store.run(pragma("max_page_count=100000"))
    assert await store.run(lambda c: names.holder(c, "first")) is None
    await store.run(lambda c: names.take(c, "first", "runtime", "x"))


async def test_after_an_io_error_nothing_more_is_acknowledged(store: Store) -> None:
    def broken(_: sa.Connection) -> None:
        cause = sqlite3.OperationalError("disk I/O error")
        cause.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise sa.exc.OperationalError("COMMIT", {}, cause)

    with pytest.raises(ServerUnavailable, match="disk I/O error"):
        await store.run(broken)
    with pytest.raises(ServerUnavailable, match="disk I/O error"):
        await store.run(lambda c: names.take(c, "a", "runtime", "x"))


async def test_a_closed_store_says_so(store: Store) -> None:
    await store.aclose()
    with pytest.raises(ServerUnavailable):
        await store.run(pragma("synchronous"))


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sandbox.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(sa.exc.DatabaseError):
        await Store.open(tmp_path)
    (tmp_path / "sandbox.db").unlink()
    store = await Store.open(tmp_path)  # the lock was given back
    await store.aclose()
