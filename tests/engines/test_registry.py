from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from jupyter_sandbox.engines import registry
from tests.toy_engine import ToyEngine


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.GROUP)


def test_one_that_cannot_be_loaded_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        point("toy", "tests.toy_engine:ToyEngine"),
        point("absent", "no_such_module:Engine"),
        point("wrong", "tests.toy_engine:Gate"),
        point("alias", "tests.toy_engine:ToyEngine"),
        point("typo", "tests.toy_engine:ToyEngin"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    found = registry.discover()
    assert list(found.engines) == ["toy"]
    assert isinstance(found.engines["toy"], ToyEngine)
    assert "No module named 'no_such_module'" in found.problems["absent"]
    assert "is not an engine" in found.problems["wrong"]
    assert "calls itself 'toy'" in found.problems["alias"]
    assert set(found.problems) == {"absent", "wrong", "alias", "typo"}
