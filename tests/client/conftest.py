"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.faces import Face
from tests.support.environment import jupyter_directories


@pytest.fixture(params=["sync", "async"])
async def face(request: pytest.FixtureRequest) -> AsyncIterator[Face]:
    """Both faces of the client, one after the other; what it opened is closed."""
    made = Face(request.param)
    yield made
    await made.close()


@pytest.fixture
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jupyter's directories and the store below ``tmp_path``; nothing of this process's own server is known."""
    for name, value in jupyter_directories(tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in ("JUPYTER_SANDBOX_URL", "JUPYTER_SANDBOX_TOKEN", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
