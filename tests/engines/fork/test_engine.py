from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from jupyter_sandbox.agent.processes import process_id
from jupyter_sandbox.engines.base import Child
from jupyter_sandbox.engines.fork import ForkEngine
from jupyter_sandbox.engines.fork.ending import wait_gone
from jupyter_sandbox.engines.fork.layout import identity
from jupyter_sandbox.errors import CheckpointLost, InvalidRequest, RuntimeFailed, SessionBusy
from jupyter_sandbox.models import ExecRequest, RuntimeCreateRequest, new_id
from tests.engines.fork.conftest import Lab

pytestmark = pytest.mark.asyncio(loop_scope="package")

PREPARE = """
import sqlite3
gen = (i * i for i in range(9)); next(gen)
db = sqlite3.connect(":memory:"); cursor = db.execute("select 1 union select 2 union select 3"); cursor.fetchone()
open("notes.txt", "w").write("0123456789")
notes = open("notes.txt", "r+"); notes.read(3)
table = {"x": [1, 2, 3]}
"""
OBSERVE = "print(next(gen), cursor.fetchone(), notes.read(2), table, open('notes.txt').read())"


async def test_two_forks_go_on_from_the_very_same_point_and_are_independent(lab):
    source = await lab.create()
    await lab.run(source, PREPARE)
    snapshot = await lab.checkpoint(source)
    first = await lab.fork(snapshot)
    await lab.run(
        first, "notes.seek(0); notes.write('FIRST'); notes.flush(); notes.seek(3); table['x'].append('first')"
    )
    second = await lab.fork(snapshot)
    expected = "1 (2,) 34 {'x': [1, 2, 3]} 0123456789\n"
    assert await lab.run(second, OBSERVE) == expected
    assert await lab.run(source, OBSERVE) == expected
    assert (await lab.run(first, OBSERVE)).startswith("1 (2,) ST {'x': [1, 2, 3, 'first']} FIRST56789")


async def test_the_source_moving_on_moves_no_fork(lab):
    source = await lab.create()
    await lab.run(source, PREPARE)
    snapshot = await lab.checkpoint(source)
    for _ in range(3):
        await lab.run(source, OBSERVE)
    await lab.run(source, "del table; notes.close(); import os; os.remove('notes.txt')")
    assert await lab.run(await lab.fork(snapshot), OBSERVE) == "1 (2,) 34 {'x': [1, 2, 3]} 0123456789\n"


async def test_a_checkpoint_of_a_fork_and_forks_after_the_source_is_gone(lab):
    source = await lab.create()
    await lab.run(source, "trail = ['source']")
    first = await lab.checkpoint(source)
    child = await lab.fork(first)
    await lab.run(child, "trail.append('child')")
    second = await lab.checkpoint(child)
    for backend in (source, child):
        await lab.engine.release(backend.backend_id)
    await lab.engine.delete_snapshot(first.ref)
    assert await lab.run(await lab.fork(second), "print(trail)") == "['source', 'child']\n"


async def test_in_counter_and_history_go_on(lab):
    source = await lab.create()
    await lab.run(source, "x = 1")
    await lab.run(source, "x + 1")
    child = await lab.fork(await lab.checkpoint(source))
    events = await lab.events(child, "print(In[1:], Out)")
    assert events[0].output["text"] == "['x = 1', 'x + 1', 'print(In[1:], Out)'] {2: 2}\n"
    assert events[-1].execution_count == 3


async def test_background_tasks_of_the_loop_tick_on_in_every_fork(lab):
    source = await lab.create()
    await lab.run(
        source,
        """
import asyncio
ticks = 0
async def tick():
    global ticks
    while True:
        ticks += 1
        await asyncio.sleep(0)
task = asyncio.get_running_loop().create_task(tick())
await asyncio.sleep(0)
""",
    )
    child = await lab.fork(await lab.checkpoint(source))
    for backend in (source, child):
        await lab.run(backend, "seen = ticks\nwhile ticks < seen + 5: await asyncio.sleep(0)")


async def test_random_streams_differ_in_siblings_by_default_and_repeat_on_request(lab):
    source = await lab.create()
    await lab.run(source, "import random, numpy; random.seed(1); numpy.random.seed(1)")
    snapshot = await lab.checkpoint(source)
    draw = "print(random.random(), numpy.random.rand())"
    renewed = {await lab.run(await lab.fork(snapshot), draw) for _ in range(3)}
    assert len(renewed) == 3
    assert len({text.split()[1] for text in renewed}) == 3
    exact = {await lab.run(await lab.fork(snapshot, reseed=False), draw) for _ in range(2)}
    assert exact == {await lab.run(source, draw)}


