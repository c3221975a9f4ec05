"""An open store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jupyter_sandbox.store.database import Store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "store")
    yield opened
    await opened.aclose()
