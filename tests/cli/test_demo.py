from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from jupyter_sandbox.cli import demo
from jupyter_sandbox.cli.demo import Demo
from jupyter_sandbox.errors import SandboxError
from jupyter_sandbox.rendezvous import STORE_ENV, URL_ENV


@pytest.fixture
def shown():
    return io.StringIO()


def test_what_does_not_hold_is_marked_and_remembered(shown, tmp_path):
    run = Demo(Console(file=shown), tmp_path)
    run.check(holds=True, what="this holds")
    run.check(holds=False, what="this does not")
    assert run.failures == ["this does not"]
    assert shown.getvalue().split("\n")[:2] == ["  ✓ this holds", "  ✗ this does not"]


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_all_held(monkeypatch, capsys, holds, code):
    monkeypatch.setenv(STORE_ENV, "the user's own")
    monkeypatch.setattr(Demo, "run", lambda self: self.check(holds=holds, what="it"))
    assert demo.main() == code
    assert ("did not hold" in capsys.readouterr().out) is not holds


def test_an_error_of_ours_is_a_cross_not_a_traceback(monkeypatch, capsys):
    def fail(self):
        raise SandboxError("No engine [fork] here")

    monkeypatch.setattr(Demo, "run", fail)
    assert demo.main() == 1
    assert "✗ No engine [fork] here" in capsys.readouterr().out


def test_it_has_a_store_of_its_own_and_belongs_to_no_server(monkeypatch):
    monkeypatch.setenv(URL_ENV, "http://127.0.0.1:9")
    monkeypatch.setenv(STORE_ENV, "the user's own")
    with demo._private_store() as store:
        assert os.environ[STORE_ENV] == str(store)
        assert URL_ENV not in os.environ
        assert list(store.iterdir()) == []
    assert not store.exists()
    assert os.environ[STORE_ENV] == "the user's own"
    assert os.environ[URL_ENV] == "http://127.0.0.1:9"


@pytest.mark.parametrize("mentioned", ["argument", "directory"])
def test_a_process_that_works_for_a_store_is_seen(tmp_path, mentioned):
    store = tmp_path / "store"
    store.mkdir()
    place = {"cwd": store} if mentioned == "directory" else {}
    extra = [str(store)] if mentioned == "argument" else []
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *extra], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **place
    ) as process:
        assert process.stdout.readline() == b"up\n"
        assert len(demo._processes_of(store, patience_s=0)) == 1
    assert demo._processes_of(store, patience_s=0) == []


@pytest.mark.slow
def test_all_of_it_holds():
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_sandbox.cli.demo"], check=False, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "✗" not in done.stdout
    assert done.stdout.count("✓") > 10
