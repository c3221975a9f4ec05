"""The magics in a real kernel, as JupyterLab and nbclient drive it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from jupyter_sandbox.client import Client
from jupyter_sandbox.rendezvous import TOKEN_ENV, URL_ENV
from tests.support.server_process import ServerProcess

PATIENCE_S = 60


class Notebook:
    """A kernel of its own, and cells run in it one after another."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str, **on_text: Any) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
        """Run a cell; its reply and its outputs as (type, content), with neighbouring stream text joined.

        Args:
            code: The cell.
            on_text: A word -> what to call when it appears in a stream.
        """
        asked = self.client.execute(code)
        outputs: list[tuple[str, dict[str, Any]]] = []
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                for word in [word for word in on_text if word in content["text"]]:
                    on_text.pop(word)()
                last = outputs[-1] if outputs else ("", {})
                if last[0] == kind and last[1]["name"] == content["name"]:
                    last[1]["text"] += content["text"]
                    continue
            if kind not in {"status", "execute_input"}:
                outputs.append((kind, content))
        while (reply := self.client.get_shell_msg(timeout=PATIENCE_S))["parent_header"].get("msg_id") != asked:
            pass
        return reply["content"], outputs


@pytest.fixture(scope="module")
def kernel(shared_server_process: ServerProcess) -> Iterator[Notebook]:
    manager = KernelManager(kernel_name="python3", transport="ipc")
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(env={**os.environ, URL_ENV: shared_server_process.url, TOKEN_ENV: shared_server_process.token})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        notebook = Notebook(manager, client)
        assert notebook.run("%load_ext jupyter_sandbox")[0]["status"] == "ok"
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.fixture
def notebook(kernel: Notebook, client: Client) -> Notebook:
    assert kernel.run("%sandbox create exp")[0]["status"] == "ok"
    return kernel


def test_a_sandbox_is_the_cell_s_result(notebook):
    _, outputs = notebook.run("%sandbox")
    ((kind, content),) = outputs
    assert kind == "execute_result"
    assert "exp" in content["data"]["text/plain"]


def test_outputs_come_in_order_and_whole(notebook):
    _, outputs = notebook.run(
        "%%sandbox\nimport sys\nfrom IPython.display import HTML, clear_output, display\n"
        "print('out')\nhandle = display(HTML('<i>1</i>'), display_id='d')\nprint('err', file=sys.stderr)\n"
        "handle.update(HTML('<i>2</i>'))\nclear_output(wait=True)\nHTML('<b>3</b>')"
    )
    assert [kind for kind, _ in outputs] == [
        *("stream", "display_data", "stream", "update_display_data", "clear_output", "display_data")
    ]
    assert [outputs[i][1]["name"] for i in (0, 2)] == ["stdout", "stderr"]
    assert outputs[1][1]["transient"] == outputs[3][1]["transient"] == {"display_id": "d"}
    assert [outputs[i][1]["data"]["text/html"] for i in (1, 3, 5)] == ["<i>1</i>", "<i>2</i>", "<b>3</b>"]
    assert outputs[4][1] == {"wait": True}


def test_an_error_is_the_sandbox_s_own_and_fails_the_cell(notebook):
    reply, outputs = notebook.run("%%sandbox\ndef inner():\n    return 1 / 0\ninner()")
    assert reply["status"] == "error"
    ((kind, content),) = outputs
    assert kind == "error"
    assert "ZeroDivisionError" in content["evalue"]
    traceback = "\n".join(content["traceback"])
    assert "inner" in traceback
    assert "jupyter_sandbox" not in traceback


def test_mistakes_are_one_line_and_fail_the_cell(notebook):
    reply, outputs = notebook.run("%sandbox nonsense")
    assert reply["status"] == "error"
    ((kind, content),) = outputs
    assert (kind, content["name"], content["text"].count("\n")) == ("stream", "stderr", 1)
    reply, outputs = notebook.run("%close nowhere")
    assert reply["status"] == "error"
    ((kind, content),) = outputs
    assert (kind, len(content["traceback"])) == ("error", 1)


def test_an_interrupt_of_the_kernel_reaches_the_sandbox(notebook, client):
    reply, outputs = notebook.run(
        "%%sandbox\nimport time\nprint('begun', flush=True)\ntime.sleep(300)", begun=notebook.manager.interrupt_kernel
    )
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    traceback = "\n".join(outputs[-1][1]["traceback"])
    assert "sleep" in traceback
    assert "jupyter_sandbox" not in traceback
    assert client.runtimes.get("exp").status == "idle"


def test_magics_work_where_a_loop_runs(notebook):
    reply, outputs = notebook.run("import asyncio\nawait asyncio.sleep(0)\n%checkpoint base\n%sandbox ls")
    assert reply["status"] == "ok"
    assert outputs[0][0] == "stream"
    assert "Checkpoint base of exp" in outputs[0][1]["text"]
    assert outputs[1][0] == "execute_result"


def test_an_assigned_checkpoint_is_said_in_its_own_cell(notebook):
    _, outputs = notebook.run("cp = %checkpoint base")
    ((kind, content),) = outputs
    assert (kind, content["name"]) == ("stream", "stdout")
    assert "Checkpoint base of exp" in content["text"]


def test_tab_offers_names(notebook):
    reply = notebook.client.complete("x = 1\n%sandbox use e", reply=True, timeout=PATIENCE_S)
    assert reply["content"]["matches"] == ["exp"]
    assert (reply["content"]["cursor_start"], reply["content"]["cursor_end"]) == (19, 20)
