"""The Python client of the control plane: `connect` and `connect_async` give the same client in its two faces."""

from jupyter_sandbox.client._async.client import AsyncClient, AsyncRuntimes, connect_async
from jupyter_sandbox.client._async.runtime import AsyncRuntime
from jupyter_sandbox.client._sync.client import Client, Runtimes, connect
from jupyter_sandbox.client._sync.runtime import Runtime
from jupyter_sandbox.client.checkpoint import Checkpoint
from jupyter_sandbox.client.endpoint import Endpoint, Origin
from jupyter_sandbox.client.results import CellCollector, CellResultView, ExecCollector, ExecResultView
from jupyter_sandbox.client.views import Checkpoints, EnginesView, LatencyView, LineageView, RuntimesView, View

__all__ = [
    "AsyncClient",
    "AsyncRuntime",
    "AsyncRuntimes",
    "CellCollector",
    "CellResultView",
    "Checkpoint",
    "Checkpoints",
    "Client",
    "Endpoint",
    "EnginesView",
    "ExecCollector",
    "ExecResultView",
    "LatencyView",
    "LineageView",
    "Origin",
    "Runtime",
    "Runtimes",
    "RuntimesView",
    "View",
    "connect",
    "connect_async",
]
