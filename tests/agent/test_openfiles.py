from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_sandbox.agent.openfiles import moved, open_files, repoint, unshare


def in_a_child(function) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "old" / "data.txt"
    path.parent.mkdir()
    path.write_text("0123456789")
    with path.open("r+b", buffering=0) as opened:
        yield opened


def only(file):
    return [entry for entry in open_files(frozenset()) if entry.descriptor == file.fileno()]


def test_an_open_file_is_found_with_its_offset(file):
    file.seek(4)
    (found,) = only(file)
    assert (found.path, found.offset, found.flags & os.O_ACCMODE) == (str(file.name), 4, os.O_RDWR)
    assert not [entry for entry in open_files(frozenset({file.fileno()})) if entry.descriptor == file.fileno()]


def test_a_fork_that_unshares_leaves_the_offset_alone(file):
    file.seek(3)
    files = only(file)
    in_a_child(lambda: (unshare(files), file.read(5)))
    assert file.tell() == 3


def test_the_control_a_fork_that_does_not_unshare_moves_it(file):
    file.seek(3)
    in_a_child(lambda: file.read(5))
    assert file.tell() == 8


def test_a_file_of_the_working_directory_is_the_copy_afterwards(file, tmp_path):
    copy = tmp_path / "new"
    copy.mkdir()
    (copy / "data.txt").write_text("abcdefghij")
    file.seek(2)
    files = only(file)

    def child() -> None:
        repoint(files, str(tmp_path / "old"), str(copy))
        assert file.read(3) == b"cde"
        file.write(b"!")

    in_a_child(child)
    assert (copy / "data.txt").read_text() == "abcde!ghij"
    assert file.read() == b"23456789"


def test_an_appending_file_stays_appending(tmp_path):
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as log:
        log.write(b"one")

        def child() -> None:
            unshare(only(log))
            os.lseek(log.fileno(), 0, os.SEEK_SET)
            log.write(b"two")

        in_a_child(child)
    assert path.read_bytes() == b"onetwo"


def test_a_deleted_file_is_kept_with_an_offset_of_its_own(file, tmp_path):
    Path(file.name).unlink()
    file.seek(5)
    (found,) = only(file)
    assert found.path == ""

    def child() -> None:
        repoint([found], str(tmp_path / "old"), str(tmp_path / "nowhere"))
        assert file.read() == b"56789"

    in_a_child(child)
    assert file.tell() == 5


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", "/n"), ("/a/b/c", "/n/c"), ("/a/bc", None), ("/a", None), ("", None)],
)
def test_only_what_is_below_the_root_moves(path, expected):
    assert moved(path, "/a/b", "/n") == expected


def test_nothing_moves_from_no_root():
    assert moved("/x", "", "/n") is None
