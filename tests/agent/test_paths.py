"""Nothing is reached outside the root, by either way of resolving, also while somebody swaps directories for links."""

from __future__ import annotations

import os
import threading

import pytest

from jupyter_sandbox.agent import paths
from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.paths import opened, opened_directory, opened_parent

ESCAPES = [
    "../secret",
    "..",
    "a/../../secret",
    "a/b/../../../outside/secret",
    "out/secret",
    "out",
    "abs/secret",
    "chain/secret",
    "a/up/secret",
    "proc/root/etc/passwd",
    "../root-sibling/x",
]
REFUSED = ["", "/etc/passwd", "a\0b", "\0", "x" * 5000, "/".join(["d"] * 2500), "\ud800", "~" * 300]


@pytest.fixture(params=["openat2", "walk"])
def root(request, tmp_path, monkeypatch):
    if request.param == "walk":
        monkeypatch.setattr(paths, "has_openat2", lambda: False)
    elif not paths.has_openat2():
        pytest.skip("this kernel has no openat2")
    root = tmp_path / "root"
    outside = tmp_path / "outside"
    (root / "a/b").mkdir(parents=True)
    outside.mkdir()
    (tmp_path / "root-sibling").mkdir()
    (tmp_path / "root-sibling/x").write_text("no")
    (tmp_path / "secret").write_text("no")
    (outside / "secret").write_text("no")
    (root / "a/file").write_text("yes")
    (root / "in").symlink_to("a/b/..")
    (root / "a/b/link").symlink_to("../../in/file")
    (root / "out").symlink_to("../outside")
    (root / "abs").symlink_to(outside)
    (root / "self").symlink_to("self")
    (root / "chain").symlink_to("a/../out")
    (root / "a/up").symlink_to("../../outside")
    (root / "proc").symlink_to("/proc/self")
    (root / "dangling").symlink_to("a/new")
    return root


def read(root, path, flags=os.O_RDONLY):
    with opened(str(root), path, flags) as fd:
        return os.read(fd, 100)


@pytest.mark.parametrize(
    "path", ["a/file", "./a//file", "a/b/../file", "in/file", "a/b/link", "in/b/link", "in/./file"]
)
def test_inside(root, path):
    assert read(root, path) == b"yes"


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH])
def test_escapes(root, path, flags):
    with pytest.raises(AgentError) as caught:
        read(root, path, flags) if flags == os.O_RDONLY else opened(str(root), path, flags).__enter__()
    assert caught.value.code == "InvalidRequest"
    assert caught.value.context["field"] == "path"
    assert caught.value.remedy


@pytest.mark.parametrize("path", REFUSED)
def test_refused(root, path):
    for call in (lambda: read(root, path), lambda: opened_directory(str(root), path, create=True).__enter__()):
        with pytest.raises(AgentError) as caught:
            call()
        assert caught.value.code == "InvalidRequest"
        caught.value.message.encode()  # can be sent
        assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nothing", "PathNotFound"),
        ("a/file/x", "InvalidRequest"),
        ("self", "InvalidRequest"),
        ("a/file/", "InvalidRequest"),
        ("dangling", "PathNotFound"),
    ],
)
def test_errors_name_the_path(root, path, code):
    with pytest.raises(AgentError) as caught:
        read(root, path)
    assert caught.value.code == code
    assert repr(path) in caught.value.message


def test_odd_names_are_names(root):
    for name in ("-rf", "new\nline", "a b", "é", "\udcff", "...", "%2e%2e"):
        with opened(str(root), name, os.O_WRONLY | os.O_CREAT):
            pass
        assert os.fsencode(name) in os.listdir(os.fsencode(root))


def test_create_through_a_dangling_link(root):
    with opened(str(root), "dangling", os.O_WRONLY | os.O_CREAT) as fd:
        os.write(fd, b"made")
    assert (root / "a/new").read_text() == "made"
    assert (root / "dangling").is_symlink()


def test_links_themselves(root):
    with opened(str(root), "out", os.O_PATH | os.O_NOFOLLOW) as fd:
        assert os.readlink("", dir_fd=fd) == "../outside"


@pytest.mark.parametrize("path", [".", "a/..", "a/../.", "in/..", "a//"])
def test_directories(root, path):
    with opened_directory(str(root), path) as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(root / path))


def test_parents_are_made(root):
    with opened_directory(str(root), "in/x/../y/z", create=True) as fd:
        assert os.path.samestat(os.fstat(fd), os.stat(root / "a/y/z"))
    assert (root / "a/x").is_dir()
    for path, code in (
        ("out/made", "InvalidRequest"),
        ("a/file/made", "InvalidRequest"),
        ("x/../../made", "InvalidRequest"),
    ):
        with pytest.raises(AgentError) as caught:
            opened_directory(str(root), path, create=True).__enter__()
        assert caught.value.code == code
    assert not list(root.parent.glob("**/made"))


def test_parent_and_name(root):
    with opened_parent(str(root), "in/b/") as (fd, name):
        assert os.path.samestat(os.fstat(fd), os.stat(root / "a"))
        assert name == "b"
    for path in (".", "a/..", "..", "./", "a/."):
        with pytest.raises(AgentError) as caught:
            opened_parent(str(root), path).__enter__()
        assert caught.value.code == "InvalidRequest"


def test_a_root_that_is_gone_is_said_so(tmp_path):
    with pytest.raises(AgentError, match="runtime's directory") as caught:
        read(tmp_path / "gone", "x")
    assert caught.value.code == "PathNotFound"


def test_a_deep_path_with_the_walk_leaks_no_descriptor(root, monkeypatch):
    monkeypatch.setattr(paths, "has_openat2", lambda: False)
    before = len(os.listdir("/proc/self/fd"))
    assert read(root, "a/../" * 800 + "a/file") == b"yes"
    with pytest.raises(AgentError):
        opened_directory(str(root), "/".join(["d"] * 300), create=True).__enter__()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_directory_swapped_for_a_link(root):
    """What is read is either what was inside, or an error: never the file outside."""
    (root / "swap").mkdir()
    (root / "swap/secret").write_text("yes")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(root / "swap", root / "aside")
            os.symlink("../outside", root / "swap")
            os.unlink(root / "swap")
            os.rename(root / "aside", root / "swap")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(20_000):
            try:
                seen.add(read(root, "swap/../swap/secret"))
            except AgentError as error:
                seen.add(error.code)
            if len(seen) >= 3:
                break
    finally:
        stop.set()
        thread.join()
    assert b"yes" in seen
    assert seen <= {b"yes", "PathNotFound", "InvalidRequest", "Conflict"}
