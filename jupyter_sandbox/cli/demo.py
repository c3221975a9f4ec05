"""
The main job on real input, step by step, in a store of its own that is gone afterwards: what ``make demo`` runs.

Every expectation is checked and printed; the exit code says whether all held.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table

from jupyter_sandbox.cli import figures
from jupyter_sandbox.client import Client, Runtime, connect
from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.rendezvous import STORE_ENV, TOKEN_ENV, URL_ENV, read_server_info

STATE = """\
import pandas as pd, sqlite3
df = pd.DataFrame({"x": range(2_000_000)})
squares = (i * i for i in range(9)); next(squares), next(squares)
cursor = sqlite3.connect(":memory:").execute("select 'one' union all select 'two' union all select 'three'")
cursor.fetchone()
notes = open("notes.txt", "w+"); _ = notes.write("before the fork, after the fork"); _ = notes.seek(17)"""
LOOK = "print(len(In), int(df.x.sum()), next(squares), cursor.fetchone()[0], notes.read(5), sorted(df))"
AT_THE_CHECKPOINT = "3 1999999000000 4 two after ['x']"


class Demo:
    """A run of the demo: what it prints, and what it found wrong.

    Args:
        console: Where it prints.
        store: An empty directory for everything that it makes.
    """

    def __init__(self, console: Console, store: Path) -> None:
        self.console = console
        self.store = store
        self.failures: list[str] = []

    def check(self, holds: bool, what: str) -> None:
        """Print an expectation with a tick, or a cross, and remember the cross."""
        self.console.print(f"  [green]✓[/] {what}" if holds else f"  [bold red]✗ {what}[/]", highlight=False)
        if not holds:
            self.failures.append(what)

    def step(self, title: str) -> None:
        """Begin a part."""
        self.console.print(Rule(f"[bold]{title}", align="left", style="dim"))

    def cell(self, runtime: Runtime, code: str) -> str:
        """Run a cell, print it with what it gives, and return its text without surrounding space."""
        result = runtime.run(code, timeout=60, check=True)
        source = Syntax(code, "python", background_color="default", word_wrap=True)
        self.console.print(f"  [dim]in {runtime.name}, In [{result.execution_count}]:[/]")
        self.console.print(Padding(source, (0, 0, 0, 4)))
        text = result.text.strip()
        if text:
            self.console.print(Padding(text, (0, 0, 0, 4)), style="cyan", highlight=False, markup=False)
        return text

    def branch(self, client: Client) -> None:
        """Checkpoint a runtime with things in it that no pickle holds; fork it twice; all three go their own way."""
        self.step("A runtime: 2 million rows, a running generator, a half-read cursor, an open file")
        exp = client.runtimes.create("fork", "exp")
        self.cell(exp, STATE)

        self.step("checkpoint, and go on")
        self.console.print(Padding(repr(exp.checkpoint("base")), (0, 0, 0, 2)), highlight=False)
        self.cell(exp, "del df['x']; list(squares); _ = cursor.fetchall(), notes.read(); notes.close()")

        self.step("Two forks of the checkpoint")
        a, b = client.fork("base", "a"), client.fork("base", "b")
        for fork in (a, b):
            self.check(self.cell(fork, LOOK) == AT_THE_CHECKPOINT, f"{fork.name} goes on from the very same point")
        self.cell(a, "df['y'] = -df.x; _ = notes.write(' in a'); notes.flush()")
        self.cell(b, "_ = notes.write(' in b'); notes.flush()")
        said = {
            fork.name: self.cell(fork, "print(next(squares), sorted(df), open('notes.txt').read())") for fork in (a, b)
        }
        self.check(
            said["a"] == "9 ['x', 'y'] before the fork, after the fork in a", "a has its own column, and its own file"
        )
        self.check(said["b"] == "9 ['x'] before the fork, after the fork in b", "b knows nothing of a")
        text = self.cell(exp, "print(sorted(df), next(squares, 'used up'), notes.closed, open('notes.txt').read())")
        self.check(text == "[] used up True before the fork, after the fork", "the source went on undisturbed")

    def pause(self, client: Client) -> None:
        """Pause and resume: the same runtime, under the same id."""
        self.step("pause and resume")
        a = client.runtimes.get("a")
        before = a.id
        self.console.print(Padding(repr(a.pause()), (0, 0, 0, 2)), highlight=False)
        self.check(client.runtimes.get("a").status == "paused", "a is paused")
        a.resume()
        self.check(client.runtimes.get("a").id == before, "a is back under the same id")
        self.check(self.cell(a, "print(next(squares), sorted(df))") == "16 ['x', 'y']", "with all that it had")

    def crash(self, client: Client) -> Client:
        """Kill the server between a checkpoint and a fork; go on with the next one."""
        self.step("kill -9 of the server between checkpoint and fork")
        client.checkpoint("b", "before-the-crash")
        killed = _end_server(self.store, signal.SIGKILL)
        client.close()
        client = connect()
        now = read_server_info(self.store)
        self.check(now is not None and now.pid != killed, f"another server (process {now and now.pid}) took over")
        names = {node.checkpoint.name for node in client.lineage() if node.checkpoint is not None}
        self.check({"base", "before-the-crash"} <= names, "the lineage is all there")
        self.check(self.cell(client.runtimes.get("b"), "print(next(squares))") == "16", "b is still running")
        c = client.fork("before-the-crash", "c")
        self.check(self.cell(c, "print(next(squares), sorted(df))") == "16 ['x']", "c goes on from before the crash")
        self.check(self.cell(client.fork("base", "d"), LOOK) == AT_THE_CHECKPOINT, "base is as it was")
        self.console.print(Padding(client.lineage().text(), (0, 0, 0, 2)), highlight=False, markup=False)
        return client

    def gigabyte(self, client: Client) -> None:
        """Checkpoint and fork 1 GB over HTTP, beside a bare os.fork() and dill."""
        self.step("1 GB numpy array: checkpoint and fork over HTTP, beside a bare os.fork() and dill")
        big = client.runtimes.create("fork", "big")
        ours = figures.over_http(client, big)
        self.check(ours.intact, "each fork of it has the whole array, and its own copy")
        big.close(cascade=True)
        rows = [*ours.rows, *figures.bare_fork(), *figures.dill(self.store)]
        table = Table("", "median ms", "of", "what is measured")
        for row in rows:
            table.add_row(row.label, "–" if row.ms is None else f"{row.ms:,.1f}", str(row.n or ""), row.what)
        self.console.print(table)

    def run(self) -> None:
        """All steps, and the end of everything that they started."""
        client = connect()
        try:
            self.branch(client)
            self.pause(client)
            client = self.crash(client)
            self.gigabyte(client)
            self.step("How long it took, as the server saw it (ms; the parts are medians)")
            self.console.print(Padding(client.latency().text(), (0, 0, 0, 2)), highlight=False, markup=False)
        finally:
            self.step("Cleaning up")
            for runtime in client.runtimes.list():
                runtime.close()
            client.prune()
            _end_server(self.store, signal.SIGTERM)
            client.close()
            shutil.rmtree(self.store)
            self.check(_processes_of(self.store) == [], "no process and no file is left")


def _end_server(store: Path, how: signal.Signals) -> int:
    """End the server that holds the store and wait until it is gone; returns which process it was."""
    info = read_server_info(store)
    if info is None:
        raise RuntimeError(f"no server holds {store}")
    os.kill(info.pid, how)
    with contextlib.suppress(ChildProcessError):  # waited for already
        os.waitpid(info.pid, 0)
    return info.pid


def _processes_of(store: Path, patience_s: float = 10.0) -> list[str]:
    """The command lines of processes that work for a store, once those that are ending have ended."""
    deadline = time.monotonic() + patience_s
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # ended just now, or another user's
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(store) in f"{command} {(entry / 'cwd').readlink()}":
                        found.append(command)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


@contextlib.contextmanager
def _private_store() -> Iterator[Path]:
    """A store of the demo's own; whatever server this process would belong to is left alone."""
    before = dict(os.environ)
    store = Path(tempfile.mkdtemp(prefix="jsb-"))
    for name in (URL_ENV, TOKEN_ENV, "JPY_PARENT_PID"):
        os.environ.pop(name, None)
    os.environ[STORE_ENV] = str(store)
    try:
        yield store
    finally:
        os.environ.clear()
        os.environ.update(before)
        if store.exists():
            shutil.rmtree(store)


def main() -> int:
    """Run the demo; 0 when every expectation held."""
    started = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 110)
    with _private_store() as store:
        demo = Demo(console, store)
        try:
            demo.run()
        except SandboxError as error:
            demo.check(holds=False, what=escape(str(error)))
    took = f"{time.monotonic() - started:.0f} s"
    if demo.failures:
        console.print(f"\n[bold red]{len(demo.failures)} of the expectations did not hold[/] ({took})")
        return 1
    console.print(f"\n[bold green]All expectations held[/] ({took})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
