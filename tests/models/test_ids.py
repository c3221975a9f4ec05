from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from jupyter_sandbox.models import CheckpointId, Name, RuntimeId, child_runtime_id, new_id

HEX = "0123456789abcdef" * 2
BAD = [
    "",
    "rt_",
    f"rt_{HEX}\n",
    f" rt_{HEX}",
    f"rt_{HEX}/../x",
    f"rt_{HEX.upper()}",
    f"rt_{HEX}.{HEX}.{HEX}",
    "a" * 5000,
]
BAD_NAMES = [
    "",
    "-rf",
    ".hidden",
    "a/b",
    "../x",
    "a\0b",
    "a\nb",
    "a ",
    "ä",
    "a" * 129,
    f"rt_{HEX}",
    f"cp_{HEX}x",
    "%2e%2e",
]


def fits(kind, value: str) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("value", BAD)
def test_what_is_no_runtime_id(value: str) -> None:
    assert not fits(RuntimeId, value)
    assert not fits(CheckpointId, value.replace("rt_", "cp_"))


@pytest.mark.parametrize("value", BAD_NAMES)
def test_what_is_no_name(value: str) -> None:
    assert not fits(Name, value)


@pytest.mark.parametrize("value", ["a", "exp", "0", "before-training", "v1.2_x", "a" * 128, "rt_short"])
def test_what_is_a_name(value: str) -> None:
    assert fits(Name, value)


def test_generated_ids_fit_and_differ() -> None:
    runtime, checkpoint = new_id("rt"), new_id("cp")
    child = child_runtime_id(runtime)
    grandchild = child_runtime_id(child)
    assert fits(RuntimeId, runtime)
    assert fits(RuntimeId, child)
    assert fits(RuntimeId, grandchild)
    assert fits(CheckpointId, checkpoint)
    assert child.startswith(f"{runtime}.")
    assert grandchild.startswith(f"{runtime}.")
    assert len({new_id("rt") for _ in range(1000)}) == 1000
