"""Ids, names and times: validated in the type, so that no handler can forget the check."""

from __future__ import annotations

import re
import secrets
import time
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

_HEX32 = "[0-9a-f]{32}"
RUNTIME_ID_PATTERN = rf"^rt_{_HEX32}(\.{_HEX32})?$"
CHECKPOINT_ID_PATTERN = rf"^cp_{_HEX32}$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

_LOOKS_LIKE_AN_ID = re.compile(rf"^(rt|cp|op|be|sn)_{_HEX32}")


def _not_an_id(name: str) -> str:
    if _LOOKS_LIKE_AN_ID.match(name):
        raise ValueError("a name must not look like an id")
    return name


RuntimeId = Annotated[str, StringConstraints(pattern=RUNTIME_ID_PATTERN)]
"""``rt_<32 hex>``; a child's is ``<stem of the source>.<32 hex>``."""

CheckpointId = Annotated[str, StringConstraints(pattern=CHECKPOINT_ID_PATTERN)]
"""``cp_<32 hex>``."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN), AfterValidator(_not_an_id)]
"""1-128 of ``A-Z a-z 0-9 . _ -``, starting with a letter or digit, not of the shape of an id."""

Reference = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""An id or a name, as callers write it; resolved by the service."""

TimeMs = Annotated[int, Field(ge=0, description="milliseconds since the Unix epoch")]


def new_id(prefix: str) -> str:
    """A fresh ``<prefix>_<32 hex>`` id from the operating system's randomness."""
    return f"{prefix}_{secrets.token_hex(16)}"


def child_runtime_id(source: str) -> str:
    """The id of a runtime branched from ``source``: its stem, a dot, 32 fresh hex digits."""
    return f"{source.partition('.')[0]}.{secrets.token_hex(16)}"


def now_ms() -> int:
    """Wall clock time, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
