from __future__ import annotations

import pytest

from jupyter_sandbox.errors import NameTaken
from jupyter_sandbox.store import names
from jupyter_sandbox.store.database import Store


async def test_take_hold_free(store: Store) -> None:
    await store.run(lambda c: names.take(c, "a", "runtime", "rt"))
    await store.run(lambda c: names.take(c, "a", "runtime", "rt"))  # its own
    await store.run(lambda c: names.take(c, None, "checkpoint", "cp"))
    with pytest.raises(NameTaken, match="taken by runtime rt"):
        await store.run(lambda c: names.take(c, "a", "checkpoint", "rt"))
    await store.run(lambda c: names.free(c, "rt"))
    assert await store.run(lambda c: names.holder(c, "a")) is None


async def test_names_of_what_was_never_finished_are_freed(store: Store) -> None:
    await store.run(lambda c: names.take(c, "a", "runtime", "rt"))
    await store.run(names.free_orphans)
    assert await store.run(lambda c: names.holder(c, "a")) is None
