from __future__ import annotations

import asyncio
import io
import tarfile
from contextlib import suppress

import pytest
import pytest_asyncio

from jupyter_sandbox.errors import InvalidRequest, PathNotFound, ProviderError, RuntimeFailed, StorageFull
from jupyter_sandbox.models import (
    CellDone,
    CellOutput,
    CellRequest,
    CompleteRequest,
    ExecDone,
    ExecRequest,
    ExportRequest,
    SearchRequest,
    TempPathRequest,
)
from tests.engines.fork.conftest import text_of

pytestmark = pytest.mark.asyncio(loop_scope="package")


@pytest_asyncio.fixture(loop_scope="package")
async def backend(lab):
    return await lab.create()


def streams(events):
    return [
        (event.output["name"], event.output["text"])
        for event in events
        if isinstance(event, CellOutput) and event.output["output_type"] == "stream"
    ]


async def test_output_comes_while_the_cell_runs(backend):
    code = "import time\nprint('one')\nwhile not __import__('os').path.exists('go'): time.sleep(0.01)\nprint('two')"
    events = backend.run_cell(CellRequest(code=code))
    seen = ""
    while seen != "one\n":
        seen += (await anext(events)).output["text"]
    await backend.write_bytes("go", b"")  # the worker is in the cell: files and commands do not wait for it
    rest = [event async for event in events]
    assert text_of(rest) == "two\n"
    assert isinstance(rest[-1], CellDone)


async def test_output_of_python_and_of_descriptors_comes_in_the_order_it_was_made(lab, backend):
    code = """
import os, sys, subprocess
for i in range(20):
    print("python", i)
    os.write(1, b"raw %d\\n" % i)
    sys.stderr.write(f"err {i}\\n")
    if i % 5 == 0:
        subprocess.run(["echo", f"child {i}"])
        os.system(f"echo system {i}")
"""
    events = await lab.events(backend, code)
    expected = []
    for i in range(20):
        started = f"child {i}\nsystem {i}\n" if i % 5 == 0 else ""
        expected += [("stdout", f"python {i}\nraw {i}\n"), ("stderr", f"err {i}\n")]
        if started:
            expected.append(("stdout", started))
    assert joined(streams(events)) == joined(expected)


def joined(pieces):
    """Neighbours of one stream as one."""
    whole = []
    for name, text in pieces:
        if whole and whole[-1][0] == name:
            whole[-1] = (name, whole[-1][1] + text)
        else:
            whole.append((name, text))
    return whole


async def test_raw_output_of_a_long_call_comes_while_it_lasts(backend):
    code = "import os; os.system('echo started; while [ ! -e go ]; do sleep 0.02; done')"
    events = backend.run_cell(CellRequest(code=code))
    assert (await anext(events)).output["text"] == "started\n"  # one write of echo's
    await backend.write_bytes("go", b"")
    assert [event async for event in events][-1].status == "ok"


async def test_rich_display_updates_and_results(lab, backend):
    code = """
from IPython.display import HTML, display, clear_output
handle = display(HTML("<b>1</b>"), display_id=True)
handle.update(HTML("<b>2</b>"))
clear_output()
HTML("<i>result</i>")
"""
    outputs = [event.output for event in await lab.events(backend, code) if isinstance(event, CellOutput)]
    kinds = [output["output_type"] for output in outputs]
    assert kinds == ["display_data", "update_display_data", "clear_output", "execute_result"]
    assert outputs[0]["data"]["text/html"] == "<b>1</b>"
    assert outputs[1]["data"]["text/html"] == "<b>2</b>"
    assert outputs[1]["transient"]["display_id"]
    assert outputs[3]["data"]["text/html"] == "<i>result</i>"


async def test_an_error_has_its_traceback_and_the_next_cell_runs(lab, backend):
    error = await lab.error(backend, "def f():\n    return 1 / 0\nf()")
    assert (error.ename, error.evalue) == ("ZeroDivisionError", "division by zero")
    assert any("return" in line for line in error.traceback)
    assert await lab.run(backend, "print('next')") == "next\n"


