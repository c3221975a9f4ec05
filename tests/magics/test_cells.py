from __future__ import annotations

import _thread
import re
import threading

import pytest
from IPython.utils.capture import capture_output

from jupyter_sandbox.errors import CellFailed, OperationTimeout
from jupyter_sandbox.magics.cells import run_cell
from jupyter_sandbox.magics.display import Outputs


@pytest.fixture
def exp(client):
    return client.runtimes.create(name="exp")


def without_colours(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class PressCtrlC(Outputs):
    """A reader who presses Ctrl-C each time when a word appears."""

    def __init__(self, shell, *words):
        super().__init__(shell)
        self.words = list(words)

    def show(self, output):
        super().show(output)
        if self.words and self.words[0] in output.get("text", ""):
            self.words.pop(0)
            _thread.interrupt_main()


def test_state_stays_from_cell_to_cell(run, exp):
    run("%sandbox use exp")
    assert run("%%sandbox\nx = 20").stdout == ""
    assert "21" in run("%%sandbox\nx + 1").displayed[0].data["text/plain"]


def test_another_sandbox_for_one_cell(run, client, exp):
    client.runtimes.create(name="other").run("where = 'other'")
    exp.run("where = 'exp'")
    run("%sandbox use exp")
    assert run("%%sandbox other\nprint(where)").stdout == "other\n"
    assert run("%%sandbox\nprint(where)").stdout == "exp\n"


def test_rich_data_comes_through(run, exp):
    shown = run(
        "%%sandbox exp\nfrom IPython.display import HTML, display\n"
        "handle = display(HTML('<i>a</i>'), display_id='one')\nhandle.update(HTML('<i>b</i>'))\nHTML('<b>c</b>')"
    ).displayed
    assert [each.data["text/html"] for each in shown] == ["<i>a</i>", "<i>b</i>", "<b>c</b>"]
    assert [each.update for each in shown] == [False, True, False]


def test_stderr_is_stderr(run, exp):
    seen = run("%%sandbox exp\nimport sys; print('out'); print('err', file=sys.stderr)")
    assert (seen.stdout, seen.stderr) == ("out\n", "err\n")


def test_output_is_shown_before_the_cell_ends(exp, bare_shell, tmp_path):
    """The cell waits for a file that is written only when its first output has been shown."""
    answer = tmp_path / "answer"

    class Answering(Outputs):
        def show(self, output):
            super().show(output)
            if "ask" in output.get("text", ""):
                answer.touch()

    code = (
        "import time, pathlib\nprint('ask', flush=True)\n"
        f"while not pathlib.Path({str(answer)!r}).exists(): time.sleep(0.01)\nprint('answered')"
    )
    with capture_output() as seen:
        run_cell(exp, code, Answering(bare_shell), timeout=60)
    assert seen.stdout == "ask\nanswered\n"


def test_an_error_is_the_sandbox_s_own(run, exp):
    failed = run("%%sandbox exp\nprint('before')\ndef inner():\n    return 1 / 0\ninner()")
    assert isinstance(failed.error, CellFailed)
    assert failed.stdout.startswith("before\n")
    text = without_colours(failed.stdout + failed.stderr)
    assert text.count("ZeroDivisionError: division by zero") == 1
    assert "inner()" in text
    assert "jupyter_sandbox" not in text
    assert "CellFailed" not in text


def test_quiet_shows_nothing_but_the_error(run, exp):
    assert run("%%sandbox exp --quiet\nprint('x')\n1").stdout == ""
    failed = run("%%sandbox exp --quiet\nprint('unseen'); 1 / 0")
    assert "ZeroDivisionError" in failed.stdout + failed.stderr
    assert not failed.stdout.startswith("unseen")


def test_a_cell_ends_when_its_time_is_up(run, exp):
    late = run("%%sandbox exp --timeout 0.3\nimport time; time.sleep(60)")
    assert isinstance(late.error, OperationTimeout)
    assert "0.3 s" in str(late.error)
    assert exp.run("print('alive')").text == "alive\n"


def test_ctrl_c_reaches_the_sandbox_and_its_last_words_come_back(exp, bare_shell):
    code = (
        "import time\nprint('begun', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('tidied up')\n    raise"
    )
    with capture_output() as seen, pytest.raises(KeyboardInterrupt) as caught:
        run_cell(exp, code, PressCtrlC(bare_shell, "begun"))
    assert seen.stdout == "begun\ntidied up\n"
    shown = without_colours("\n".join(caught.value._render_traceback_()))
    assert "time.sleep(60)" in shown
    assert "jupyter_sandbox" not in shown
    assert exp.refresh().status == "idle"


def test_a_second_ctrl_c_returns_at_once(exp, bare_shell, tmp_path):
    enough = tmp_path / "enough"
    code = (
        "import time, pathlib\nprint('begun', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('stubborn', flush=True)\n"
        f"    while not pathlib.Path({str(enough)!r}).exists(): time.sleep(0.01)"
    )
    with capture_output(), pytest.raises(KeyboardInterrupt) as caught:
        run_cell(exp, code, PressCtrlC(bare_shell, "begun", "stubborn"))
    assert caught.value._render_traceback_() == ["KeyboardInterrupt: exp may still be running the cell"]
    assert exp.refresh().status == "running"
    enough.touch()
    for thread in threading.enumerate():
        if thread.name == "sandbox-cell":
            thread.join()


def test_what_breaks_on_our_side_is_raised_here(exp, bare_shell):
    exp.close()
    with pytest.raises(Exception, match="closed"):
        run_cell(exp, "1", Outputs(bare_shell))


def test_a_usage_error_inside_the_sandbox_fails_the_cell(run, exp):
    failed = run("%%sandbox exp\n%no_such_magic")
    assert isinstance(failed.error, CellFailed)
    assert "no_such_magic" in failed.stdout + failed.stderr
