"""Copies hold what the original holds; removal copes with modes, depth and links."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading

import pytest

from jupyter_sandbox.agent import trees
from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.trees import copy_tree, remove_tree


@pytest.fixture
def source(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    return source


def test_an_empty_directory(source, tmp_path):
    source.chmod(0o750)
    assert copy_tree(str(source), str(tmp_path / "copy")) == 0
    assert os.listdir(tmp_path / "copy") == []
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o750


def test_everything_is_kept(source, tmp_path):
    data = os.urandom(300_000)
    (source / "sub/empty").mkdir(parents=True)
    (source / "f").write_bytes(data)
    (source / "f").chmod(0o4751)
    os.link(source / "f", source / "sub/same")
    (source / "sub/link").symlink_to("/nowhere/at all")
    os.mkfifo(source / "fifo")
    (source / "fifo").chmod(0o622)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + "x" * 20)  # the name in the file system would be too long
    (source / os.fsdecode(b"\xff name\n")).write_bytes(b"odd")
    (source / "nothing").touch()
    for name in ("f", "fifo", "sub/link", "sub/empty", "sub", "."):
        os.utime(source / name, ns=(10**18, 10**18 + hash(name) % 10**9), follow_symlinks=False)
    (source / "sub").chmod(0o2755)

    copied = copy_tree(str(source), str(tmp_path / "copy"))
    copy = tmp_path / "copy"
    assert copied == len(data) + 3
    assert sorted(os.listdir(copy)) == sorted(os.listdir(source))
    assert (copy / "f").read_bytes() == data
    assert os.path.samefile(copy / "f", copy / "sub/same")
    assert (copy / "f").stat().st_nlink == 2
    assert os.readlink(copy / "sub/link") == "/nowhere/at all"
    for name in ("f", "fifo", "sub/link", "sub/empty", "sub", ".", "nothing"):
        old, new = os.lstat(source / name), os.lstat(copy / name)
        assert (old.st_mode, old.st_mtime_ns) == (new.st_mode, new.st_mtime_ns), name
    (copy / "f").write_bytes(b"changed")
    assert (source / "f").read_bytes() == data


def test_sockets_and_devices_are_left_out(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
    copy_tree(str(source), str(tmp_path / "copy"))
    assert os.listdir(tmp_path / "copy") == []


@pytest.mark.parametrize("kernel", [True, False])
def test_holes_stay_holes(source, tmp_path, monkeypatch, kernel):
    if not kernel:
        monkeypatch.delattr(os, "copy_file_range")
    with open(source / "sparse", "wb") as file:
        file.write(b"start")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate(4 << 30)
    copied = copy_tree(str(source), str(tmp_path / "copy"))
    found = os.stat(tmp_path / "copy/sparse")
    assert found.st_size == 4 << 30
    assert found.st_blocks * 512 < 1 << 20
    assert copied < 1 << 20
    with open(tmp_path / "copy/sparse", "rb") as file:
        assert file.read(5) == b"start"
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS])
def test_without_the_kernels_help(source, tmp_path, monkeypatch, number):
    def refuse(*_args, **_kwargs):
        raise OSError(number, "no")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    data = os.urandom(100_000)
    (source / "f").write_bytes(data)
    copy_tree(str(source), str(tmp_path / "copy"))
    assert (tmp_path / "copy/f").read_bytes() == data


def test_a_full_disk_leaves_nothing(source, tmp_path, monkeypatch):
    (source / "sub").mkdir()
    (source / "sub/big").write_bytes(b"x" * 10_000)

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(AgentError, match="sub/big") as caught:
        copy_tree(str(source), str(tmp_path / "copy"))
    assert caught.value.code == "StorageFull"
    assert not (tmp_path / "copy").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system of its own")
def test_a_really_full_disk(source, tmp_path):
    (source / "big").write_bytes(b"x" * (2 << 20))
    script = (
        f"mount -t tmpfs -o size=1m none {tmp_path}/small && exec {sys.executable} -c '"
        "import os, sys\nfrom jupyter_sandbox.agent.trees import copy_tree\n"
        "from jupyter_sandbox.agent.errors import AgentError\n"
        'try: copy_tree(sys.argv[1], sys.argv[2] + "/copy")\n'
        "except AgentError as error: print(error.code, os.listdir(sys.argv[2]))' "
        f"{source} {tmp_path}/small"
    )
    (tmp_path / "small").mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert done.stdout == "StorageFull []\n", done.stderr


def test_an_existing_target_is_refused_and_kept(source, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/mine").touch()
    with pytest.raises(AgentError) as caught:
        copy_tree(str(source), str(tmp_path / "copy"))
    assert caught.value.code == "InvalidRequest"
    assert (tmp_path / "copy/mine").exists()


def test_a_tree_that_changes_meanwhile(source, tmp_path):
    """Directories come, go and turn into links out of the tree: the copy ends, and holds nothing from outside."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("no")
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            (source / "d").mkdir()
            (source / "d/f").write_text("yes")
            (source / "d/f").unlink()
            (source / "d").rmdir()
            (source / "d").symlink_to(tmp_path / "outside")
            (source / "d").unlink()

    for number in range(20):
        (source / f"still{number}").mkdir()
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(150):
            copy_tree(str(source), str(tmp_path / f"copy{number}"))
    finally:
        stop.set()
        thread.join()
    for number in range(150):
        copy = tmp_path / f"copy{number}"
        assert len([name for name in os.listdir(copy) if name.startswith("still")]) == 20
        assert (copy / "d").is_symlink() or not (copy / "d/secret").exists()


