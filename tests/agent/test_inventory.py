"""What is there is listed, once and by a name that a user knows; what is not there is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from jupyter_sandbox.agent import inventory
from jupyter_sandbox.agent.not_captured import REMEDIES

PRELUDE = """
import json, mmap, os, select, socket, sqlite3, subprocess, sys, tempfile, threading
from multiprocessing import shared_memory
from jupyter_sandbox.agent.inventory import quiescent, scan
root, outside = sys.argv[1:]
os.chdir(root)
before = scan(root)
def report(*more, **how):
    print(json.dumps({"before": before, "rows": scan(root, **how), "quiescent": quiescent({}), "more": more}))
"""


@pytest.fixture
def seen(tmp_path):
    """Run code in a fresh process; returns the rows as (kind, what), and what else it reported."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(tmp_path / "root"), str(tmp_path / "outside")],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        ours = {row["what"] for row in report["before"]}  # the pipes of this very test
        assert all(what.startswith("pipe") for what in ours), ours
        rows = [row for row in report["rows"] if row["what"] not in ours]
        assert all(row["remedy"] for row in rows)
        return [(row["kind"], row["what"]) for row in rows], report["quiescent"], report["more"]

    return run


def test_nothing(seen):
    rows, quiet, _ = seen("f = open('inside', 'w+'); g = open('/etc/passwd'); n = open('/dev/null', 'w'); report()")
    assert rows == []
    assert quiet


def test_threads(seen):
    rows, quiet, _ = seen("""
        stop = threading.Event()
        t = threading.Thread(target=stop.wait, name="poller"); t.start()
        d = threading.Timer(1000, print); d.name = "later"; d.daemon = True; d.start()
        report(); stop.set(); d.cancel()
    """)
    assert rows == [("thread", "thread poller"), ("thread", "thread later (daemon)")]
    assert not quiet


def test_native_threads(seen):
    rows, quiet, _ = seen("""
        import _thread
        lock = _thread.allocate_lock(); lock.acquire()
        ready = _thread.allocate_lock(); ready.acquire()
        def wait(): ready.release(); lock.acquire()
        _thread.start_new_thread(wait, ()); ready.acquire()
        report(); lock.release()
    """)
    assert [kind for kind, _ in rows] == ["native-thread"]
    assert rows[0][1].startswith("1 thread of ")
    assert not quiet


def test_children(seen):
    rows, quiet, (pid, ended) = seen("""
        p = subprocess.Popen(["sleep", "300"])
        z = subprocess.Popen(["true"]); os.waitid(os.P_PID, z.pid, os.WEXITED | os.WNOWAIT)
        mine = subprocess.Popen(["sleep", "301"])
        while b"sleep" not in open(f"/proc/{p.pid}/cmdline", "rb").read(): pass
        report(p.pid, z.pid, own_pids={mine.pid}); p.kill(); mine.kill(); p.wait(); mine.wait(); z.wait()
    """)
    assert rows[0] == ("process", f"process {pid} (sleep 300)")
    assert rows[1][1].startswith(f"process {ended} (")
    assert rows[1][1].endswith("ended and not waited for")
    assert len(rows) == 2
    assert not quiet


def test_an_ended_child_changes_nothing(seen):
    _, quiet, _ = seen("""
        z = subprocess.Popen(["true"]); os.waitid(os.P_PID, z.pid, os.WEXITED | os.WNOWAIT); report(); z.wait()
    """)
    assert quiet


def test_sockets(seen):
    rows, _, (port, v6) = seen("""
        a = socket.create_server(("127.0.0.1", 0)); port = a.getsockname()[1]
        c = socket.create_connection(("127.0.0.1", port))
        six = socket.socket(socket.AF_INET6)
        u = socket.socket(socket.AF_UNIX); u.bind("\\0" + "abstract" + str(os.getpid())); u.listen()
        v = socket.socket(socket.AF_UNIX); v.connect("\\0" + "abstract" + str(os.getpid()))
        udp = socket.socket(type=socket.SOCK_DGRAM)
        l, r = socket.socketpair()
        report(port, os.getpid())
    """)
    words = [what for kind, what in rows if kind == "socket"]
    assert f"socket that listens on 127.0.0.1:{port}" in words
    assert f"connection to 127.0.0.1:{port}" in words
    assert f"unix socket that listens on @abstract{v6}" in words
    assert f"unix connection to @abstract{v6}" in words
    assert sum(word.startswith("one end of a unix socket pair") for word in words) == 2
    assert any("[::]:0" in word for word in words)
    assert len(words) == len(rows) == 8


def test_sockets_are_left_as_they_are(seen):
    _, _, (before, after, sent) = seen("""
        l, r = socket.socketpair()
        socket.setdefaulttimeout(5)
        was = os.get_blocking(l.fileno())
        scan(root)
        report(was, os.get_blocking(l.fileno()), l.send(b"x"))
    """)
    assert (before, after, sent) == (True, True, 1)


