from __future__ import annotations

import pytest

from jupyter_sandbox.client.results import CellCollector, ExecCollector
from jupyter_sandbox.errors import CellFailed, CommandFailed
from jupyter_sandbox.models import CellDone, CellError, CellOutput, ExecDone, ExecOutput

ERROR = CellError(ename="KeyError", evalue="'<b>'", traceback=("\x1b[31mKeyError\x1b[0m", "'<b>'"))


def cell(*outputs: dict[str, object], **done: object) -> CellCollector:
    collector = CellCollector()
    for output in outputs:
        collector.add(CellOutput(output=output))
    collector.add(CellDone(**({"status": "ok", "elapsed_ms": 12.34} | done)))
    return collector


def text(value: object, name: str = "stdout") -> dict[str, object]:
    return {"output_type": "stream", "name": name, "text": value}


def test_neighbouring_writes_are_joined_and_others_are_not() -> None:
    result = cell(text("a"), text(["b", "c"]), text("d", "stderr"), text("e")).result()
    assert [(o["name"], o["text"]) for o in result.outputs] == [("stdout", "abc"), ("stderr", "d"), ("stdout", "e")]
    assert result.text == "abce"


def test_text_is_stdout_and_after_it_the_value() -> None:
    value = {"output_type": "execute_result", "data": {"text/plain": "42"}, "metadata": {}}
    picture = {"output_type": "display_data", "data": {"text/plain": "<Figure>"}, "metadata": {}}
    assert cell(value, picture, text("41 1\n")).result().text == "41 1\n42"


def test_a_result_before_its_end_is_a_mistake() -> None:
    with pytest.raises(RuntimeError):
        CellCollector().result()
    with pytest.raises(RuntimeError):
        ExecCollector().result()


def test_how_a_cell_looks() -> None:
    bundle = cell(text("hi <b>\n"), status="error", error=ERROR).result()._repr_mimebundle_()
    assert bundle["text/plain"] == "hi <b>\n\x1b[31mKeyError\x1b[0m\n'<b>'\n[error · 12.3 ms]"
    assert bundle["text/html"] == "<pre>hi &lt;b&gt;\nKeyError\n&#x27;&lt;b&gt;&#x27;</pre><p>error · 12.3 ms</p>"
    assert cell().result()._repr_mimebundle_()["text/plain"] == "[ok · 12.3 ms]"
    assert repr(cell(text("x"), execution_count=3).result()) == "<CellResult ok [3] text='x'>"
    assert "error=KeyError" in repr(cell(status="error", error=ERROR).result())


def test_raise_for_error() -> None:
    cell().result().raise_for_error()
    failed = cell(status="error", error=ERROR).result()
    with pytest.raises(CellFailed, match="KeyError: '<b>'") as caught:
        failed.raise_for_error()
    assert caught.value.result is failed
    assert caught.value.traceback == ERROR.traceback
    with pytest.raises(CellFailed, match="aborted"):
        cell(status="aborted").result().raise_for_error()


def command(**done: object) -> ExecCollector:
    collector = ExecCollector()
    collector.add(ExecOutput(stream="stdout", text="o"))
    collector.add(ExecOutput(stream="stderr", text="first\nlast\n"))
    collector.add(ExecDone(**({"exit_code": 0, "elapsed_ms": 1.0} | done)))
    return collector


def test_commands() -> None:
    fine = command().result()
    assert (fine.stdout, fine.stderr) == ("o", "first\nlast\n")
    fine.raise_for_error()
    assert str(fine) == r"<ExecResult exit code 0 stdout='o' stderr='first\nlast\n'>"
    assert fine._repr_mimebundle_()["text/plain"] == "ofirst\nlast\n[exit code 0 · 1.0 ms]"
    with pytest.raises(CommandFailed, match="exit code -9: last"):
        command(exit_code=-9).result().raise_for_error()
    with pytest.raises(CommandFailed, match="time limit"):
        command(timed_out=True).result().raise_for_error()
