from __future__ import annotations

from pathlib import Path

from jupyter_sandbox.client.files import whole_file


def test_whole(tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.write_bytes(b"old")
    with whole_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def test_not_at_all(tmp_path: Path) -> None:
    writing = whole_file(tmp_path / "t")
    writing.__enter__().write(b"half")
    assert writing.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None) is False
    assert list(tmp_path.iterdir()) == []
