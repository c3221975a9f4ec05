"""What the product is for, over HTTP against a real Jupyter server: the state of the issue's own example, and 1 GB."""

from __future__ import annotations

import threading

import pytest

from jupyter_sandbox import connect
from jupyter_sandbox.client import Client
from jupyter_sandbox.errors import RuntimeFailed

PREPARE = """
import pandas as pd, sqlite3, numpy as np
df = pd.DataFrame({"x": range(2_000_000)}); gen = (i*i for i in range(9)); next(gen)
db = sqlite3.connect(":memory:"); cur = db.execute("select 1 union select 2"); cur.fetchone(); open("notes.txt","w").write("v1")
notes = open("notes.txt"); notes.read(1)
big = np.ones(125_000_000)
"""
OBSERVE = "print(len(In), int(df.x.sum()), next(gen), cur.fetchone(), notes.read(), float(big.sum()), open('notes.txt').read())"
AT_THE_CHECKPOINT = "3 1999999000000 1 (2,) 1 125000000.0 v1\n"


@pytest.fixture
def sb(jupyter_server_process):
    with connect(jupyter_server_process.url, jupyter_server_process.token) as client:
        yield client


def private_mb(sb: Client, name: str) -> float:
    memory = sb.runtimes.get(name).record.memory
    assert memory is not None
    return memory.private_bytes / 1e6


def test_two_forks_of_a_gigabyte_are_at_the_checkpoint_and_independent_afterwards(sb):
    source = sb.runtimes.create(name="exp")
    source.run(PREPARE, check=True)
    source.checkpoint("base")
    first, second = sb.fork("base", "a"), sb.fork("base", "b")

    assert source.run(OBSERVE, check=True).text == AT_THE_CHECKPOINT
    assert first.run(OBSERVE, check=True).text == AT_THE_CHECKPOINT
    first.run("big[:] = 7; del df; open('notes.txt', 'w').write('a was here'); gen.close()", check=True)
    assert second.run(OBSERVE, check=True).text == AT_THE_CHECKPOINT
    assert source.run(
        "print(float(big.sum()), 'df' in dir(), next(gen), open('notes.txt').read())", check=True
    ).text == ("125000000.0 True 4 v1\n")
    # The array of the fork that wrote is its own, that of the fork that read is shared.
    assert private_mb(sb, "a") > 1000
    assert private_mb(sb, "b") < 200


def test_the_source_goes_on_while_its_forks_run(sb):
    source = sb.runtimes.create(name="exp")
    source.run("total = 0")
    source.checkpoint("base")
    kid = sb.fork("base", "kid")
    results = {}
    threads = [
        threading.Thread(
            target=lambda r=r: results.update({r.name: r.run("for i in range(10**6): total += i\ntotal").text})
        )
        for r in (source, kid)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"exp": "499999500000", "kid": "499999500000"}


def test_pause_and_resume_twenty_times_keep_id_memory_and_files(sb):
    runtime = sb.runtimes.create(name="exp")
    runtime.run("import os; os.makedirs('d'); data = {'n': 0}; gen = iter(range(1000)); log = open('d/log.txt', 'a')")
    for turn in range(20):
        runtime.run("data['n'] += 1; log.write(f\"{data['n']} \"); log.flush()", check=True)
        runtime_id = runtime.id
        runtime.pause()
        assert sb.runtimes.get("exp").status == "paused"
        runtime.resume()
        assert runtime.id == runtime_id
        text = runtime.run("print(data['n'], next(gen), open('d/log.txt').read())", check=True).text
        assert text == f"{turn + 1} {turn} {' '.join(str(n) for n in range(1, turn + 2))} \n"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_between_checkpoint_and_fork_the_server_goes(jupyter_server_process, end):
    server = jupyter_server_process
    with connect(server.url, server.token) as sb:
        runtime = sb.runtimes.create(name="exp")
        runtime.run("gen = (i * i for i in range(9)); next(gen); open('f.txt', 'w').write('v1')", check=True)
        runtime.checkpoint("base")
        paused = sb.fork("base", "paused")
        paused.pause()
        getattr(server, end)()
        server.start()
        assert sb.fork("base", "kid").run("print(next(gen), open('f.txt').read())", check=True).text == "1 v1\n"
        assert sb.runtimes.get("exp").run("print(next(gen))", check=True).text == "1\n"
        assert sb.runtimes.get("paused").status == "paused"
        assert sb.runtimes.get("paused").resume().run("print(next(gen))", check=True).text == "1\n"
        kinds = {(node.kind, (node.runtime or node.checkpoint).name) for node in sb.lineage()}
        assert {("runtime", "exp"), ("runtime", "kid"), ("runtime", "paused"), ("checkpoint", "base")} <= kinds


def test_a_worker_that_was_killed_is_told_and_its_checkpoint_is_the_way_back(sb):
    runtime = sb.runtimes.create(name="exp")
    runtime.run("x = 41")
    runtime.checkpoint("base")
    with pytest.raises(RuntimeFailed, match="SIGKILL"):
        runtime.run("import os; os.kill(os.getpid(), 9)")
    record = sb.runtimes.get("exp").record
    assert record.status == "failed"
    assert "SIGKILL" in record.reason
    assert sb.fork("base", "again").run("print(x + 1)").text == "42\n"


def test_nothing_is_left_of_what_was_closed_and_deleted(jupyter_server_process, sb):
    runtime = sb.runtimes.create(name="exp")
    runtime.run("import subprocess; subprocess.Popen(['sleep', '67'])")
    runtime.exec(shell="sleep 68 &")
    runtime.checkpoint("base")
    sb.fork("base", "kid")
    engine = jupyter_server_process.store_dir / "engines" / "fork"
    assert len(list((engine / "live").iterdir())) == 2
    runtime.close(cascade=True)
    assert list((engine / "live").iterdir()) == []
    assert list((engine / "frozen").iterdir()) == []
    assert _running("sleep 67", "sleep 68") == []


def _running(*commands: str) -> list[str]:
    from pathlib import Path

    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        found += [line for command in commands if line == command]
    return found
