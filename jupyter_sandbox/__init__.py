"""Branch a live computation the way you branch code.

Every public name is imported when it is first used: ``import jupyter_sandbox`` itself costs next to nothing, because
IPython, Jupyter Server and JupyterLab all import it only to ask for their entry point.
"""

from __future__ import annotations

from importlib import import_module

from jupyter_sandbox._version import __version__

TYPE_CHECKING = False  # type checkers know the name; importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_sandbox.client import AsyncClient as AsyncClient
    from jupyter_sandbox.client import AsyncRuntime as AsyncRuntime
    from jupyter_sandbox.client import Checkpoint as Checkpoint
    from jupyter_sandbox.client import Client as Client
    from jupyter_sandbox.client import Runtime as Runtime
    from jupyter_sandbox.client import connect as connect
    from jupyter_sandbox.client import connect_async as connect_async
    from jupyter_sandbox.errors import CellFailed as CellFailed
    from jupyter_sandbox.errors import CommandFailed as CommandFailed
    from jupyter_sandbox.errors import SandboxError as SandboxError

_HOMES = {
    "jupyter_sandbox.client": (
        "AsyncClient",
        "AsyncRuntime",
        "Checkpoint",
        "Client",
        "Runtime",
        "connect",
        "connect_async",
    ),
    "jupyter_sandbox.errors": ("CellFailed", "CommandFailed", "SandboxError"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604 - names, though computed


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """``%load_ext jupyter_sandbox``: the magics."""
    from jupyter_sandbox import magics

    magics.load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """``%unload_ext jupyter_sandbox``; sandboxes live on."""
    from jupyter_sandbox import magics

    magics.unload(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """What Jupyter Server asks an enabled package for."""
    from jupyter_sandbox.server.extension import SandboxExtension

    return [{"module": "jupyter_sandbox", "app": SandboxExtension}]