def test_remove_tree(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/out").symlink_to(outside)
    (tree / "a/b/f").touch()
    remove_tree(str(tree))
    remove_tree(str(tree))
    remove_tree(str(tmp_path / "never/was"))
    (tmp_path / "link").symlink_to(outside)
    remove_tree(str(tmp_path / "link"))
    (tmp_path / "file").touch()
    remove_tree(str(tmp_path / "file"))
    assert os.listdir(tmp_path) == ["outside"]
    assert (outside / "kept").exists()


def test_remove_deeper_than_any_path_or_recursion(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    fd = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("directory", dir_fd=fd)
        below = os.open("directory", os.O_RDONLY, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)
        fd = below
    os.close(fd)
    before = len(os.listdir("/proc/self/fd"))
    remove_tree(str(tree))
    assert not tree.exists()
    assert len(os.listdir("/proc/self/fd")) == before


READ_ONLY = """
import os, sys
from jupyter_sandbox.agent.trees import copy_tree, remove_tree
base = sys.argv[1]
os.makedirs(f"{base}/t/a/b/c")
open(f"{base}/t/a/b/f", "w").close()
for path, mode in (("t/a/b/f", 0o400), ("t/a/b/c", 0o000), ("t/a/b", 0o555), ("t/a", 0o111), ("t", 0o500)):
    os.chmod(f"{base}/{path}", mode)
os.chmod(f"{base}/t/a", 0o555)
try:
    copy_tree(f"{base}/t", f"{base}/copy")
except Exception as error:
    print(error.code, error.message)
os.chmod(f"{base}/t/a/b/c", 0o500)
copy_tree(f"{base}/t", f"{base}/copy")
print(oct(os.stat(f"{base}/copy/a/b").st_mode), os.listdir(f"{base}/copy/a/b"))
os.chmod(f"{base}/t/a/b/c", 0)
os.chmod(f"{base}/t/a", 0o111)
remove_tree(f"{base}/t")
remove_tree(f"{base}/copy")
print(os.listdir(base))
"""


def test_read_only_directories_as_an_ordinary_user(tmp_path):
    command = [sys.executable, "-c", READ_ONLY, str(tmp_path)]
    if os.geteuid() == 0:  # root is not stopped by modes; take those powers away, keep the user
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    refused, kept, left = done.stdout.splitlines()
    assert refused.startswith("Forbidden 'a/b/c'")
    assert kept.startswith("0o40555 [")
    assert left == "[]"


def test_what_is_written_while_it_is_removed(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set() and tree.exists() and number < 300:
            number += 1
            try:
                os.makedirs(tree / f"d{number}/x")
                (tree / f"d{number}/x/f").touch()
            except OSError:
                continue

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(50):
            remove_tree(str(tree))
    finally:
        stop.set()
        thread.join()
    remove_tree(str(tree))
    assert not tree.exists()


def test_reflinks_are_tried(source, tmp_path, monkeypatch):
    tried = []

    def clone(target, request, origin):
        tried.append(request)
        os.sendfile(target, origin, 0, 1 << 20)

    monkeypatch.setattr(trees.fcntl, "ioctl", clone)
    (source / "f").write_bytes(b"12345")
    assert copy_tree(str(source), str(tmp_path / "copy")) == 5
    assert tried == [0x40049409]