@pytest.mark.parametrize("code", ["input('name? ')", "__import__('getpass').getpass()"])
async def test_input_is_refused_with_what_to_do_instead(lab, backend, code):
    error = await lab.error(backend, code)
    assert error.ename == "StdinNotImplementedError"
    assert "nobody to ask in a sandbox" in error.evalue


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(60)", "while True: pass", "import asyncio; await asyncio.sleep(60)"]
)
async def test_an_interrupt_ends_the_cell_and_keeps_the_state(lab, backend, code):
    await lab.run(backend, "x = 1")
    running = asyncio.create_task(lab.events(backend, f"print('here', flush=True)\n{code}"))
    await asyncio.sleep(0.5)
    await backend.interrupt()
    done = (await asyncio.wait_for(running, 30))[-1]
    assert done.status == "error"
    assert done.error.ename in {"KeyboardInterrupt", "CancelledError"}
    assert await lab.run(backend, "print(x)") == "1\n"


async def test_an_interrupt_between_cells_does_nothing(lab, backend):
    await backend.interrupt()
    assert await lab.run(backend, "print(1)") == "1\n"


async def test_an_interrupt_reaches_the_children_of_the_cell(lab, backend):
    code = "import subprocess\nprocess = subprocess.Popen(['sleep', '63'])\nprint('up', flush=True)\nprocess.wait()"
    events = backend.run_cell(CellRequest(code=code))
    await anext(events)
    await backend.interrupt()
    assert [event async for event in events][-1].status == "error"
    # It is gone; its exit code may be lost when the interrupt comes between waitpid and Popen's taking it.
    assert await lab.run(backend, "print(process.wait() in {-2, 0})") == "True\n"


async def test_much_output_comes_whole(lab, backend):
    events = await lab.events(backend, "for i in range(20000): print(i)\nprint('x' * 3_000_000)")
    text = text_of(events)
    assert text == "".join(f"{i}\n" for i in range(20000)) + "x" * 3_000_000 + "\n"
    assert len(events) < 5000  # neighbouring writes are joined


async def test_a_reader_that_stops_reading_gets_all_later(lab, backend):
    stream = backend.run_cell(CellRequest(code="import os\nfor i in range(60): os.write(1, b'y' * (1 << 20))"))
    first = await anext(stream)
    await asyncio.sleep(0.5)
    size = len(first.output["text"])
    async for event in stream:
        size += len(event.output["text"]) if isinstance(event, CellOutput) else 0
    assert size == 60 << 20


async def test_invalid_utf8_and_lone_surrogates_are_shown_as_well_as_can_be(lab, backend):
    text = text_of(await lab.events(backend, "import os; os.write(1, b'\\xff\\n'); print('\\ud800')"))
    assert text.splitlines()[0] == "\ufffd"
    assert text.splitlines()[1] == "\\ud800"


async def test_output_of_the_cell_before_is_not_this_cells(lab, backend):
    await lab.run(backend, "import os; os.system('(sleep 0.2; echo late; touch said) &')")
    for _ in range(500):
        try:
            await backend.stat("said")
            break
        except PathNotFound:
            await asyncio.sleep(0.01)
    assert await lab.run(backend, "print('mine')") == "mine\n"


async def test_threads_and_multiprocessing_children_may_print(lab, backend):
    code = """
import threading, multiprocessing
thread = threading.Thread(target=lambda: print("thread")); thread.start(); thread.join()
process = multiprocessing.get_context("fork").Process(target=lambda: print("child")); process.start(); process.join()
print("main")
"""
    assert await lab.run(backend, code) == "thread\nchild\nmain\n"


async def test_silent_cells_do_not_count(lab, backend):
    await lab.events(backend, "x = 1", silent=True)
    assert (await lab.events(backend, "x"))[-1].execution_count == 1


async def test_completions_come_from_the_state(lab, backend):
    await lab.run(backend, "some_long_name = 1")
    result = await backend.complete(CompleteRequest(code="print(some_lo", cursor_pos=13))
    assert result.matches == ("some_long_name",)
    assert (result.cursor_start, result.cursor_end) == (6, 13)


