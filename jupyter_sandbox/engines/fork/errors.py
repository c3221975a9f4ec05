"""From what the agent reports to this package's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_sandbox.errors import SandboxError, from_dict


def agent_error(report: Mapping[str, Any]) -> SandboxError:
    """The error that an agent's answer ``{"error": {"code", "message", "remedy", "context"}}`` means."""
    return from_dict(report["error"])
