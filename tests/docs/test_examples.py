"""What the README shows runs, as it stands there, in a store of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import end_store

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def example(kind: str) -> list[str]:
    """The code blocks between a marker and its end."""
    (part,) = re.findall(rf"<!-- example: {kind} -->(.*?)<!-- end -->", README, re.DOTALL)
    return re.findall(r"```\w*\n(.*?)```", part, re.DOTALL)


@pytest.fixture
def environment(tmp_path):
    """A user with a store of their own, and nothing of it afterwards."""
    store = tmp_path / "store"
    names = ("PATH", "HOME", "LANG")
    yield {
        **{name: os.environ[name] for name in names if name in os.environ},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JUPYTER_SANDBOX_STORE": str(store),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    end_store(store)


def run(argv: list[str], environment: dict[str, str], tmp_path: Path, **kwargs) -> str:
    result = subprocess.run(
        argv, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False, **kwargs
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_python_example(environment, tmp_path):
    (code,) = example("python")
    assert "41 1\n" in run([sys.executable, "-W", "error", "-c", code], environment, tmp_path)


def test_the_shell_example(environment, tmp_path):
    (code,) = example("sh")
    assert "42\n" in run(["sh", "-e", "-c", code], environment, tmp_path)


def test_the_notebook_example(environment, tmp_path):
    script = (
        "import sys, json\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "for cell in json.load(sys.stdin):\n"
        "    shell.run_cell(cell, store_history=True).raise_error()\n"
    )
    output = run([sys.executable, "-c", script], environment, tmp_path, input=json.dumps(example("ipython")))
    assert "1 (2,) ['x', 'y']" in output
    assert "base" in output


def test_the_http_page_is_what_the_code_says(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from http_docs import TARGET, page

    assert TARGET.read_text() == page()


def test_the_recording_is_the_recorded_file(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from record import RECORDED, with_recording

    assert with_recording(README, RECORDED.read_text()) == README
    assert "All expectations held" in RECORDED.read_text()
