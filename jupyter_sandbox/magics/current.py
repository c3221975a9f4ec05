"""One IPython's connection to the control plane, and which sandbox is its current one."""

from __future__ import annotations

import time
from collections.abc import Callable

from IPython.core.error import UsageError

from jupyter_sandbox.client import Client, Runtime, connect
from jupyter_sandbox.errors import ServerUnavailable

_TRUSTED_S = 1.0  # one magic asks for the client several times; it need not see each time whether the server is there


class Desk:
    """The state that the magics of one shell share.

    The *current* sandbox is the one last created, checked out or named by ``%sandbox use``; a fork does not change it.

    Args:
        connect: Finds the server or starts one; called at the first magic that needs it, and again when the server
            that it found is gone (a private server ends when nothing live is left in it).
    """

    def __init__(self, connect: Callable[[], Client] = connect) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._heard_at = 0.0
        self._current_id: str | None = None

    @property
    def client(self) -> Client:
        """The connection, made when it is first needed."""
        if self._client is not None and time.monotonic() - self._heard_at > _TRUSTED_S:
            try:
                self._client.health()
            except ServerUnavailable:
                self.disconnect()
        if self._client is None:
            self._client = self._connect()
        self._heard_at = time.monotonic()
        return self._client

    @property
    def connected(self) -> Client | None:
        """The connection, if there is one already; asking makes none."""
        return self._client

    @property
    def current_id(self) -> str | None:
        """The id of the current sandbox, which may have ended since."""
        return self._current_id

    def runtime(self, ref: str | None = None) -> Runtime:
        """The sandbox that ``ref`` names, without it the current one.

        Raises:
            UsageError: There is no current one.
            RuntimeNotFound: The server knows no such sandbox.
        """
        wanted = ref or self._current_id
        if wanted is None:
            raise UsageError("There is no current sandbox: name one, or make one with %sandbox create")
        return self.client.runtimes.get(wanted)

    def use(self, runtime: Runtime) -> None:
        """Make ``runtime`` the current one."""
        self._current_id = runtime.id

    def leave(self, runtime_id: str) -> None:
        """Forget the current sandbox if it is this one."""
        if self._current_id == runtime_id:
            self._current_id = None

    def disconnect(self) -> None:
        """Close the connection. Sandboxes live on, and the current one stays the current one."""
        if self._client is not None:
            self._client.close()
            self._client = None
