"""What globs and expressions find, and that a search is bounded and can be stopped."""

from __future__ import annotations

import os

import pytest

from jupyter_sandbox.agent.errors import AgentError
from jupyter_sandbox.agent.search import SHOWN_LINE, finish, search

TREE = [
    "a.py",
    "b.txt",
    "src/c.py",
    "src/deep/er/d.py",
    "src/[x].py",
    ".hidden.py",
    ".git/config",
    "src/.env",
    "z/.git/hooks/h",
]


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"one {name}\ntwo\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.py").write_text("one secret\n")
    (root / "out").symlink_to("../outside")
    (root / "link.py").symlink_to("../outside/secret.py")
    return root


def names(root, glob, **more):
    return [match["path"] for match in finish(search(str(root), glob, **more))["matches"]]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["a.py", "link.py"]),
        ("**/*.py", ["a.py", "link.py", "src/[x].py", "src/c.py", "src/deep/er/d.py"]),
        ("**/*", ["a.py", "b.txt", "link.py", "out", "src/[x].py", "src/c.py", "src/deep/er/d.py"]),
        ("**", ["a.py", "b.txt", "link.py", "out", "src/[x].py", "src/c.py", "src/deep/er/d.py"]),
        ("src/**/d.py", ["src/deep/er/d.py"]),
        ("src/**/c.py", ["src/c.py"]),
        ("**/deep/**/*.py", ["src/deep/er/d.py"]),
        ("./src/?.py", ["src/c.py"]),
        ("src/[[]x].py", ["src/[x].py"]),
        ("[!a].py", []),
        (".*", [".hidden.py"]),
        ("**/.*", [".hidden.py", "src/.env"]),
        ("**/.git/**", [".git/config", "z/.git/hooks/h"]),
        ("A.PY", []),
        ("out/*", []),
        ("src", []),
    ],
)
def test_globs(root, glob, found):
    assert names(root, glob) == found


@pytest.mark.parametrize("glob", ["/etc/*", "../*", "a/../../x", "", ".", "a\0", "/".join(["**"] * 100)])
def test_bad_globs(root, glob):
    with pytest.raises(AgentError) as caught:
        finish(search(str(root), glob))
    assert caught.value.code == "InvalidRequest"
    assert caught.value.context["field"] == "glob"


def test_below_a_path(root):
    assert names(root, "**/*.py", path="src") == ["src/[x].py", "src/c.py", "src/deep/er/d.py"]
    assert names(root, "*", path="./src/deep/er/") == ["src/deep/er/d.py"]
    assert names(root, "**/*", path="src/c.py") == ["src/c.py"]
    assert names(root, "*.txt", path="src/c.py") == []
    assert finish(search(str(root), "*", path="src/c.py", text="two"))["matches"] == [
        {"path": "src/c.py", "line": 2, "text": "two"}
    ]
    for path, code in (
        ("gone", "PathNotFound"),
        ("..", "InvalidRequest"),
        ("out", "InvalidRequest"),
        ("/etc", "InvalidRequest"),
    ):
        with pytest.raises(AgentError) as caught:
            finish(search(str(root), path=path))
        assert caught.value.code == code


def test_text(root):
    found = finish(search(str(root), "**/*.py", text="^one .*/[cd]"))
    assert found["matches"] == [
        {"path": "src/c.py", "line": 1, "text": "one src/c.py"},
        {"path": "src/deep/er/d.py", "line": 1, "text": "one src/deep/er/d.py"},
    ]
    assert not found["truncated"]
    assert [match["line"] for match in finish(search(str(root), "a.py", text="(?i)TWO$"))["matches"]] == [2]


def test_a_linked_file_is_not_read(root):
    assert finish(search(str(root), "**/*", text="secret"))["matches"] == []


@pytest.mark.parametrize("text", ["(", "[z-a]", "a{1", "*", "(?P<n>a)(?P<n>b)", "(?<=a+)b"])
def test_bad_expressions(root, text):
    if text == "a{1":
        assert finish(search(str(root), "*", text=text))["matches"] == []
        return
    with pytest.raises(AgentError, match="not valid") as caught:
        finish(search(str(root), "*", text=text))
    assert caught.value.code == "InvalidRequest"
    assert caught.value.context["field"] == "text"


def test_odd_files(root):
    (root / "binary.dat").write_bytes(b"needle\0needle")
    (root / "latin").write_bytes(b"caf\xe9 needle\r\n")
    (root / "bom").write_bytes(b"\xef\xbb\xbfneedle\n")
    (root / "long").write_bytes(b"x" * 3_000_000 + b"needle" + b"y" * 1000 + b"\nneedle")
    (root / os.fsdecode(b"bad\xff")).write_bytes(b"needle")
    os.mkfifo(root / "fifo")
    found = {
        match["path"]: match for match in finish(search(str(root), "*", text="^needle|needle$|xneedle"))["matches"]
    }
    assert set(found) == {"latin", "bom", "long", "bad\ufffd"}
    assert found["latin"]["text"] == "caf\ufffd needle"
    assert found["bom"]["text"] == "needle"
    long = finish(search(str(root), "long", text="needle"))["matches"]
    assert [match["line"] for match in long] == [1, 2]
    assert len(long[0]["text"]) == SHOWN_LINE
    assert "needle" in long[0]["text"]


def test_truncation(root):
    for number in range(30):
        (root / f"n{number:02}").write_text("hit\n" * 30)
    found = finish(search(str(root), "n*", max_results=10))
    assert [match["path"] for match in found["matches"]] == [f"n{number:02}" for number in range(10)]
    assert found["truncated"]
    assert not finish(search(str(root), "n*", max_results=30))["truncated"]
    found = finish(search(str(root), "n*", text="hit", max_results=45))
    assert [(match["path"], match["line"]) for match in found["matches"]][-1] == ("n01", 15)
    assert found["truncated"]


def test_a_search_can_be_stopped(root):
    (root / "big").write_bytes(b"nothing here\n" * 500_000)
    before = len(os.listdir("/proc/self/fd"))
    steps = search(str(root), "**/*", text="absent")
    for _ in range(4):
        next(steps)
    assert len(os.listdir("/proc/self/fd")) > before
    steps.close()
    assert len(os.listdir("/proc/self/fd")) == before
