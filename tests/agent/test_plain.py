from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from jupyter_sandbox.engines.fork import ForkEngine
from jupyter_sandbox.models import CompleteRequest, RuntimeCreateRequest, new_id
from tests.engines.fork.conftest import Lab, text_of
from tests.support.processes import remove, wait_until_gone


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """An interpreter without ipykernel, and without this package."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    probe = subprocess.run([python, "-c", "import ipykernel"], capture_output=True, check=False)
    assert probe.returncode != 0
    return str(python)


@pytest.fixture
async def lab(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain")
    engine = ForkEngine()
    await engine.start(directory)
    yield Lab(engine)
    for backend_id in (await engine.inspect()).backends:
        await engine.release(backend_id)
    await engine.stop()

    remove(directory)
    assert await asyncio.to_thread(wait_until_gone, directory) == []


async def test_a_python_without_ipykernel_runs_cells_and_forks(lab, bare_python):
    settings = await lab.engine.resolve(RuntimeCreateRequest(python=bare_python))
    assert settings.image == bare_python
    source = await lab.engine.create(new_id("be"), settings, {})
    assert await lab.run(source, "import sys; print(sys.prefix)") == f"{Path(bare_python).parent.parent}\n"
    assert await lab.run(source, "g = (i for i in range(9)); next(g)\n[1, 2]") == "[1, 2]"
    child = await lab.fork(await lab.checkpoint(source))
    assert await lab.run(child, "print(next(g), _)") == "1 [1, 2]\n"
    assert await lab.run(source, "print(next(g))") == "1\n"

    error = await lab.error(child, "def f():\n    return 1 / 0\nf()")
    assert (error.ename, error.evalue) == ("ZeroDivisionError", "division by zero")
    assert "    return 1 / 0" in error.traceback
    assert "plain.py" not in "".join(error.traceback)
    assert (await lab.error(child, "input()")).evalue.startswith("input() has nobody to ask")
    assert (await lab.error(child, "1 +")).ename == "SyntaxError"

    await lab.run(child, "some_long_name = 1")
    assert (await child.complete(CompleteRequest(code="some_lo"))).matches == ("some_long_name",)

    running = asyncio.create_task(lab.events(child, "while True: pass"))
    await asyncio.sleep(0.3)
    await child.interrupt()
    assert (await running)[-1].error.ename == "KeyboardInterrupt"
    assert text_of(await lab.events(child, "print('after')")) == "after\n"
    with pytest.raises(Exception, match="exit code 5"):
        await lab.events(child, "raise SystemExit(5)")


def test_the_agent_needs_nothing_of_this_package():
    """It is run by path in interpreters where the package is not installed."""
    code = (
        "import runpy, sys, json; "
        f"sys.path.insert(0, {str(Path(sys.modules['jupyter_sandbox'].__file__).parent / 'agent')!r}); "
        "import __main__ as m; "
        "ns = runpy.run_path(sys.path[0] + '/__main__.py', run_name='loaded'); "
        "[ns['load'](name) for name in ('frozen', 'keeper', 'ops', 'plain')]; "
        "print(json.dumps([name for name in sys.modules if name.startswith('jupyter_sandbox')]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []
