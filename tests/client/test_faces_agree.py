"""The two faces are one definition: the sync one is what the script derives from the async one."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_sandbox import client

SCRIPT = Path(__file__).parents[2] / "scripts" / "derive_sync.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive_sync", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


derive_sync = load_script()


@pytest.mark.parametrize("source", derive_sync.sources(), ids=lambda path: path.stem)
def test_the_sync_module_is_derived(source: Path) -> None:
    assert derive_sync.target(source).read_text() == derive_sync.derive(source), "run scripts/derive_sync.py"


def test_no_sync_module_is_written_by_hand() -> None:
    derived = {derive_sync.target(source).name for source in derive_sync.sources()}
    there = {path.name for path in (derive_sync.CLIENT / "_sync").glob("*.py")}
    assert there == derived | {"__init__.py"}


def test_nothing_async_is_left() -> None:
    for source in derive_sync.sources():
        text = derive_sync.target(source).read_text()
        for word in ("async ", "await ", "asyncio", "Async"):
            assert word not in text.replace(f"{client.__name__}/_async", "").replace("/_async/", ""), (source, word)


@pytest.mark.parametrize(
    ("sync", "other"),
    [
        (client.Client, client.AsyncClient),
        (client.Runtime, client.AsyncRuntime),
        (client.Runtimes, client.AsyncRuntimes),
    ],
)
def test_the_same_calls_with_the_same_arguments(sync: type, other: type) -> None:
    def calls(cls: type) -> dict[str, list[tuple[str, object, object]]]:
        return {
            name: [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(sync) == calls(other)
    assert calls(sync)


def test_connect_has_the_same_arguments() -> None:
    assert (
        inspect.signature(client.connect).parameters.keys() == inspect.signature(client.connect_async).parameters.keys()
    )