async def test_own_ids_are_renewed(lab):
    source = await lab.create()
    look = "ip = get_ipython(); print(ip.kernel.session.session, ip.kernel.ident, __import__('os').getpid())"
    await lab.run(source, "1")
    snapshot = await lab.checkpoint(source)
    ids = [
        (await lab.run(backend, look)).split()
        for backend in (source, await lab.fork(snapshot), await lab.fork(snapshot))
    ]
    for column in zip(*ids, strict=True):
        assert len(set(column)) == 3


async def test_a_fork_owns_its_directory_and_stays_in_the_subdirectory_it_was_in(lab):
    source = await lab.create()
    await lab.run(source, "import os; os.mkdir('sub'); os.chdir('sub'); open('a.txt', 'w').write('a')")
    child = await lab.fork(await lab.checkpoint(source))
    assert (await lab.run(child, "print(os.getcwd())")).strip() == f"{child.cwd}/sub"
    assert child.cwd != source.cwd
    await lab.run(child, "open('a.txt', 'w').write('child')")
    assert await source.read_bytes("sub/a.txt") == b"a"


async def test_a_directory_of_the_callers_is_used_in_place_and_said_not_to_be_captured(lab, tmp_path):
    (tmp_path / "data.csv").write_text("1")
    source = await lab.create(cwd=str(tmp_path))
    assert await lab.run(source, "print(open('data.csv').read())") == "1\n"
    snapshot = await lab.checkpoint(source)
    assert not snapshot.files
    assert ("directory", str(tmp_path)) in {(row.kind, row.what) for row in snapshot.not_captured}
    child = await lab.fork(snapshot, cwd=str(tmp_path))
    assert child.cwd == str(tmp_path)
    await lab.engine.release(source.backend_id)
    await lab.engine.release(child.backend_id)
    assert (tmp_path / "data.csv").exists()


async def test_what_is_not_captured_is_listed_and_what_is_ours_is_not(lab):
    source = await lab.create()
    await lab.run(source, "%%bash\necho this starts a thread of IPython")
    assert (await lab.checkpoint(source)).not_captured == ()
    await lab.run(
        source,
        "import threading, subprocess, time\n"
        "stop = threading.Event(); threading.Thread(target=stop.wait, name='poller', daemon=True).start()\n"
        "child = subprocess.Popen(['sleep', '60'])",
    )
    rows = (await lab.checkpoint(source)).not_captured
    assert {row.kind for row in rows} == {"thread", "process"}
    assert any("poller" in row.what for row in rows)
    assert any("sleep 60" in row.what for row in rows)
    assert all(row.remedy for row in rows)


async def test_a_command_left_in_the_background_is_listed_and_ends_with_its_runtime(lab):
    source = await lab.create()
    events = [event async for event in source.exec(ExecRequest(shell="sleep 61 & echo $!"))]
    pid = int(events[0].text)
    rows = (await lab.checkpoint(source)).not_captured
    assert [(row.kind, row.what) for row in rows] == [("process", "sleep 61")]
    await lab.engine.release(source.backend_id)
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


async def test_what_cells_started_ends_with_the_runtime_even_in_a_session_of_its_own(lab):
    source = await lab.create()
    code = "import subprocess; print(subprocess.Popen(['sleep', '62'], start_new_session=True).pid)"
    pid = int(await lab.run(source, code))
    await lab.engine.release(source.backend_id)
    assert not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


async def test_a_fork_is_no_child_that_the_users_wait_could_meet(lab):
    source = await lab.create()
    await lab.checkpoint(source)
    code = "import os\ntry:\n    print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError:\n    print('none')"
    for _ in range(100):  # it leaves the family right after the source has its answer
        text = await lab.run(source, code)
        if text == "none\n":
            return
        await asyncio.sleep(0.01)
    raise AssertionError(text)


