from __future__ import annotations

from jupyter_sandbox.service.dirty import DirtyTracker


def test_fresh_is_dirty() -> None:
    assert DirtyTracker().clean_on is None


def test_clean_until_bumped() -> None:
    tracker = DirtyTracker()
    tracker.taken("sn_1", tracker.generation)
    assert tracker.clean_on == "sn_1"
    tracker.bump()
    assert tracker.clean_on is None


def test_a_bump_during_the_snapshot_leaves_it_dirty() -> None:
    tracker = DirtyTracker()
    before = tracker.generation
    tracker.bump()
    tracker.taken("sn_1", before)
    assert tracker.clean_on is None
