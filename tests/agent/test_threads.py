from __future__ import annotations

import subprocess
import sys
import threading

from jupyter_sandbox.agent.threads import CodeMap, run_times


def in_a_process(code: str) -> str:
    script = f"from jupyter_sandbox.agent import inventory\nfrom jupyter_sandbox.agent.threads import *\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_thread_that_waits_has_not_run_and_one_that_works_has():
    go, stop = threading.Event(), threading.Event()

    def wait_then_work() -> None:
        go.wait()
        while not stop.is_set():
            pass

    thread = threading.Thread(target=wait_then_work)
    before_it = run_times()
    thread.start()
    while True:  # until it waits
        first, second = run_times(), run_times()
        if first == second and thread.native_id in first:
            break
    assert set(second) - set(before_it) == {thread.native_id}
    assert run_times()[thread.native_id] == second[thread.native_id]
    go.set()
    while run_times()[thread.native_id] == second[thread.native_id]:
        pass  # it works
    stop.set()
    thread.join()


def test_the_calling_thread_is_not_in_it():
    assert threading.get_native_id() not in run_times()


def test_openblas_threads_are_found_and_are_nothing_to_worry_about():
    code = """
import os, time, numpy
(numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum()
time.sleep(0.3)  # it spins for a moment before it waits
others = list(run_times())
code = CodeMap()
print(bool(others) or os.cpu_count() == 1, all("openblas" in (code.owner(thread) or "") for thread in others))
print([row for row in inventory.scan(os.getcwd()) if row["kind"] == "native-thread"], inventory.quiescent(run_times()))
"""
    assert in_a_process(code) == "True True\n[] True"


def test_a_thread_of_another_library_is_named():
    code = """
import ctypes, os, time
from concurrent.futures import ThreadPoolExecutor
import zmq
context = zmq.Context(); socket = context.socket(zmq.PUB); socket.bind("inproc://x")
time.sleep(0.2)
rows = [row["what"] for row in inventory.scan(os.getcwd()) if row["kind"] == "native-thread"]
print(rows)
"""
    assert "zmq" in in_a_process(code)


def test_an_address_of_no_code_has_no_library():
    assert CodeMap().library(0) is None
