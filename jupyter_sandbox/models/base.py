"""What all records, requests and results share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Metadata = dict[str, Any]
"""A caller's own JSON object, stored and returned as it is."""


class Record(BaseModel):
    """A value that never changes after it was made."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Request(BaseModel):
    """What a caller sends: an unknown field is an error, not silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")
