from __future__ import annotations

import pytest

from jupyter_sandbox.cli import figures


@pytest.fixture
def small(monkeypatch):
    """The same programs with an array of 80 kB."""
    for name in ("ARRAY", "_BARE_FORK", "_DILL"):
        monkeypatch.setattr(figures, name, getattr(figures, name).replace("125_000_000", "10_000"))
    monkeypatch.setattr(figures, "LAST", 9999.0)


@pytest.mark.usefixtures("small")
def test_a_bare_fork_is_measured_in_both_ways():
    call, answer = figures.bare_fork()
    assert call.n == answer.n == figures.REPEATS
    assert 0 < call.ms <= answer.ms


@pytest.mark.usefixtures("small")
def test_dill_leaves_no_file(tmp_path):
    dumped, loaded = figures.dill(tmp_path)
    assert dumped.ms > 0
    assert loaded.ms > 0
    assert list(tmp_path.iterdir()) == []


def test_without_dill_its_row_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    (row,) = figures.dill(tmp_path)
    assert row.ms is None
    assert "not installed" in row.what


def test_a_program_that_fails_gives_no_figures(monkeypatch):
    monkeypatch.setattr(figures, "_BARE_FORK", "raise SystemExit(3)")
    with pytest.raises(figures.subprocess.CalledProcessError):
        list(figures.bare_fork())
