"""Starting a server, with real processes in its place that come up, end at once, or never answer."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_sandbox.client import private_server
from jupyter_sandbox.client.private_server import LOG_LIMIT, LOG_NAME, serve_command, start_private_server
from jupyter_sandbox.errors import ServerUnavailable

# Writes its pid to the file that the test looks for, then waits until the test takes that file away.
COMES_UP = """
import json, os, pathlib, time
print("hello from the server", flush=True)
up = pathlib.Path("up")
pathlib.Path("up.new").write_text(json.dumps([os.getpid(), os.getcwd(), os.getsid(0), dict(os.environ)]))
pathlib.Path("up.new").rename(up)
while up.exists():
    time.sleep(0.01)
"""


def python(code: str) -> Callable[[Path], list[str]]:
    return lambda _: [sys.executable, "-c", code]


def looks_for(path: Path) -> Callable[[], str | None]:
    return lambda: path.read_text() if path.exists() else None


def test_the_command_is_our_own_and_safe_from_the_users_files(tmp_path: Path) -> None:
    words = serve_command(tmp_path)
    assert words[:4] == [sys.executable, "-P", "-m", "jupyter_sandbox"]
    assert words[4:] == ["serve", "--private", "--store", str(tmp_path)]


def test_it_is_detached_and_inherits_nothing_of_this_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    store = tmp_path / "new" / "store"
    for name in ("JUPYTER_SANDBOX_URL", "JUPYTER_SANDBOX_TOKEN", "JPY_PARENT_PID"):
        monkeypatch.setenv(name, "of this kernel")
    monkeypatch.setenv("KEPT", "yes")
    found = start_private_server(store, looks_for(store / "up"), command=python(COMES_UP))
    pid, cwd, session, environment = json.loads(found)
    (store / "up").unlink()
    os.waitpid(pid, 0)
    assert (cwd, session) == (str(store), pid)
    assert environment["KEPT"] == "yes"
    assert not {"JUPYTER_SANDBOX_URL", "JUPYTER_SANDBOX_TOKEN", "JPY_PARENT_PID"} & environment.keys()
    log = store / LOG_NAME
    assert log.read_text() == "hello from the server\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.stat().st_mode) == 0o700


def test_one_that_fails_tells_why(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).write_text("an older failure\n")
    code = "import sys; [print('line', i) for i in range(50)]; sys.exit('No module named tornado')"
    with pytest.raises(ServerUnavailable, match=r"exit code 1\)") as caught:
        start_private_server(tmp_path, lambda: None, command=python(code))
    assert "No module named tornado" in str(caught.value)
    assert "line 49" in str(caught.value)
    assert "line 3\n" not in str(caught.value)
    assert "older" not in str(caught.value)
    assert str(tmp_path / LOG_NAME) in caught.value.remedy


def test_one_that_lost_the_race_finds_the_winner(tmp_path: Path) -> None:
    looks = iter([None, None, None, "the winner"])
    assert start_private_server(tmp_path, lambda: next(looks), command=python("")) == "the winner"


def test_one_that_fails_after_another_came_up_is_no_failure(tmp_path: Path) -> None:
    assert start_private_server(tmp_path, lambda: "another", command=python("raise SystemExit(3)")) == "another"


def test_one_that_never_answers_is_ended(tmp_path: Path) -> None:
    code = "import os, time, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"

    def never() -> None:
        # Give up once the process runs: the time that passes must not decide this test.
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            pass

    with pytest.raises(ServerUnavailable, match="did not answer within 0 s"):
        start_private_server(tmp_path, never, timeout=0.0, command=python(code))
    pid = int((tmp_path / "pid").read_text())
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


def test_a_long_log_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / LOG_NAME
    log.write_bytes(b"x" * (LOG_LIMIT + 1))
    start_private_server(tmp_path, lambda: log.read_bytes().endswith(b"new\n") or None, command=python("print('new')"))
    assert log.read_bytes() == b"new\n"


def test_a_store_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerUnavailable, match="JUPYTER_SANDBOX_STORE"):
        start_private_server(tmp_path / "file" / "store", lambda: None)


def test_no_process_object_stays_behind(tmp_path: Path) -> None:
    """Warnings are errors here, a ResourceWarning of a forgotten Popen too."""
    import gc

    code = "import pathlib, time\nwhile not pathlib.Path('end').exists(): time.sleep(0.01)"
    start_private_server(tmp_path, lambda: "up", command=python(code))
    gc.collect()
    (tmp_path / "end").touch()
    assert private_server.subprocess.run([sys.executable, "-c", ""], check=True).returncode == 0