async def test_checkpoints_leave_nothing_in_the_source(lab):
    source = await lab.create()
    look = "import os; print(len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task')))"
    before = await lab.run(source, look)
    for _ in range(10):
        await lab.engine.delete_snapshot((await lab.checkpoint(source)).ref)
    for _ in range(100):  # the last fork is reaped when the loop is idle
        if (after := await lab.run(source, look)) == before:
            break
        await asyncio.sleep(0.01)
    assert after == before


async def test_a_busy_worker_refuses_and_goes_on(lab):
    source = await lab.create()
    running = asyncio.create_task(lab.run(source, "import asyncio; await asyncio.sleep(30)"))
    await asyncio.sleep(0.3)
    with pytest.raises(SessionBusy):
        await lab.checkpoint(source)
    await source.interrupt()
    with pytest.raises(AssertionError):
        await running
    assert (await lab.engine.inspect()).snapshots == frozenset()
    assert await lab.run(source, "print('still here')") == "still here\n"


async def test_a_snapshot_that_is_gone_is_lost_for_every_child(lab):
    source = await lab.create()
    snapshot = await lab.checkpoint(source)
    assert await lab.engine.delete_snapshot(snapshot.ref) is True
    assert await lab.engine.delete_snapshot(snapshot.ref) is False
    settings = await lab.engine.resolve(RuntimeCreateRequest())
    children = [Child(backend_id=new_id("be"), settings=settings) for _ in range(2)]
    results = await lab.engine.checkout(snapshot.ref, children)
    assert [type(result) for result in results] == [CheckpointLost, CheckpointLost]
    assert (await lab.engine.inspect()).backends == {source.backend_id}


async def test_a_killed_frozen_process_is_noticed_by_inspect(lab, state_dir):
    source = await lab.create()
    snapshot = await lab.checkpoint(source)
    directory = state_dir / "frozen" / snapshot.ref.provider_snapshot_id
    while (frozen := identity(directory)) is None:
        await asyncio.sleep(0.01)  # it is noted when it has left the source's family
    frozen.signal(signal.SIGKILL)
    wait_gone([frozen])
    assert (await lab.engine.inspect()).snapshots == frozenset()
    assert not directory.exists()
    with pytest.raises(CheckpointLost):
        await lab.fork(snapshot)


async def test_a_killed_worker_fails_with_how_it_ended(lab):
    source = await lab.create()
    with pytest.raises(RuntimeFailed, match="SIGKILL"):
        await lab.run(source, "import os; print('last words', flush=True); os.kill(os.getpid(), 9)")
    assert "SIGKILL" in await source.died()
    with pytest.raises(RuntimeFailed, match="SIGKILL"):
        await lab.run(source, "1")


async def test_a_fork_that_dies_tells_how_too(lab):
    source = await lab.create()
    child = await lab.fork(await lab.checkpoint(source))
    with pytest.raises(RuntimeFailed, match="exit code 7"):
        await lab.run(child, "import os; os._exit(7)")
    assert await lab.run(source, "print(1)") == "1\n"


async def test_exit_in_a_cell_ends_the_runtime(lab):
    source = await lab.create()
    await lab.events(source, "exit")
    assert await source.died() == "its process ended by itself with exit code 0"


async def test_a_new_server_adopts_what_an_old_one_left(own_lab, tmp_path):
    source = await own_lab.create()
    await own_lab.run(source, "x = 41")
    snapshot = await own_lab.checkpoint(source)
    await own_lab.engine.stop()
    heir = ForkEngine()
    await heir.start(tmp_path / "state")
    assert (await heir.inspect()).backends == {source.backend_id}
    adopted = await heir.adopt(source.backend_id)
    other = Lab(heir)
    assert await other.run(adopted, "print(x + 1)") == "42\n"
    assert await other.run(await other.fork(snapshot), "print(x)") == "41\n"
    assert [event.text async for event in adopted.exec(ExecRequest(argv=("echo", "hi"))) if hasattr(event, "text")] == [
        "hi\n"
    ]
    await heir.stop()


async def test_what_a_cell_says_while_no_server_is_there_is_not_lost_work(own_lab, tmp_path):
    source = await own_lab.create()
    running = asyncio.create_task(
        own_lab.run(source, "import time; time.sleep(1); done = True; print('x' * 5_000_000)")
    )
    await asyncio.sleep(0.3)
    running.cancel()
    await own_lab.engine.stop()
    heir = ForkEngine()
    await heir.start(tmp_path / "state")
    adopted = await heir.adopt(source.backend_id)
    assert await Lab(heir).run(adopted, "print(done)") == "True\n"
    await heir.stop()