async def exec_all(backend, **fields):
    events = [event async for event in backend.exec(ExecRequest(**fields))]
    done = events.pop()
    assert isinstance(done, ExecDone)
    return done, {name: "".join(e.text for e in events if e.stream == name) for name in ("stdout", "stderr")}


async def test_a_command_has_streams_stdin_env_cwd_and_an_exit_code(lab, backend):
    await backend.create_dir_all("a/b")
    done, output = await exec_all(
        backend, shell="cat; echo $X; pwd; echo no >&2; exit 4", stdin="in\n", env={"X": "y"}, cwd="a/b"
    )
    assert done.exit_code == 4
    assert output == {"stdout": f"in\ny\n{backend.cwd}/a/b\n", "stderr": "no\n"}


async def test_commands_have_the_environment_that_their_runtime_started_with(lab, backend):
    await lab.run(backend, "import os; os.environ['FROM_A_CELL'] = 'yes'")
    child = await lab.fork(await lab.checkpoint(backend))
    assert (await exec_all(backend, shell="echo $FROM_A_CELL"))[1]["stdout"] == "\n"
    assert (await exec_all(child, shell="echo $FROM_A_CELL"))[1]["stdout"] == "yes\n"


async def test_a_command_that_takes_too_long_ends_with_all_it_started(backend):
    done, output = await exec_all(backend, shell="sleep 64 & echo $!; wait", timeout_s=0.3)
    assert done.timed_out
    assert done.exit_code < 0
    done, _ = await exec_all(backend, argv=("kill", "-0", output["stdout"].strip()))
    assert done.exit_code != 0


async def test_leaving_a_command_early_ends_it(backend):
    stream = backend.exec(ExecRequest(shell="echo $$; exec sleep 65"))
    pid = (await anext(stream)).text.strip()
    await stream.aclose()
    for _ in range(500):
        if (await exec_all(backend, argv=("kill", "-0", pid)))[0].exit_code:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the command runs on")


async def test_a_program_that_is_not_there_is_named(backend):
    with pytest.raises(InvalidRequest, match="no-such-program"):
        await exec_all(backend, argv=("no-such-program",))


async def test_files_through_the_agent(backend):
    await backend.write_bytes("a/b.bin", bytes(range(256)) * 5000)
    assert await backend.read_bytes("a/b.bin") == bytes(range(256)) * 5000
    assert (await backend.stat("a/b.bin")).size == 256 * 5000
    path = await backend.temp_path(TempPathRequest(prefix="p-", suffix=".txt"))
    assert path.startswith("p-")
    assert await backend.read_bytes(path) == b""
    await backend.remove("a")
    with pytest.raises(PathNotFound, match=r"a/b\.bin"):
        await backend.read_bytes("a/b.bin")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", ""])
async def test_paths_stay_below_the_working_directory(backend, path):
    for call in (backend.read_bytes(path), backend.write_bytes(path, b""), backend.stat(path), backend.remove(path)):
        with pytest.raises(InvalidRequest):
            await call


async def test_search_and_export(backend):
    await backend.write_bytes("src/one.py", b"def wanted(): pass\n")
    await backend.write_bytes("src/two.txt", b"wanted too\n")
    found = await backend.search(SearchRequest(glob="**/*.py", text="wanted"))
    assert [(match.path, match.line) for match in found.matches] == [("src/one.py", 1)]
    data = b"".join([piece async for piece in backend.export(ExportRequest(path="src"))])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert sorted(tar.getnames()) == ["src", "src/one.py", "src/two.txt"]


async def test_a_bad_search_and_a_missing_export_are_errors_of_ours(backend):
    with pytest.raises(InvalidRequest):
        await backend.search(SearchRequest(text="("))
    with pytest.raises(PathNotFound):
        await anext(backend.export(ExportRequest(path="nowhere")))


async def test_the_agents_other_half_comes_back_when_it_was_killed(backend):
    done, output = await exec_all(backend, shell="echo $PPID")
    assert done.exit_code == 0
    with pytest.raises(ProviderError):
        await exec_all(backend, argv=("kill", "-9", output["stdout"].strip()))
    for _ in range(100):  # until the killed one has let go of its socket
        with suppress(ProviderError):
            assert (await exec_all(backend, argv=("echo", "again")))[1]["stdout"] == "again\n"
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come back")


