"""What a control plane is told."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from jupyter_sandbox.models import Isolation, Record


class ServiceConfig(Record):
    """Settings of one control plane.

    Attributes:
        store_dir: Where its rows and the engines' state live; one control plane at a time.
        min_isolation: Engines weaker than this are refused.
        interrupt_grace_s: Seconds that an interrupted cell has to stop before its caller is told that it did not.
    """

    store_dir: Path
    min_isolation: Isolation = Isolation.none
    interrupt_grace_s: float = Field(default=5.0, gt=0)