def test_our_own_descriptors_are_not_listed(seen):
    rows, _, _ = seen(
        "l, r = socket.socketpair(); e = select.epoll(); report(ours={l.fileno(), r.fileno(), e.fileno()})"
    )
    assert rows == []


def test_shared_memory(seen):
    rows, _, (name,) = seen("""
        m = mmap.mmap(-1, 3 << 20)
        f = open("mapped", "w+b"); f.truncate(1 << 20); n = mmap.mmap(f.fileno(), 0)
        private = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        readonly = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        s = shared_memory.SharedMemory(create=True, size=1 << 20)
        fd = os.memfd_create("my memory")
        report(s.name); s.close(); s.unlink()
    """)
    rows = [row for row in rows if "resource_tracker" not in row[1] and row[0] not in {"pipe", "process"}]
    assert ("shared-mapping", "shared anonymous memory, 3.0 MiB") in rows
    assert ("shared-mapping", f"/dev/shm/{name}, 1.0 MiB") in rows
    assert ("shared-mapping", "memory file 'my memory'") in rows
    assert any(what.endswith("/root/mapped, 1.0 MiB") for _, what in rows)
    assert len(rows) == 4


def test_files(seen, tmp_path):
    rows, _, _ = seen("""
        log = open(f"{outside}/log", "a")
        inside = open("data", "r+" if os.path.exists("data") else "w+")
        t = tempfile.TemporaryFile(dir=outside)
        gone = open("gone", "w"); os.unlink("gone")
        d = os.open(root, os.O_RDONLY); e = os.open(outside, os.O_RDONLY)
        report()
    """)
    outside = str((tmp_path / "outside").resolve())
    assert ("shared-file", f"{outside}/log, open for writing") in rows
    assert ("deleted-file", "gone, deleted and still open") in rows
    assert sum(kind == "deleted-file" for kind, _ in rows) == 2
    assert [what for kind, what in rows if kind == "directory"] == ["open directory . (the source's, also in a fork)"]
    assert len(rows) == 4


def test_the_current_directory(seen):
    rows, _, _ = seen("os.chdir(outside); report()")
    assert [kind for kind, _ in rows] == ["directory"]
    assert "outside" in rows[0][1]
    rows, _, _ = seen("os.mkdir('x'); os.chdir('x'); os.rmdir(f'{root}/x'); report()")
    assert rows == [("directory", "the process's current directory, which was deleted")]


def test_sqlite(seen):
    rows, _, _ = seen("""
        w = sqlite3.connect("wal.db"); w.execute("PRAGMA journal_mode=WAL"); w.execute("CREATE TABLE t (x)"); w.commit()
        r = sqlite3.connect("rollback.db"); r.execute("CREATE TABLE t (x)"); r.commit()
        report()
    """)
    assert rows == [("sqlite-wal", "sqlite database wal.db in WAL mode")]


def test_pipes_and_kernel_objects(seen):
    rows, _, (end,) = seen("""
        r, w = os.pipe()
        p = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        e = select.epoll()
        os.mkfifo("fifo"); f = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
        pidfd = os.pidfd_open(os.getpid())
        report(e.fileno()); p.stdin.close(); p.wait()
    """)
    pipes = sorted(what for kind, what in rows if kind == "pipe")
    assert len(pipes) == 3
    assert pipes[0].startswith("fifo /")
    assert sorted(what.split(maxsplit=2)[2] for what in pipes[1:]) == ["to another process", "within the process"]
    assert [what for kind, what in rows if kind == "kernel-object"] == [f"an epoll queue (descriptor {end})"]


def test_devices(seen):
    rows, _, _ = seen("""
        keep = [open(f"/dev/{name}", "rb", buffering=0) for name in ("zero", "null", "urandom", "full")]
        master, slave = os.openpty()
        d = os.open("/dev/fuse", os.O_RDWR) if os.path.exists("/dev/fuse") and os.access("/dev/fuse", os.W_OK) else None
        report(d is not None)
    """)
    assert [kind for kind, _ in rows if kind != "device"] == []
    assert {what for _, what in rows} <= {"/dev/fuse"}


def test_cuda(seen):
    rows, _, _ = seen("""
        import types
        torch = types.ModuleType("torch"); torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)
        sys.modules["torch"] = torch
        report(); torch.cuda.is_initialized = lambda: False; before = scan(root); del torch.cuda; assert scan(root) == before
    """)
    assert rows == [("gpu", "CUDA is initialised (torch)")]


def test_scan_imports_nothing_and_leaves_nothing_open(tmp_path):
    inventory.scan(str(tmp_path))
    modules, descriptors = set(sys.modules), sorted(os.listdir("/proc/self/fd"))
    inventory.scan(str(tmp_path))
    assert set(sys.modules) == modules
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


def test_without_the_kernels_list_of_children(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory.threading, "get_native_id", lambda: 0)
    with subprocess.Popen(["sleep", "300"]) as child:
        assert (child.pid, True) in inventory._child_pids()
        child.kill()


def test_every_kind_has_a_remedy():
    assert all(remedy.endswith(".") and kind == kind.lower() for kind, remedy in REMEDIES.items())
