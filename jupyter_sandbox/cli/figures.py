"""
Quick figures for 1 GB: ours over HTTP, a bare ``os.fork()``, and dill, each in a process of its own, in one run.

They tell the order of magnitude on this machine; they are no benchmark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TypeVar

from jupyter_sandbox.client import Client, Runtime

T = TypeVar("T")

ARRAY = "import numpy as np\narray = np.arange(125_000_000, dtype=np.float64)  # 10^9 bytes\n"
TOUCH = "array[-1]"
LAST = 124_999_999.0
REPEATS = 5

_BARE_FORK = (
    ARRAY
    + f"""
import json, os, time
times = []
for _ in range({REPEATS}):
    read, write = os.pipe()
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.write(write, repr(float({TOUCH})).encode())
        os._exit(0)
    forked = time.perf_counter()
    os.read(read, 99)
    times.append([1e3 * (forked - start), 1e3 * (time.perf_counter() - start)])
    os.waitpid(pid, 0); os.close(read); os.close(write)
print(json.dumps(times))
"""
)

_DILL = (
    ARRAY
    + f"""
import dill, json, sys, time
start = time.perf_counter()
with open(sys.argv[1], "wb") as file:
    dill.dump(array, file)
dumped = time.perf_counter()
del array
begin = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    array = dill.load(file)
float({TOUCH})
print(json.dumps([[1e3 * (dumped - start), 1e3 * (time.perf_counter() - begin)]]))
"""
)


@dataclass(frozen=True)
class Figure:
    """A row of the table: the median of ``n`` times, or why there is none."""

    label: str
    ms: float | None
    n: int
    what: str


@dataclass(frozen=True)
class Ours:
    """Our own rows, and whether every fork had the array, independent of the others."""

    rows: tuple[Figure, ...]
    intact: bool


def over_http(client: Client, runtime: Runtime) -> Ours:
    """Checkpoint 1 GB and fork it, as a caller of the HTTP API sees it.

    Args:
        client: A client of the server.
        runtime: A fresh runtime, which gets the array.
    """
    runtime.run(ARRAY, check=True)
    checkpoints, forks, intact = [], [], True
    for number in range(REPEATS):
        runtime.run(f"array[0] = {number}", check=True)  # else the next one would reuse the last snapshot
        took, checkpoint = _timed(runtime.checkpoint)
        checkpoints.append(took)

        def fork_and_look(source: str = checkpoint.id) -> tuple[Runtime, str]:
            child = client.fork(source)
            return child, child.run(f"print(float({TOUCH}), array[0])", check=True).text

        took, (child, text) = _timed(fork_and_look)
        forks.append(took)
        child.run("array[:1000] = -1", check=True)
        intact &= text.split() == [str(LAST), str(float(number))]
        intact &= runtime.run("print(array[0])", check=True).text.split() == [str(float(number))]
        child.close()
        client.delete_checkpoint(checkpoint.id)
    return Ours(
        rows=(
            Figure("checkpoint", median(checkpoints), len(checkpoints), "HTTP request to its answer"),
            Figure(
                "fork to first cell", median(forks), len(forks), "fork request to the result of a cell in the child"
            ),
        ),
        intact=intact,
    )


def bare_fork() -> Iterator[Figure]:
    """What the operating system alone needs for 1 GB, in a plain process."""
    calls, answers = zip(*_measure(_BARE_FORK), strict=True)
    yield Figure("bare os.fork()", median(calls), len(calls), "the system call, in the parent")
    yield Figure(
        "bare os.fork() to first byte", median(answers), len(answers), "until the child has read the array and answered"
    )


def dill(directory: Path) -> Iterator[Figure]:
    """What it costs to write and read the same array, and only it, with dill.

    Args:
        directory: Where its file goes, for the time being.
    """
    if find_spec("dill") is None:
        yield Figure("dill", None, 0, "not installed (it comes with the test extra): skipped")
        return
    file = directory / "array.dill"
    try:
        ((dumped, loaded),) = _measure(_DILL, str(file))
    finally:
        file.unlink(missing_ok=True)
    yield Figure("dill dump", dumped, 1, "the array alone, to a file; generators and cursors it refuses")
    yield Figure("dill load", loaded, 1, "the array alone, from that file")


def _measure(program: str, *arguments: str) -> Sequence[tuple[float, float]]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    times: list[tuple[float, float]] = [(first, second) for first, second in json.loads(done.stdout)]
    return times


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - start), result