async def test_quiescence_is_the_agents_word(lab, backend):
    assert await backend.quiescent()
    await lab.run(backend, "%%bash\ntrue")
    assert await backend.quiescent()
    await lab.run(backend, "import subprocess; child = subprocess.Popen(['sleep', '66'])")
    assert not await backend.quiescent()
    await lab.run(backend, "child.kill(); child.wait()")
    assert await backend.quiescent()
    await lab.run(backend, "import asyncio; task = asyncio.get_running_loop().create_task(asyncio.sleep(60))")
    assert not await backend.quiescent()


async def test_memory_tells_private_from_shared(lab, backend):
    await lab.run(backend, "data = bytearray(b'x') * (64 << 20)")
    before = await backend.memory()
    child = await lab.fork(await lab.checkpoint(backend))
    fork = await child.memory()
    assert before.private_bytes > 64 << 20
    assert fork.private_bytes < 32 << 20
    assert fork.shared_bytes > 64 << 20


async def test_the_cell_that_kills_its_runtime_shows_its_last_words(backend):
    words = ""
    with pytest.raises(RuntimeFailed, match="SIGKILL"):  # noqa: PT012
        async for event in backend.run_cell(
            CellRequest(code="print('last words')\nimport os; os.kill(os.getpid(), 9)")
        ):
            words += event.output["text"]
    assert words == "last words\n"


async def test_an_interrupt_at_any_moment_of_a_cell_leaves_a_runtime_that_works(lab, backend):
    await lab.run(backend, "import time")
    for turn in range(60):
        running = asyncio.create_task(lab.events(backend, "time.sleep(0.005)"))
        await asyncio.sleep(turn * 0.0004)
        await backend.interrupt()
        done = (await asyncio.wait_for(running, 30))[-1]
        assert done.status == "ok" or done.error.ename == "KeyboardInterrupt"
    assert await asyncio.wait_for(lab.run(backend, "print('works')"), 30) == "works\n"


async def test_a_cell_that_closes_every_descriptor_fails_its_runtime_and_writes_into_no_file(lab, backend):
    code = "import os; os.closerange(3, 1000); files = [open(f'u{i}', 'w') for i in range(8)]; print('secret')"
    with pytest.raises(RuntimeFailed, match="closed the descriptors"):
        await asyncio.wait_for(lab.run(backend, code), 30)
    assert [await backend.read_bytes(f"u{i}") for i in range(8)] == [b""] * 8


async def test_an_answer_that_does_not_fit_on_the_disk_is_told_and_the_state_stays(lab, backend):
    limit = "import resource; old = resource.getrlimit(resource.RLIMIT_FSIZE)[1]; x = 41\n"
    code = limit + "resource.setrlimit(resource.RLIMIT_FSIZE, (100, old))"
    with pytest.raises(StorageFull):
        await asyncio.wait_for(lab.run(backend, code), 30)
    with pytest.raises(StorageFull):  # it runs, but that it began could not be said
        await asyncio.wait_for(lab.events(backend, "resource.setrlimit(resource.RLIMIT_FSIZE, (old, old))"), 30)
    assert await asyncio.wait_for(lab.run(backend, "print(x)"), 30) == "41\n"


async def test_a_checkpoint_of_a_runtime_without_standard_descriptors_or_directory(lab, backend):
    await lab.run(backend, "import os; os.close(0); os.close(1); os.close(2); x = 41")
    assert await lab.run(await lab.fork(await lab.checkpoint(backend)), "print(x)") == "41\n"
    await lab.run(backend, "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')")
    snapshot = await lab.checkpoint(backend)
    assert "directory" in {row.kind for row in snapshot.not_captured}
    child = await lab.fork(snapshot)
    assert await lab.run(child, "print(os.getcwd(), x)") == f"{child.cwd} 41\n"


async def test_output_streams_that_the_user_replaced_hang_nothing(lab, backend):
    events = await asyncio.wait_for(
        lab.events(backend, "import io, sys; sys.stdout = io.StringIO(); sys.stderr = None"), 30
    )
    assert isinstance(events[-1], CellDone)
