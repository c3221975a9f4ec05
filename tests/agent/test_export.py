"""The stream is a tar that others read, in bounded memory, whatever happens to the files meanwhile."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
import tracemalloc

import pytest

from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.export import CHUNK, export


def members(root, path="."):
    data = b"".join(export(str(root), path))
    assert len(data) % 512 == 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return {member.name: (member, tar.extractfile(member).read() if member.isfile() else None) for member in tar}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "d/sub").mkdir(parents=True)
    (root / "d/f").write_bytes(b"content")
    (root / "d/f").chmod(0o4755)
    (root / "d/empty").touch()
    os.link(root / "d/f", root / "d/sub/again")
    (root / "d/link").symlink_to("/etc/passwd")
    return root


def test_a_directory(root):
    found = members(root, "d")
    assert set(found) == {"d", "d/f", "d/empty", "d/sub", "d/sub/again", "d/link"}
    contents = [content for member, content in found.values() if member.isreg()]
    assert sorted(contents) == [b"", b"content"]
    hard = [member for member, _ in found.values() if member.islnk()]
    assert len(hard) == 1
    assert found[hard[0].linkname][1] == b"content"
    assert found["d/link"][0].linkname == "/etc/passwd"
    regular = found[hard[0].linkname][0]
    assert regular.mode == 0o755
    assert regular.mtime == int((root / "d/f").stat().st_mtime)


def test_names_have_no_leading_dot_or_slash(root):
    assert set(members(root)) == {"d", "d/f", "d/empty", "d/sub", "d/sub/again", "d/link"}
    assert set(members(root, "d/sub/..")) == {"f", "empty", "sub", "sub/again", "link"}
    assert set(members(root, "./d//sub/")) == {"sub", "sub/again"}


def test_one_file_and_a_link_to_one(root):
    (root / "to").symlink_to("d/f")
    assert members(root, "to")["to"][1] == b"content"
    assert set(members(root, "d/f")) == {"f"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("gone", "PathNotFound"),
        ("..", "InvalidRequest"),
        ("/etc", "InvalidRequest"),
        ("d/link", "InvalidRequest"),
        ("fifo", "InvalidRequest"),
        ("", "InvalidRequest"),
    ],
)
def test_bad_paths_are_known_from_the_first_step(root, path, code):
    os.mkfifo(root / "fifo")
    with pytest.raises(AgentError) as caught:
        next(iter(export(str(root), path)))
    assert caught.value.code == code


def test_long_and_odd_names(root):
    long = "/".join(["directory" * 10] * 5)
    (root / long).mkdir(parents=True)
    (root / long / "é\n").write_text("x")
    (root / os.fsdecode(b"\xff")).write_text("y")
    found = members(root)
    assert found[f"{long}/é\n"][1] == b"x"
    assert found[os.fsdecode(b"\xff")][1] == b"y"


def test_what_is_no_file_is_left_out(root, monkeypatch):
    os.mkfifo(root / "fifo")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    assert not {"fifo", "socket"} & set(members(root))


def test_gnu_tar_reads_it(root, tmp_path):
    (root / "big").write_bytes(os.urandom(1_000_001))
    (tmp_path / "x").mkdir()
    subprocess.run(["tar", "-x", "-C", tmp_path / "x"], input=b"".join(export(str(root))), check=True)
    assert (tmp_path / "x/big").read_bytes() == (root / "big").read_bytes()
    assert os.path.samefile(tmp_path / "x/d/f", tmp_path / "x/d/sub/again")


@pytest.mark.parametrize("change", ["shrink", "grow", "unlink"])
def test_a_file_that_changes_while_it_is_read(root, change):
    size = 10 * CHUNK + 100
    (root / "a").write_bytes(b"x" * size)
    pieces = export(str(root), "a")
    data = next(pieces)
    if change == "shrink":
        os.truncate(root / "a", 1000)
    elif change == "grow":
        with open(root / "a", "ab") as file:
            file.write(b"y" * size)
    else:
        os.unlink(root / "a")
    data += b"".join(pieces)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        content = tar.extractfile("a").read()
    assert len(content) == size
    assert content.rstrip(b"\0") == (b"x" * size if change != "shrink" else content.rstrip(b"\0"))
    assert b"y" not in content


def test_what_vanishes_is_left_out(root):
    for number in range(500):
        (root / f"f{number:03}").write_bytes(b"x" * 1000)
        (root / f"d{number:03}").mkdir()
    pieces = export(str(root), chunk=1)
    data = next(pieces)
    for number in range(500):
        (root / f"f{number:03}").unlink()
        (root / f"d{number:03}").rmdir()
        (root / f"d{number:03}").symlink_to("/etc")
    data += b"".join(pieces)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert not [name for name in tar.getnames() if "passwd" in name]


@pytest.mark.parametrize("count", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_over_many_files(root, count):
    for number in range(count):
        if number % 1000 == 0:
            (root / f"many{number}").mkdir()
        os.close(os.open(root / f"many{number // 1000 * 1000}/{number}", os.O_CREAT | os.O_WRONLY))
    peaks = []
    tracemalloc.start()
    try:
        total = 0
        for piece in export(str(root)):
            total += len(piece)
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert total > count * 512
    assert max(peaks) < 1_000_000
    assert max(peaks) < peaks[len(peaks) // 4] + 200_000


def test_stopping_early_closes_everything(root):
    before = len(os.listdir("/proc/self/fd"))
    (root / "big").write_bytes(b"x" * 10 * CHUNK)
    pieces = export(str(root))
    next(pieces)
    pieces.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_read_is_an_error_not_a_hole(root, monkeypatch):
    real = os.open

    def refuse(path, *args, **kwargs):
        if path == "empty":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AgentError, match="d/empty") as caught:
        members(root)
    assert caught.value.code == "Forbidden"