async def test_adopting_what_died_says_so(own_lab, tmp_path):
    source = await own_lab.create()
    pid = int(await own_lab.run(source, "import os; print(os.getpid())"))
    await own_lab.engine.stop()
    worker = process_id(pid)
    worker.signal(signal.SIGKILL)
    wait_gone([worker])
    heir = ForkEngine()
    await heir.start(tmp_path / "state")
    with pytest.raises(RuntimeFailed):
        await heir.adopt(source.backend_id)
    await heir.stop()


async def test_the_environment_is_an_allow_list_and_what_was_asked_for(lab, monkeypatch):
    for name in ("E2B_API_KEY", "JUPYTERHUB_API_TOKEN", "JUPYTER_SANDBOX_TOKEN", "JUPYTER_TOKEN", "MY_SECRET"):
        monkeypatch.setenv(name, "secret-value")
    source = await lab.create(env={"ASKED": "for"})
    text = await lab.run(source, "import os; print(os.environ['ASKED'], 'secret-value' in str(os.environ))")
    assert text == "for False\n"
    text = await lab.run(source, "print('secret-value' in open('/proc/self/environ').read())")
    assert text == "False\n"
    shown = [event.text async for event in source.exec(ExecRequest(argv=("env",))) if hasattr(event, "text")]
    assert "ASKED=for" in "".join(shown)
    assert "secret-value" not in "".join(shown)


async def test_a_memory_limit_is_kept_by_source_and_fork(lab):
    source = await lab.create(limits={"memory_mb": 500})
    child = await lab.fork(
        await lab.checkpoint(source),
        limits=(await lab.engine.resolve(RuntimeCreateRequest(limits={"memory_mb": 500}))).limits,
    )
    for backend in (source, child):
        assert (await lab.error(backend, "x = bytearray(1 << 30)")).ename == "MemoryError"
        await lab.run(backend, "x = bytearray(1 << 20)")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"image": "python:3.12"}, "image"),
        ({"python": "/nowhere/python"}, "python"),
        ({"python": "/bin/cat"}, "python"),
        ({"cwd": "/nowhere"}, "cwd"),
        ({"cwd": "relative"}, "cwd"),
        ({"limits": {"cpus": 2}}, "limits.cpus"),
        ({"limits": {"pids": 2}}, "limits.pids"),
        ({"env": {"A=B": "c"}}, "env.A=B"),
    ],
)
async def test_settings_that_this_engine_cannot_use_are_named(lab, fields, field):
    with pytest.raises(InvalidRequest) as failure:
        await lab.create(**fields)
    assert failure.value.context["field"] == field
    assert failure.value.remedy


async def test_the_self_test_passes_here_and_leaves_nothing(lab):
    info = await lab.engine.probe()
    assert info.available, info.detail
    assert await lab.engine.inspect() == type(await lab.engine.inspect())(backends=frozenset(), snapshots=frozenset())


async def test_a_runtime_runs_on_the_interpreter_that_was_asked_for(lab):
    source = await lab.create(python=sys.executable)
    assert await lab.run(source, "import sys; print(sys.executable)") == f"{sys.executable}\n"


async def test_a_cell_of_an_earlier_server_makes_its_runtime_busy_and_its_files_readable(
    own_lab, tmp_path, monkeypatch
):
    monkeypatch.setattr("jupyter_sandbox.engines.fork.engine._PATIENCE_S", 0.3)
    source = await own_lab.create()
    await own_lab.run(source, "open('f.txt', 'w').write('text')")
    running = asyncio.create_task(own_lab.run(source, "import time; time.sleep(60)"))
    await asyncio.sleep(0.3)
    running.cancel()
    await own_lab.engine.stop()
    heir = ForkEngine()
    await heir.start(tmp_path / "state")
    adopted = await heir.adopt(source.backend_id)
    assert await adopted.read_bytes("f.txt") == b"text"
    for refused in (heir.checkpoint(adopted, new_id("sn")), anext(adopted.exec(ExecRequest(shell="true")))):
        with pytest.raises(SessionBusy):
            await refused
    assert (await heir.inspect()).snapshots == frozenset()
    await adopted.interrupt()
    snapshot = await Lab(heir).checkpoint(adopted)
    await heir.delete_snapshot(snapshot.ref)
    await heir.stop()
