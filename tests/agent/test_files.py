"""Files of a runtime: whole or not at all, never outside, never blocked by something that is no file."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from jupyter_sandbox.agent import files
from jupyter_sandbox.agent.errors import AgentError

LIMIT = 1 << 20


def code(call, *args, **kwargs):
    with pytest.raises(AgentError) as caught:
        call(*args, **kwargs)
    return caught.value.code


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").write_text("untouched")
    return root


def test_write_and_read(root):
    data = os.urandom(3_000_000)
    files.write_bytes(str(root), "new/dir/f", data)
    assert files.read_bytes(str(root), "new/dir/f", len(data)) == data
    files.write_bytes(str(root), "new/dir/f", b"")
    assert files.read_bytes(str(root), "new/dir/f", 0) == b""
    assert os.listdir(root / "new/dir") == ["f"]


def test_a_file_keeps_its_mode_and_a_new_one_follows_the_umask(root):
    (root / "script").write_text("old")
    (root / "script").chmod(0o4750)
    files.write_bytes(str(root), "script", b"new")
    assert (root / "script").stat().st_mode & 0o7777 == 0o750
    files.write_bytes(str(root), "fresh", b"")
    (root / "reference").touch()
    assert (root / "fresh").stat().st_mode == (root / "reference").stat().st_mode


def test_readers_see_the_old_or_the_new(root):
    pieces = {b"a" * 200_000, b"b" * 200_000}
    files.write_bytes(str(root), "f", b"a" * 200_000)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for piece in pieces:
                files.write_bytes(str(root), "f", piece)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert {files.read_bytes(str(root), "f", LIMIT) for _ in range(200)} <= pieces
    finally:
        stop.set()
        thread.join()


def test_links_are_written_through_as_long_as_they_stay_inside(root):
    (root / "d").mkdir()
    (root / "d/real").write_text("old")
    (root / "d/link").symlink_to("../via")
    (root / "via").symlink_to("d/real")
    files.write_bytes(str(root), "d/link", b"new")
    assert (root / "d/real").read_text() == "new"
    assert (root / "d/link").is_symlink()
    (root / "dangling").symlink_to("made/here")
    files.write_bytes(str(root), "dangling", b"x")
    assert (root / "made/here").read_text() == "x"
    for name, target in (
        ("out", "../outside/f"),
        ("absolute", root.parent / "outside/f"),
        ("loop", "loop"),
        ("dirlink", "../outside"),
    ):
        (root / name).symlink_to(target)
        assert code(files.write_bytes, str(root), name if name != "dirlink" else "dirlink/f", b"no") == "InvalidRequest"
        assert code(files.read_bytes, str(root), name if name != "dirlink" else "dirlink/f", LIMIT) == "InvalidRequest"
    assert (root.parent / "outside/f").read_text() == "untouched"
    assert os.listdir(root.parent / "outside") == ["f"]


def test_what_is_no_file_is_refused_and_never_blocks(root, tmp_path_factory):
    (root / "dir").mkdir()
    os.mkfifo(root / "fifo")
    short = tmp_path_factory.mktemp("s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/s")
        os.rename(f"{short}/s", root / "socket")
    for name in ("dir", "fifo", "socket", "dir/", "."):
        assert code(files.read_bytes, str(root), name, LIMIT) == "InvalidRequest"
        assert code(files.write_bytes, str(root), name, b"x") == "InvalidRequest"
    (root / "zero").symlink_to("/dev/zero")
    assert code(files.read_bytes, str(root), "zero", LIMIT) == "InvalidRequest"
    assert code(files.read_bytes, "/dev", "zero", LIMIT) == "InvalidRequest"
    assert code(files.read_bytes, "/proc/self", "fd/0", LIMIT) == "InvalidRequest"
    assert (root / "fifo").is_fifo()
    assert sorted(os.listdir(root)) == ["dir", "fifo", "socket", "zero"]


def test_to_refuse_a_fifo_does_not_wake_its_writer(root):
    os.mkfifo(root / "fifo")
    assert code(files.read_bytes, str(root), "fifo", LIMIT) == "InvalidRequest"
    with pytest.raises(OSError, match="No such device"):  # still nobody reads
        os.open(root / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_limits(root):
    (root / "f").write_bytes(b"12345")
    assert files.read_bytes(str(root), "f", 5) == b"12345"
    assert code(files.read_bytes, str(root), "f", 4) == "TooLarge"
    with open(root / "sparse", "wb") as file:
        file.truncate(10 << 30)
    assert code(files.read_bytes, str(root), "sparse", LIMIT) == "TooLarge"
    assert files.read_bytes("/proc/self", "status", LIMIT).startswith(b"Name:")  # claims to be empty
    assert code(files.read_bytes, "/proc/self", "status", 10) == "TooLarge"


def test_a_full_disk_leaves_the_old_file_and_no_scrap(root, monkeypatch):
    (root / "f").write_text("old")
    real = os.write

    def full(fd, data):
        if len(data) < 1000:
            raise OSError(28, "No space left on device")
        return real(fd, data[:500])

    monkeypatch.setattr(os, "write", full)
    assert code(files.write_bytes, str(root), "f", b"x" * 1200) == "StorageFull"
    assert (root / "f").read_text() == "old"
    assert os.listdir(root) == ["f"]


def test_create_dir_all(root):
    files.create_dir_all(str(root), "a/b/c/")
    files.create_dir_all(str(root), "a/b/c")
    assert (root / "a/b/c").is_dir()
    (root / "a/file").touch()
    assert code(files.create_dir_all, str(root), "a/file") == "InvalidRequest"
    assert code(files.create_dir_all, str(root), "../x") == "InvalidRequest"


def test_temp_path(root):
    name = files.temp_path(str(root), "pre-", ".txt")
    assert name.startswith("pre-")
    assert name.endswith(".txt")
    assert (root / name).stat().st_mode & 0o777 == 0o600
    folder = files.temp_path(str(root), directory=True)
    assert (root / folder).is_dir()
    assert len({files.temp_path(str(root)) for _ in range(50)}) == 50
    assert code(files.temp_path, str(root), "../x") == "InvalidRequest"
    assert code(files.temp_path, str(root), "x", "/y") == "InvalidRequest"
    assert code(files.temp_path, str(root), "x\0") == "InvalidRequest"


def test_remove(root):
    outside = root.parent / "outside"
    (root / "link").symlink_to(outside)
    (root / "tree/deep").mkdir(parents=True)
    (root / "tree/deep/out").symlink_to(outside)
    (root / "tree/deep/f").touch()
    files.remove(str(root), "link/")
    files.remove(str(root), "tree")
    assert os.listdir(root) == []
    assert (outside / "f").read_text() == "untouched"
    assert code(files.remove, str(root), "tree") == "PathNotFound"
    for path in (".", "..", "../outside", "x/..", "/", ""):
        assert code(files.remove, str(root), path) in {"InvalidRequest", "PathNotFound"}
    assert root.is_dir()
    assert outside.is_dir()


def test_stat(root):
    (root / "f").write_bytes(b"123")
    (root / "f").chmod(0o640)
    os.utime(root / "f", ns=(0, 1_700_000_000_123_456_789))
    assert files.stat(str(root), "f") == {
        "path": "f",
        "type": "file",
        "size": 3,
        "mode": 0o640,
        "modified_at_ms": 1_700_000_000_123,
    }
    (root / "out").symlink_to("/etc/passwd")
    assert files.stat(str(root), "out")["type"] == "symlink"
    assert files.stat(str(root), ".")["type"] == "directory"
    os.mkfifo(root / "fifo")
    assert files.stat(str(root), "fifo")["type"] == "other"
    assert code(files.stat, str(root), "gone") == "PathNotFound"
    assert code(files.stat, str(root), "..") == "InvalidRequest"
